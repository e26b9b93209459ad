"""Threads, instruction sets, the GIL, the version."""

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import headlane
import numpy as np
import pytest

RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal((2, 4, 200, 32), np.float32) for _ in range(3))
A, B = RNG.standard_normal((150, 700), np.float32), RNG.standard_normal((700, 130), np.float32)
PACKED = headlane.PackedMatrix(B)
OF_INT8 = headlane.PackedMatrix(B, dtype="int8")
MASK = RNG.random((200, 200)) < 0.5
DECAY = -RNG.random((2, 4, 200, 32), np.float32)

CALLS = {
    "attention": lambda **o: headlane.scaled_dot_product_attention(Q, K, V, MASK, is_causal=True, **o),
    "softmax": lambda **o: headlane.softmax(Q, **o),
    "log_softmax": lambda **o: headlane.log_softmax(Q, 1, **o),
    "gemm": lambda **o: headlane.gemm(A, B, **o),
    "linear": lambda **o: headlane.linear(A, PACKED, B[0], "gelu", A[:, :130], **o),
    "linear, int8": lambda **o: headlane.linear(A, OF_INT8, activations="int8", **o),
    "silu": lambda **o: headlane.silu(Q, **o),
    "unpack": lambda **o: OF_INT8.unpack(**o),
    "unpack_columns": lambda **o: OF_INT8.unpack_columns(np.arange(260).reshape(4, 65) // 2, **o),
    "packing": lambda **o: headlane.gemm(A, headlane.PackedMatrix(B, **o)),
    "gemm_gated": lambda **o: headlane.gemm_gated(A, PACKED, PACKED, gate_bias=B[0], **o),
    "linear_attention": lambda **o: headlane.linear_attention(
        Q[:, :2], K[:, 2:], V, DECAY, normalize=True, **o
    ),
    "causal_convolution": lambda **o: headlane.causal_convolution(
        A, B[:, :4], B[:, 4], activation="silu", **o
    ),
    "matmul, heads": lambda **o: headlane.matmul(Q.swapaxes(0, 1), K[:, :1].transpose(1, 0, 3, 2), **o),
    "matmul": lambda **o: headlane.matmul(Q, K.swapaxes(2, 3), **o),
}


@pytest.mark.parametrize("name", CALLS)
def test_threads_and_isa_change_no_bit(name, restore):
    expected = CALLS[name](num_threads=1).tobytes()
    for threads in (2, 3, 7, None):
        assert CALLS[name](num_threads=threads).tobytes() == expected
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        assert headlane.isa() == isa
        assert CALLS[name]().tobytes() == expected


@pytest.mark.parametrize("name", CALLS)
def test_python_threads_compute_at_once(name):
    expected = CALLS[name]().tobytes()
    start = threading.Barrier(4)

    def work(_):
        start.wait()
        return [CALLS[name]().tobytes() for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, range(4)):
            assert results == [expected] * 5


def counted_during(call):
    """How often another thread gets to count in the middle of a call."""
    running, counts = threading.Event(), []

    def count():
        running.set()
        while running.is_set():
            counts.append(time.perf_counter())
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    running.wait()
    begin = time.perf_counter()
    call()
    end = time.perf_counter()
    running.clear()
    thread.join()
    return sum(begin + 0.1 * (end - begin) < t < end - 0.1 * (end - begin) for t in counts)


def test_the_gil_is_released():
    """If a call held the GIL, no other thread could count; on a busy machine it may have to wait, too."""
    x = np.ones((1, 3000, 64), np.float32)
    headlane.scaled_dot_product_attention(x, x, x, num_threads=1)
    assert any(
        counted_during(lambda: headlane.scaled_dot_product_attention(x, x, x, num_threads=1))
        for _ in range(20)
    )


def test_number_of_threads(restore):
    headlane.set_num_threads(3)
    assert headlane.num_threads() == 3
    headlane.set_num_threads(0)
    assert headlane.num_threads() >= 1


def test_isas():
    isas = headlane.available_isas()
    assert isas[-1] == "portable"
    assert headlane.isa() in isas


def test_version():
    cmake = Path(__file__).parents[2] / "CMakeLists.txt"
    assert headlane.__version__ == re.search(r"headlane VERSION ([0-9.]+)", cmake.read_text())[1]


FORKED = """
import multiprocessing
import headlane, numpy as np

headlane.set_num_threads(3)
a = np.random.default_rng(1).standard_normal((300, 300), np.float32)
expected = headlane.matmul(a, a).tobytes()  # with a team

def compute(_):
    return headlane.matmul(a, a).tobytes() == expected and headlane.num_threads() == 1

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map(compute, range(8)))
assert headlane.matmul(a, a).tobytes() == expected
"""


def test_children_of_fork_compute():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)


def test_too_many_threads():
    with pytest.raises(ValueError, match="set_num_threads: threads is 1000000"):
        headlane.set_num_threads(10**6)


ENDING = """
import threading, time
import headlane, numpy as np

a, cache, began = np.ones((64, 64), np.float32), headlane.KvCache(2, 64), []
sequence, keys = cache.add(), np.ones((2, 64, 64), np.float32)

def compute():
    while True:
        headlane.matmul(a, a)
        cache.append(sequence, keys, keys)
        cache.truncate(sequence, 0)
        began.append(0)

for _ in range(4):
    threading.Thread(target=compute, daemon=True).start()
while len(began) < 100:
    time.sleep(0.01)
"""


def test_threads_that_compute_when_the_interpreter_ends():
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (0, b"")


SUBINTERPRETER = """
import sys
import headlane
interpreters = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")

code = f"import sys; sys.path[:0] = {sys.path!r}; import headlane._core"
failed = None
try:
    failed = interpreters.run_string(interpreters.create(), code)
except Exception as error:
    failed = error
assert "subinterpreter" in str(failed), failed
assert headlane.KvCache(1, 4).add() == 0
"""


def test_a_subinterpreter_is_refused():
    subprocess.run([sys.executable, "-c", SUBINTERPRETER], check=True, timeout=120)
