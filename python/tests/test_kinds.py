"""Functions return the type of array they take: NumPy, buffers, DLPack exporters; nothing is
copied, kept or imported.
"""

import gc
import mmap
import subprocess
import sys
import tracemalloc
import weakref

import array_api_strict
import headlane
import numpy as np
import pytest
from exporter import Exporter

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 8), np.float32)
PACKED = headlane.PackedMatrix(X[0].T)  # [8, 5]
CALLS = {
    "scaled_dot_product_attention": lambda x, **o: headlane.scaled_dot_product_attention(x, x, x, **o),
    "softmax": headlane.softmax,
    "log_softmax": headlane.log_softmax,
    "relu": headlane.relu,
    "gelu": headlane.gelu,
    "linear": lambda x, **o: headlane.linear(x, PACKED, x[0, :, 0], "silu", x[..., :5], **o),
    "gemm_gated": lambda x, **o: headlane.gemm_gated(x, PACKED, PACKED, up_bias=x[0, :, 0], **o),
    "matmul": lambda x, **o: headlane.matmul(x, x[..., :8, :] if x.shape[-2] == 8 else X.swapaxes(1, 2), **o),
}


@pytest.mark.parametrize(
    "function",
    [
        headlane.softmax,
        headlane.log_softmax,
        headlane.gelu,
        lambda x: headlane.linear(x, PACKED),
        lambda x: headlane.gemm_gated(x, PACKED, PACKED),
    ],
    ids=["softmax", "log_softmax", "gelu", "linear", "gemm_gated"],
)
@pytest.mark.parametrize("kind", ["DLPack", "memoryview", "subclass", "array API"])
def test_kinds(function, kind):
    class Subclass(np.ndarray):
        pass

    make, result_type = {
        "DLPack": (Exporter, np.ndarray),
        "memoryview": (memoryview, np.ndarray),
        "subclass": (lambda x: x.view(Subclass), np.ndarray),
        "array API": (array_api_strict.asarray, type(array_api_strict.asarray(X))),
    }[kind]
    result = function(make(X))
    assert type(result) is result_type
    np.testing.assert_array_equal(np.from_dlpack(result) if kind == "array API" else result, function(X))


def test_out_by_dlpack():
    target = np.zeros_like(X)
    exporter = Exporter(target)
    assert headlane.softmax(X, out=exporter) is exporter
    np.testing.assert_array_equal(target, headlane.softmax(X))


def test_read_only_memory_is_read_in_place(tmp_path):
    path = tmp_path / "x"
    X.tofile(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        x = np.frombuffer(memory, np.float32).reshape(X.shape)
        np.testing.assert_array_equal(headlane.softmax(x), headlane.softmax(X))
        np.testing.assert_array_equal(
            headlane.scaled_dot_product_attention(x, x, x), headlane.scaled_dot_product_attention(X, X, X)
        )
        del x  # else closing the map fails: also if headlane still held the buffer


@pytest.mark.parametrize(
    "layout",
    [lambda x: x, lambda x: x[::-1], lambda x: x.swapaxes(1, 2)],
    ids=["dense", "reversed", "swapped"],
)
def test_nothing_is_copied(layout):
    """Python's allocations, which are NumPy's too, during calls on 16 MiB of input with `out`
    given.
    """
    query = layout(np.ones((4, 1024, 1024), np.float32))[..., :64]
    key = np.broadcast_to(np.ones((1, 64), np.float32), (4, 64, 64))
    out = np.empty(query.shape, np.float32)
    weights = headlane.PackedMatrix(key[0])
    tracemalloc.start()
    try:
        headlane.scaled_dot_product_attention(query, key, key, out=out)
        headlane.softmax(query, out=out)
        headlane.relu(query, out=out)
        headlane.linear(query, weights, key[0, 0], "relu", query, out)
        headlane.gemm_gated(query, weights, weights, out=out)
        headlane.matmul(query, key.swapaxes(1, 2), out)
        headlane.PackedMatrix(query[0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000


def test_broadcasts_are_not_materialised():
    """A batch of 10^12 equal matrices has strides of 0; its softmax cannot be stored, but one row
    of it is read.
    """
    mask = np.broadcast_to(np.zeros((1, 1), bool), (2**20, 2**20))
    x = np.broadcast_to(np.ones((1, 1), np.float32), (2**20, 1))
    out = headlane.scaled_dot_product_attention(np.ones((1, 1), np.float32), x, x, mask[:1])
    assert out == 0


@pytest.mark.parametrize("name", CALLS)
def test_references(name):
    x = X.copy()
    out = np.empty_like(CALLS[name](x))
    before = sys.getrefcount(x), sys.getrefcount(out)
    for _ in range(50):
        CALLS[name](x)
        assert CALLS[name](x, out=out) is out
    assert (sys.getrefcount(x), sys.getrefcount(out)) == before
    freed = weakref.ref(x), weakref.ref(CALLS[name](x))
    del x
    gc.collect()
    assert [ref() for ref in freed] == [None, None]


def test_memory_does_not_grow():
    def grown():
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            headlane.scaled_dot_product_attention(X, X, X, np.ones((5, 5), bool), return_lse=True)
            headlane.softmax(Exporter(X))
            headlane.matmul(X, X.swapaxes(1, 2))
            headlane.linear(X, headlane.PackedMatrix(X[0].T), activation="tanh")
            headlane.gemm_gated(X.swapaxes(0, 1), X[0].T, X[1].T)
            headlane.erf(Exporter(X))
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        grown()
        assert grown() < 2_000
    finally:
        tracemalloc.stop()


def test_only_numpy_is_imported():
    code = (
        "import sys, numpy as np, headlane; x = np.ones((2, 2), np.float32); headlane.softmax(x);"
        "headlane.scaled_dot_product_attention(x, x, x); print(sorted({m.split('.')[0] for m in sys.modules}))"
    )
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "'headlane'" in modules
    assert "torch" not in modules
    assert "transformers" not in modules
