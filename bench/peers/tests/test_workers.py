"""How workers live, and what is made of their answers."""

from __future__ import annotations

import json
import sys
from time import monotonic, sleep

import pytest

from ..cases import operations as cases
from ..contenders import contender as contenders
from ..measure import operations as measure
from ..workers.process import Failure, Worker

# A worker that counts in the background, and measures one second for each call.
COUNTING = """
import sys, threading, time, pathlib
counter = 0
def count():
    global counter
    while True:
        counter += 1
        time.sleep(0.001)
threading.Thread(target=count, daemon=True).start()
print("a library's greeting", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "die":
        sys.exit("it is over")
    answers = {"about": "ok version=1.2", "count": f"ok {counter}", "time": f"ok {words[-1].split('=')[-1]}"}
    print(answers.get(words[0], "error cannot " + words[0]), flush=True)
"""


@pytest.fixture
def worker():
    counting = contenders.Contender(
        "counting",
        "Python",
        ("gemm",),
        (sys.executable, "-c", COUNTING),
    )
    made = Worker(counting, 1, timeout=20)
    yield made
    made.end()


def test_a_worker_stands_still_unless_asked(worker):
    assert worker.about == {"version": "1.2"}
    first = int(worker.ask("count"))
    sleep(0.3)
    assert int(worker.ask("count")) - first < 100


def test_failures_are_told(worker):
    with pytest.raises(Failure, match="cannot fly"):
        worker.ask("fly")
    with pytest.raises(Failure, match="ended with code 1: it is over"):
        worker.ask("die")
    assert not worker.alive
    with pytest.raises(Failure):
        worker.ask("count")
    worker.end()
    worker.start()
    assert worker.alive


def test_a_silent_worker_is_ended():
    silent = contenders.Contender(
        "silent", "Python", ("gemm",), (sys.executable, "-c", "import time; time.sleep(60)")
    )
    begin = monotonic()
    with pytest.raises(Failure, match="no answer"):
        Worker(silent, 1, timeout=1)
    assert monotonic() - begin < 10


def test_no_such_program():
    with pytest.raises(Failure, match="No such file"):
        Worker(contenders.Contender("none", "C++", ("gemm",), ("/nowhere/program",)), 1)


def test_calibration_fills_a_sample(worker, tmp_path):
    entry = measure.Entry(worker, 0)
    bench = measure.Bench(measure.Plan(sample=100), tmp_path)
    bench.case = cases.gemm(2, 3, 4)
    assert bench._calibrate(entry) == 100  # this worker's calls take a second each


def test_long_calls_have_few_rounds(worker, tmp_path):
    bench = measure.Bench(measure.Plan(rounds=9, budget=9, least=2), tmp_path)
    for seconds, rounds in ((0.001, 9), (2, 4), (30, 2)):
        assert bench._affordable([measure.Entry(worker, 0, took=seconds)]) == rounds
    bench.case = cases.attention(16384)
    assert bench._calibrate(measure.Entry(worker, 0, took=3)) == 1


def test_rows_have_the_fields_of_the_schema(worker, tmp_path):
    bench = measure.Bench(measure.Plan(), tmp_path)
    bench.case = cases.attention(1, 512)
    made = bench._row(measure.Entry(worker, 1.5, calls=7, seconds=[4, 1, 2, 3, 5]), [0.3, 0.1, 0.2])
    assert (made["low"], made["seconds"], made["high"], made["samples"]) == (2, 3, 4, 5)
    assert made["limit"] == {"kind": "read", "seconds": 0.2}
    assert made["roofline"] is None
    fields = """op case shape threads contender isa seconds low high samples calls_per_sample flops bytes
        limit roofline error error_unit cosine base"""
    assert set(json.loads(json.dumps(made))) == set(fields.split())
