"""activations="int8": the arithmetic that gemm.hpp describes, step by step in NumPy, byte for byte."""

import os
import subprocess
import sys

import headlane
import layouts
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

ACTIVATIONS = reference.ACTIVATIONS
RNG = np.random.default_rng(0)
FLOAT = np.float32


def normal(*shape):
    return RNG.standard_normal(shape, FLOAT)


X, W, BIAS = normal(2, 3, 40), normal(40, 50), normal(50)
PACKED = headlane.PackedMatrix(W, dtype="int8")


def columns(packed):
    """The integers of a matrix of int8, and the scale of each column."""
    b = packed.decoded()
    scale = np.abs(b).max(0, initial=0) / FLOAT(127)  # exact: the largest element is 127 times it
    return np.rint(np.divide(b, scale, where=scale > 0, out=np.zeros_like(b))).astype(np.int64), scale


def fma(a, b, c):
    """a · b + c, rounded once: rounded to odd in float64, then to float32."""
    ab, c = a.astype(np.float64) * b, c.astype(np.float64)
    y = ab + c
    rest = (ab - (y - (y - ab))) + (c - (y - ab))
    even = y.view(np.int64) % 2 == 0
    return np.where((rest != 0) & even, np.nextafter(y, np.copysign(np.inf, rest)), y).astype(FLOAT)


def outlier_of(x):
    """Where the outlier of each row is: the first of the largest, or of the smallest if that is larger in magnitude."""
    high, low = x.argmax(-1, keepdims=True), x.argmin(-1, keepdims=True)
    return np.where(np.take_along_axis(x, high, -1) >= -np.take_along_axis(x, low, -1), high, low)


def others(x, at, largest):
    """The largest ("max") or smallest ("min") element of each row but the outlier."""
    rest, fill = x.copy(), -np.inf if largest == "max" else np.inf
    np.put_along_axis(rest, at, fill, -1)
    return getattr(rest, largest)(-1, keepdims=True)


def product(x, packed):
    """x @ packed by the rules of gemm.hpp."""
    b, scale = columns(packed)
    if x.shape[-1] == 0:
        return np.zeros((*x.shape[:-1], b.shape[1]), FLOAT)
    finite = np.isfinite(x).all(-1, keepdims=True)
    x = np.where(finite, x, FLOAT(0))
    at = outlier_of(x)
    centre = FLOAT(0)
    if x.shape[-1] > 1:
        centre = FLOAT(0.5) * others(x, at, "max") + FLOAT(0.5) * others(x, at, "min")
    outlier, centred = np.take_along_axis(x, at, -1) - centre, x - centre
    np.put_along_axis(centred, at, 0, -1)
    distance = np.abs(centred).max(-1, keepdims=True)
    equal = distance < FLOAT(2.0**-100)
    numbers = np.where(equal, FLOAT(0), centred) * (FLOAT(127) / np.where(equal, FLOAT(1), distance))
    sums = (np.rint(numbers).astype(np.int64) @ b).astype(FLOAT) * np.where(
        equal, FLOAT(0), distance / FLOAT(127)
    )
    y = (
        fma(outlier, b[at[..., 0]].astype(FLOAT), fma(np.asarray(centre), b.sum(0).astype(FLOAT), sums))
        * scale
    )
    return np.where(finite, y, FLOAT(np.nan))


def by_rules(x, packed, bias=None, activation=None, residual=None):
    y = product(x, packed)
    if bias is not None:
        y = y + bias
    if activation is not None:
        y = ACTIVATIONS[activation].function(y)
    return y if residual is None else y + residual


def same_bytes(y, expected):
    assert y.shape == expected.shape
    assert y.dtype == expected.dtype == FLOAT
    assert y.tobytes() == expected.tobytes()


