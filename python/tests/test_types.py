"""Type checkers over a program that uses everything: mypy --strict and basedpyright.

basedpyright is pyright with everything in its wheel; the pyright of PyPI downloads its program when it
first runs.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")


def run(*command):
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)


def test_mypy():
    pytest.importorskip("mypy")
    cache = Path(__file__).parents[2] / "build/cache/mypy"
    result = run("mypy", "--strict", "--no-error-summary", "--cache-dir", str(cache), str(PROGRAM))
    assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr


def test_pyright(tmp_path):
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    (tmp_path / PROGRAM.name).write_text(PROGRAM.read_text())
    settings = {"typeCheckingMode": "standard", "reportUnnecessaryTypeIgnoreComment": "error"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    result = run("basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson")
    found = json.loads(result.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    assert [(d["range"]["start"]["line"] + 1, d["message"]) for d in found["generalDiagnostics"]] == []
