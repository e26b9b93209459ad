"""The tests: which there are, which of them meet a fault, and whether one of them sees it."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

# Test files for each Python file or folder of the package; those not named here are seen by the
# ones under "".
PYTHON_TESTS = {
    "transformers.py": ["test_transformers*.py"],
    "torch_ops.py": ["test_torch*.py", "test_transformers*.py"],
    "torch/": ["test_torch_*.py"],
    "models/_t5.py": ["test_t5*.py", "test_translator.py"],
    "models/_bert.py": ["test_bert*.py", "test_minilm.py"],
    "models/_stored.py": ["test_checkpoint.py", "test_gguf.py", "test_compressed_tensors.py"],
    "models/_text.py": ["test_translator.py", "test_bert*.py", "test_minilm.py", "test_gguf.py"],
    "_attention.py": [
        "test_attention*.py",
        "test_kv_cache*.py",
        "test_errors*.py",
        "test_kinds*.py",
        "test_torch*.py",
    ],
    "": ["test_errors*.py", "test_[!t]*.py"],
}
NOT_HERE = ("consumer", "symbols", "instructions", "planted_race")


@dataclasses.dataclass
class Test:
    name: str
    command: list
    environment: dict
    folder: str
    seconds: float = 0  # without a fault

    def run(self, limit, **environment):
        """(passed, in time)."""
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(limit) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:
                # Processes that the test started end with it.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()


ADDED = re.compile(r'^add_test\((?:"|\[=\[)(.+?)(?:"|\]=\]) (".+")\)', re.M)
VALUES = r'^set_tests_properties\((?:"|\[=\[){}(?:"|\]=\]) PROPERTIES .*?ENVIRONMENT "(.+?)"'


def cpp_tests(build):
    """What ctest would run, built or not yet, for AVX2 and the scalar kernels; AVX2's first."""
    tests = []
    for file in sorted((build / "tests").rglob("CTestTestfile.cmake")):
        text = file.read_text()
        for name, words in ADDED.findall(text):
            if name.startswith(NOT_HERE) or name.endswith((".avx512", ".portable")):
                continue
            values = re.search(VALUES.format(re.escape(name)), text, re.M)
            environment = dict(pair.split("=", 1) for pair in values.group(1).split(";")) if values else {}
            command = re.findall('"(.*?)"', words)
            if build not in pathlib.Path(command[0]).parents:
                continue  # a script that looks at what was built
            if pathlib.Path(command[0]).name.startswith("test_"):
                command.append("--abort-after=1")
            tests.append(Test(name, command, environment, str(file.parent)))
    return sorted(tests, key=lambda test: test.name.endswith(".scalar"))


def python_test(root, build, package, file, interpreter):
    command = [interpreter, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(file)]
    same_bits = build / "python/headlane_same_bits"
    environment = {"PYTHONPATH": str(package), "HEADLANE_SAME_BITS": str(same_bits), "HEADLANE_ISA": "avx2"}
    return Test(f"python.{file.name}", command, environment, str(root))


def python_tests(root, build, package, interpreter, name=None):
    patterns = ["test_*.py"]
    if name is not None:
        folder = name.rpartition("/")[0] + "/"
        patterns = PYTHON_TESTS.get(name) or PYTHON_TESTS.get(folder) or PYTHON_TESTS[""]
    files = [file for pattern in patterns for file in sorted((root / "python/tests").glob(pattern))]
    return [python_test(root, build, package, file, interpreter) for file in dict.fromkeys(files)]


def meet(test, count, marks):
    """Runs a test without a fault and returns the numbers of the faults that it evaluates; None if it fails."""
    pathlib.Path(marks).write_bytes(bytes(count))
    begin = time.monotonic()
    passed = test.run(1200, HEADLANE_MUTANTS_MET=str(marks))
    test.seconds = time.monotonic() - begin
    if not passed:
        return None
    return {number for number, met in enumerate(pathlib.Path(marks).read_bytes()) if met}


def killer(tests, number, budget=600):
    """The first of the tests, the quickest ones first, that fails with this fault; None if all pass."""
    for test in sorted(tests, key=lambda test: test.seconds):
        if not test.run(10 + 5 * test.seconds, HEADLANE_MUTANT=str(number)):
            return test.name
    return None