@given(data=st.data())
def test_linear(data):
    """Rows and batches of any strides, without rows, columns or k."""
    batch = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 13]), max_size=3))
    k, n = data.draw(st.sampled_from([0, 1, 17, 64, 600])), data.draw(st.sampled_from([0, 1, 31, 32, 70]))
    x, w = data.draw(layouts.shuffled((*batch, k))), data.draw(layouts.arrays((k, n)))
    bias = data.draw(st.none() | layouts.arrays((n,)))
    residual = data.draw(st.none() | layouts.arrays((*batch, n)))
    activation = data.draw(st.sampled_from([None, *ACTIVATIONS]))
    out = data.draw(layouts.outputs((*batch, n)))
    packed = headlane.PackedMatrix(w, dtype="int8")
    threads = data.draw(st.sampled_from([1, 2, 5, None]))

    options = {"activations": "int8", "num_threads": threads}
    y = headlane.linear(x, packed, bias, activation, residual, out, **options)
    assert out is None or y is out
    same_bytes(y, by_rules(x, packed, bias, activation, residual))
    same_bytes(headlane.matmul(x, packed, **options), by_rules(x, packed))


@pytest.mark.parametrize("sizes", [(1, 513, 700), (200, 700, 130), (400, 1100, 64)], ids=str)
def test_more_than_one_block(sizes, restore):
    m, k, n = sizes
    x, packed = normal(m, k), headlane.PackedMatrix(normal(k, n), dtype="int8")
    expected = product(x, packed)
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        for threads in (1, 2, 3):
            same_bytes(headlane.linear(x, packed, activations="int8", num_threads=threads), expected)


def test_gemm():
    a, c = X[0], normal(3, 50)
    expected = FLOAT(-0.5) * product(a, PACKED)  # exact, so that one rounding is left of the fma
    residual = normal(3, 50)
    out = headlane.gemm(
        a, PACKED, c.copy(), alpha=-0.5, beta=1.5, bias=BIAS, residual=residual, activations="int8"
    )
    same_bytes(out, (expected + FLOAT(1.5) * c) + BIAS + residual)
    same_bytes(headlane.gemm(a, PACKED, activations="int8"), product(a, PACKED))


@pytest.mark.parametrize("shape", [(40,), (0, 40), (2, 0, 40), (5, 40), (2, 3, 40)])
def test_gated(shape):
    a, up = normal(*shape), headlane.PackedMatrix(normal(40, 50), dtype="int8")
    y = headlane.gemm_gated(a, PACKED, up, gate_bias=BIAS, activation="gelu", activations="int8")
    same_bytes(y, by_rules(a, PACKED, BIAS, "gelu") * by_rules(a, up))


def test_rows_that_are_not_finite_are_nan_and_no_others():
    x = normal(6, 40)
    x[1, 3], x[3, 39], x[4, 0] = np.nan, np.inf, -np.inf
    y = headlane.linear(x, PACKED, activations="int8")
    np.testing.assert_array_equal(y, product(x, PACKED))
    assert np.isnan(y).all(1).tolist() == [False, True, False, True, True, False]


@pytest.mark.parametrize("magnitude", [0.0, 2.0**-149, 2.0**-126, 1.9 * 2.0**-101, 2.0**-100, 1e-9, 1e30])
def test_rows_of_any_magnitude(magnitude):
    x = np.clip(normal(3, 40), -1, 1)
    x[1] *= FLOAT(magnitude)
    np.testing.assert_array_equal(headlane.linear(x, PACKED, activations="int8"), product(x, PACKED))


def test_float32_is_the_default():
    expected = headlane.linear(X, PACKED.decoded())
    for options in ({}, {"activations": "float32"}):
        same_bytes(headlane.linear(X, PACKED, **options), expected)


def test_the_error_of_rounding_to_8_bits():
    """The bound of gemm.hpp, over a product by the stored matrix."""
    x = normal(20, 600) + normal(20, 1)
    packed = headlane.PackedMatrix(normal(600, 70), dtype="int8")
    b = packed.decoded().astype(np.float64)
    exact = x.astype(np.float64) @ b
    at = outlier_of(x)
    high, low = others(x, at, "max"), others(x, at, "min")
    centre = (high + low) / 2
    quantised = (high - low) / 2 / 254 * 1.0001 * np.abs(b).sum(0)
    floats = np.abs(centre * b.sum(0)) + np.abs((np.take_along_axis(x, at, -1) - centre) * b[at[:, 0]])
    bound = quantised + 6 * 2.0**-24 * (np.abs(exact) + 2 * floats)
    error = np.abs(headlane.linear(x, packed, activations="int8") - exact)
    assert (error <= bound).all()
    assert error.max() > 2.0**-10  # it is rounded


