"""Arrays of 16 bits that are refused, and types that are refused beside them."""

import calls
import headlane
import numpy as np
import pytest
from half import HALVES, KINDS, wide

FLOATS = [
    (name, parameter)
    for name, (_, arguments) in calls.CALLS.items()
    for parameter, x in arguments.items()
    if isinstance(x, np.ndarray) and x.dtype == np.float32
]


@pytest.mark.parametrize("dtype", ["float64", "int64", "int8", "complex64"])
@pytest.mark.parametrize(("name", "parameter"), FLOATS)
def test_other_types_are_refused(name, parameter, dtype):
    function, arguments = calls.CALLS[name]
    wanted = "real numbers" if dtype == "complex64" else "wanted: float32, bfloat16 or float16: pass"
    with pytest.raises(TypeError, match=f"^{name}: {parameter} has type ndarray, dtype {dtype}; .*{wanted}"):
        function(**{**arguments, parameter: arguments[parameter].astype(dtype)})


def test_types_of_out_that_are_refused():
    for dtype in ("float64", "int32", "bool", ">f2"):
        with pytest.raises(TypeError, match=f"^relu: out has type ndarray, dtype {dtype}; wanted: float32"):
            headlane.relu(calls.X, out=np.zeros(calls.X.shape, dtype))


def test_eight_bits_are_refused():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("float8_e4m3fn", "int4"):
        with pytest.raises(TypeError, match=f"^relu: x has type ndarray, dtype {name}; wanted: an array of"):
            headlane.relu(np.zeros(3, getattr(ml_dtypes, name)))


def test_no_memory_for_a_copy():
    """A view of 32 MiB whose windows overlap: 2^46 elements."""
    x = np.lib.stride_tricks.sliding_window_view(np.zeros(2**24 - 1, np.float16), 2**23)
    with pytest.raises(
        MemoryError, match=r"^matmul: a of shape \[8388608, 8388608\]: there is no memory for a"
    ):
        headlane.matmul(x, x[:1].T)


@pytest.mark.parametrize("kind", HALVES)
def test_nothing_is_written_if_the_call_fails(kind):
    out = HALVES[kind](np.full((4, 8), 77, np.float32))
    for call in (
        lambda: headlane.softmax(calls.X[0].astype(np.float16), num_threads=-1, out=out),
        lambda: headlane.scaled_dot_product_attention(*[calls.X[0]] * 3, softcap=-1.0, out=out),
        lambda: headlane.gemm(calls.X[0], calls.X[0], out=out),
    ):
        with pytest.raises(ValueError, match="softmax|attention|gemm"):
            call()
        assert (wide(out) == 77).all()


@pytest.mark.parametrize("kind", KINDS)
def test_out_that_overlaps_x(kind):
    """In place is legal, another overlap is not."""
    x = KINDS[kind](np.arange(12, dtype=np.float32).reshape(3, 4))
    before = wide(x).copy()
    for function in (headlane.relu, headlane.softmax, headlane.rms_norm, headlane.add_sinusoidal_encoding):
        with pytest.raises(ValueError, match="overlaps"):
            function(x[:-1], out=x[1:])
    with pytest.raises(ValueError, match="overlaps"):
        headlane.rotary_embedding(x[:-1], out=x[1:])
    np.testing.assert_array_equal(wide(x), before)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "float32"])
def test_out_of_float32_that_overlaps_a_residual(kind):
    """It is read in place: by one call of the library, or by several."""
    out = np.zeros((2, 5, 8), np.float32)
    words = out.reshape(2, 40).view(KINDS[kind](calls.X).dtype)
    residual = words[:, 3:43].reshape(2, 5, 8)
    x, eye = np.ones((2, 5, 8), np.float32), np.eye(8, dtype=np.float32)
    packed, layer = headlane.PackedMatrix(eye), headlane.Linear({"weight": eye})
    for call in (
        lambda: headlane.gemm(x[0], packed, out[0], residual=residual[0]),
        lambda: headlane.linear(x[0], packed, residual=residual[0], out=out[0]),
        lambda: headlane.linear(x, packed, residual=residual[::-1], out=out),
        lambda: layer(x, residual=residual, out=out),
    ):
        with pytest.raises(ValueError, match=r"of shape .* overlaps residual of shape"):
            call()
    assert (out == 0).all()
    apart = np.broadcast_to(words[1, :8], (5, 8))
    assert (headlane.gemm(x[0], packed, out[0], residual=apart) == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_out_that_overlaps_a_bias(kind):
    """A bias is read in place, of whatever type x is."""
    out = KINDS[kind](np.ones((4, 8), np.float32))
    bias = out[:1].view(np.float16)[:, :8]
    for function in (headlane.softmax, headlane.log_softmax):
        for given in (out[1:2], bias):
            with pytest.raises(ValueError, match=r"out of shape \[4, 8\] overlaps bias of shape \[4, 8\]"):
                function(KINDS[kind](calls.X[0]), bias=given, out=out)
    assert (wide(out) == 1).all()


def test_read_only_and_misaligned_memory():
    if "bfloat16" not in KINDS:
        pytest.skip("ml_dtypes is not installed")
    bfloat16 = KINDS["bfloat16"](np.zeros(4, np.float32)).dtype
    x = np.zeros(4, bfloat16)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="^relu: out is read-only"):
        headlane.relu(x, out=x)
    with pytest.raises(ValueError, match="^relu: x is misaligned: its address is 1 modulo 2"):
        headlane.relu(np.zeros(9, np.uint8)[1:].view(bfloat16))
    one = np.lib.stride_tricks.as_strided(np.zeros(1, bfloat16), (4,), (0,))
    with pytest.raises(ValueError, match=r"^relu: out of shape \[4\] overlaps itself"):
        headlane.relu(np.zeros(4, bfloat16), out=one)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_out_of_attention_that_overlaps(kind, batch):
    """Operands of one type are not copied, and the result is written while they are read."""
    x, y = (KINDS[kind](calls.normal(*batch, 1, 4, 8)) for _ in range(2))
    for q, k, v in ((x, y, y), (y, x, y), (y, y, x)):
        with pytest.raises(ValueError, match="out of shape .* overlaps"):
            headlane.scaled_dot_product_attention(q, k, v, out=x)
