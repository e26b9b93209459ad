"""The JSON document."""

from __future__ import annotations

import json
import os

import pytest

from .. import record


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH Zen MAX_THREADS=64", "0.3.21"),
        ("Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build 20260915", "2026.2"),
        ("2.13.0+cpu", "2.13.0"),
        ("", ""),
    ],
)
def test_version_number(text, number):
    assert record.short(text) == number


def test_busy_is_a_share():
    assert 0 <= record.busy(0.1) <= 1


def test_document_is_json_with_the_fields_of_the_schema():
    made = record.document("0.1.0", {"cpu": "a CPU", "limits": []})
    assert set(json.loads(json.dumps(made))) >= {
        "schema",
        "headlane",
        "commit",
        "date",
        "machine",
        "contenders",
        "results",
        "failures",
    }
    assert made["schema"] == "headlane-peers-1"
    assert os.linesep not in made["commit"]