def normal_states():
    d, ff = 40, 70
    feed_forward = {
        "linear1.weight": normal(ff, d),
        "linear1.bias": normal(ff),
        "linear2.weight": normal(d, ff),
        "linear2.bias": normal(d),
    }
    return feed_forward, {**feed_forward, "linear_gate.weight": normal(ff, d)}


INT8 = {"weights": "int8", "activations": "int8"}


def test_linear_and_embedding():
    weight = normal(50, 40)
    packed = headlane.PackedMatrix(weight.T, dtype="int8")
    layer = headlane.Linear({"weight": weight, "bias": BIAS}, **INT8)
    same_bytes(layer(X, activation="silu"), by_rules(X, packed, BIAS, "silu"))
    embedding = headlane.Embedding({"weight": weight}, tied=True, **INT8)
    same_bytes(embedding.logits(X), product(X, packed))
    stored = headlane.Embedding({"weight": weight}, weights="int8")
    same_bytes(embedding([[3, 49]]), stored([[3, 49]]))


@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward(gated):
    state = normal_states()[gated]
    one, two, gate = (
        headlane.PackedMatrix(state[f"linear{i}.weight"].T, dtype="int8")
        for i in ("1", "2", "_gate" if gated else "1")
    )
    if gated:
        hidden = by_rules(X, gate, None, "relu") * by_rules(X, one, state["linear1.bias"])
    else:
        hidden = by_rules(X, one, state["linear1.bias"], "relu")
    same_bytes(headlane.FeedForward(state, **INT8)(X), by_rules(hidden, two, state["linear2.bias"]))


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (headlane.Linear, {}, "weight"),
        (headlane.FeedForward, {}, "weight"),
        (headlane.MultiHeadAttention, {"num_heads": 5}, "in_proj_weight"),
        (headlane.EncoderLayer, {"num_heads": 5}, "in_proj_weight"),
        (headlane.DecoderLayer, {"num_heads": 5}, "in_proj_weight"),
    ],
)
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16"])
def test_layers_refuse_other_weights(kind, options, name, weights):
    attention = {"in_proj_weight": normal(120, 40), "out_proj.weight": normal(40, 40)}
    norms = {f"norm{i}.{what}": normal(40) for i in (1, 2, 3) for what in ("weight", "bias")}
    inner = {f"{of}.{key}": x for of in ("self_attn", "multihead_attn") for key, x in attention.items()}
    state = {"weight": normal(50, 40), **attention, **inner, **norms, **normal_states()[0]}
    wanted = f"{name} is a PackedMatrix of {weights}; with activations int8 it must be a PackedMatrix of int8"
    with pytest.raises(ValueError, match=wanted) as caught:
        kind(state, weights=weights, activations="int8", **options)
    assert str(caught.value).startswith(f"{kind.__name__}: ")
    with pytest.raises(ValueError, match=f"^{kind.__name__}: activations is 'float16'; there are"):
        kind(state, weights="int8", activations="float16", **options)
    with pytest.raises(ValueError, match=f"{name} is a PackedMatrix of int8; with activations bfloat16 it"):
        kind(state, weights="int8", activations="bfloat16", **options)


WITHOUT_EXTENSIONS = """
import sys
import headlane, numpy as np

numbers = np.frombuffer(sys.stdin.buffer.read(), np.float32)
x, w = numbers[: 37 * 601].reshape(37, 601), numbers[37 * 601 :].reshape(601, 130)
packed = headlane.PackedMatrix(w, dtype="int8")
for isa in headlane.available_isas():
    headlane.set_isa(isa)
    assert headlane.isa_extension() == ""
    sys.stdout.buffer.write(headlane.linear(x, packed, activations="int8").tobytes())
"""


def test_extensions_change_no_bit():
    x, w = normal(37, 601), normal(601, 130)
    expected = headlane.linear(x, headlane.PackedMatrix(w, dtype="int8"), activations="int8").tobytes()
    made = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTENSIONS],
        input=x.tobytes() + w.tobytes(),
        env={**os.environ, "HEADLANE_EXTENSIONS": "none"},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert made == expected * len(headlane.available_isas())


def test_isa_extension(restore):
    known = {"avx512": {"", "vnni", "vnni+bf16"}, "avx2": {"", "vnni"}, "neon": {"", "dotprod"}}
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        assert headlane.isa_extension() in known.get(isa, {""})
