"""bfloat16 and float16: every function returns its float32 result of the widened arguments, rounded once."""

import itertools
import resource
import subprocess
import sys

import calls
import headlane
import numpy as np
import pytest
from exporter import Exporter
from half import (
    HALVES,
    KINDS,
    TENSORS,
    as_tuple,
    assert_rounded_once,
    bits,
    check,
    is_array,
    kind_of,
    mapped,
    wide,
    widened,
)
from hypothesis import given
from hypothesis import strategies as st
from layouts import LAYOUTS, OUTPUT_LAYOUTS, arranged

RNG = np.random.default_rng(0)
ALL = {**KINDS, **TENSORS}
# Of the calls of the table: those that return an array or arrays, the type of the first argument …
ARRAYS = {
    name: call
    for name, call in calls.CALLS.items()
    if any(isinstance(x, np.ndarray) and x.dtype == np.float32 for x in call[1].values()) or name == "merge"
}
RESULTS = {name: call for name, call in ARRAYS.items() if name not in ("PackedMatrix", "KvCache.append")}
RESULTS = {name: call for name, call in RESULTS.items() if not name.endswith(("remember", "from_numbers"))}
del RESULTS["plan_attention"]
# … and layers, which keep what they read of a state dict.
LAYERS = {name: call for name, call in calls.CALLS.items() if "state" in call[1]}


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", list(RESULTS))
def test_every_function(name, kind):
    function, arguments = RESULTS[name]
    given = mapped(HALVES[kind], arguments)
    check(function(**given), function(**widened(given)), kind)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", list(RESULTS))
def test_mixed_types(name, kind):
    """The first argument decides about the result, whatever the others are."""
    function, arguments = RESULTS[name]
    others = itertools.cycle({**TENSORS, **KINDS}.values() if kind.startswith("torch") else KINDS.values())
    given = {key: mapped(next(others), x) for key, x in arguments.items()}
    first = next(key for key, x in given.items() if is_array(x) or key == "parts")
    given[first] = mapped(ALL[kind], arguments[first])
    check(function(**given), function(**widened(given)), kind)


ROWS_ONLY = ("attention_weights", "attention_key_sums")  # rows of out must be contiguous
WITH_OUT = [name for name in RESULTS if "out" in calls.signature_of(name).parameters]


@pytest.mark.parametrize("out", KINDS)
@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("name", WITH_OUT)
def test_out(name, kind, out):
    """An out of any type is rounded into, in any layout, and nothing beside it is written."""
    function, arguments = RESULTS[name]
    given = mapped(KINDS[kind], arguments)
    exact = as_tuple(function(**widened(given)))[0]
    for layout in ("dense", "offset") if name in ROWS_ONLY else OUTPUT_LAYOUTS:
        target = arranged(KINDS[out](np.full(exact.shape, 77, np.float32)), layout)
        assert as_tuple(function(**given, out=target))[0] is target
        assert_rounded_once(target, exact, out)
        if layout in ("step", "offset"):
            assert np.count_nonzero(target.base == 77) >= target.base.size - target.size


@pytest.mark.parametrize("out", TENSORS)
@pytest.mark.parametrize("name", WITH_OUT)
def test_tensors_as_out(name, out):
    function, arguments = RESULTS[name]
    given = mapped(HALVES["float16"], arguments)
    exact = as_tuple(function(**widened(given)))[0]
    order = list(range(exact.ndim))[:: 1 if name in ROWS_ONLY else -1]
    whole = TENSORS[out](np.full((2, *(exact.shape[axis] for axis in order)), 77, np.float32))
    target = whole[1].permute(*order)
    version = target._version
    assert as_tuple(function(**given, out=target))[0] is target
    assert_rounded_once(target, exact, out)
    assert (whole[0] == 77).all()
    assert target._version > version


@given(data=st.data(), name=st.sampled_from(sorted(RESULTS)), kind=st.sampled_from(sorted(KINDS)))
def test_layouts(data, name, kind):
    function, arguments = RESULTS[name]
    layout = st.sampled_from(LAYOUTS)
    given = mapped(lambda x: arranged(KINDS[kind](x), data.draw(layout)), arguments)
    check(function(**given), function(**widened(given)), kind)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_from_a_state_of_16_bits(name, kind):
    """As test_every_function does, for what is constructed."""
    constructor, arguments = LAYERS[name]
    given = {**arguments, "state": mapped(HALVES[kind], arguments["state"])}
    ours, theirs = constructor(**given).state_dict(), constructor(**widened(given)).state_dict()
    assert ours.keys() == theirs.keys()
    for key, x in ours.items():
        np.testing.assert_array_equal(x, theirs[key])


# The bits of all numbers of 16 bits.
WORDS = np.arange(2**16, dtype=np.uint16)


def every(kind):
    """All numbers of a type, NaNs, infinities and denormal numbers included."""
    if kind.startswith("torch."):
        torch = pytest.importorskip("torch")
        return torch.from_numpy(WORDS.view(np.int16)).view(getattr(torch, kind[6:]))
    return WORDS.view(HALVES[kind](np.zeros(1, np.float32)).dtype)


@pytest.mark.parametrize("kind", HALVES)
def test_every_number(kind):
    """Widened exactly and rounded back to itself: relu of x and of -x, and a sum with 0."""
    x = every(kind)
    assert_rounded_once(headlane.relu(x), headlane.relu(wide(x)), kind)
    assert_rounded_once(headlane.tanh(x), headlane.tanh(wide(x)), kind)
    one = np.ones((1, 1), np.float32)
    back = headlane.gemm(x[:, None], one)[:, 0]
    np.testing.assert_array_equal(bits(back), bits(x) & ~np.uint16(np.where(bits(x) == 0x8000, 0x8000, 0)))
    np.testing.assert_array_equal(headlane.PackedMatrix(x[:, None]).unpack()[:, 0], wide(x))


@pytest.mark.parametrize("kind", HALVES)
def test_every_rounding(kind):
    """Numbers of float32 of every exponent and sign beside those where rounding changes; overflow
    is infinite.
    """
    middle = np.arange(0, 2**32, 2**12).astype(np.uint32)  # half of the last place of both, among others
    x = np.concatenate([middle - np.uint32(1), middle, middle + np.uint32(1)]).view(np.float32)
    out = HALVES[kind](np.zeros_like(x))
    headlane.gemm(x[:, None], np.ones((1, 1), np.float32), out=out[:, None])
    x[x == 0] = 0  # 0 + -0
    assert_rounded_once(out, x, kind)


@pytest.mark.parametrize("kind", HALVES)
def test_packed_matrix_of_the_same_type_is_exact(kind):
    matrix = HALVES[kind](RNG.standard_normal((37, 50), np.float32))
    packed = headlane.PackedMatrix(matrix, dtype=kind.rpartition(".")[2])
    np.testing.assert_array_equal(packed.unpack(), wide(matrix))
    x = HALVES[kind](RNG.standard_normal((5, 37), np.float32))
    assert_rounded_once(headlane.linear(x, packed), headlane.linear(wide(x), wide(matrix)), kind)


@pytest.mark.parametrize("kind", HALVES)
def test_sums_before_a_norm(kind):
    """The norm is that of the float32 sum; both are rounded once. The sum may replace the residual."""
    x, residual = (HALVES[kind](RNG.standard_normal((3, 70), np.float32)) for _ in range(2))
    for norm in (headlane.layer_norm, headlane.rms_norm):
        exact = norm(wide(x), residual=wide(residual), return_sum=True)
        for ours, theirs in zip(norm(x, residual=residual, return_sum=True), exact):
            assert_rounded_once(ours, theirs, kind)
        copy = HALVES[kind](wide(residual))
        y, total = norm(x, residual=copy, return_sum=copy)
        assert total is copy
        assert_rounded_once(total, exact[1], kind)
        with pytest.raises(ValueError, match=f"{norm.__name__}: out of shape .* overlaps return_sum"):
            norm(x, out=copy, return_sum=copy)
        both = HALVES[kind](np.zeros((3, 140), np.float32))
        norm(x, residual=residual, out=both[:, :70], return_sum=both[:, 70:])
        assert_rounded_once(both[:, :70], exact[0], kind)
        assert_rounded_once(both[:, 70:], exact[1], kind)


@pytest.mark.parametrize("kind", HALVES)
def test_outputs_that_are_read(kind):
    a, b, c = (HALVES[kind](RNG.standard_normal((6, 6), np.float32)) for _ in range(3))
    exact = wide(c).copy()
    headlane.gemm(wide(a), wide(b), exact, beta=0.5)
    assert headlane.gemm(a, b, c, beta=0.5) is c
    assert_rounded_once(c, exact, kind)
    layer, out = calls.embedding(), HALVES[kind](RNG.standard_normal((1, 2, 8), np.float32))
    exact = wide(out).copy()
    layer([[1, 2]], add=True, out=exact)
    assert layer([[1, 2]], add=True, out=out) is out
    assert_rounded_once(out, exact, kind)


@pytest.mark.parametrize("kind", HALVES)
def test_in_place(kind):
    x = HALVES[kind](RNG.standard_normal((4, 9), np.float32))
    for function in (headlane.softmax, headlane.gelu, headlane.rms_norm, headlane.add_sinusoidal_encoding):
        exact = function(wide(x))
        assert function(x, out=x) is x
        assert_rounded_once(x, exact, kind)


@pytest.mark.parametrize("kind", HALVES)
def test_no_elements(kind):
    for shape in ((0,), (0, 4), (3, 0), (2, 0, 4)):
        x = HALVES[kind](np.zeros(shape, np.float32))
        assert_rounded_once(headlane.relu(x), np.zeros(shape, np.float32), kind)
        assert_rounded_once(headlane.softmax(x, out=x), np.zeros(shape, np.float32), kind)
    none, some = (HALVES[kind](np.zeros(shape, np.float32)) for shape in ((3, 0), (0, 5)))
    assert_rounded_once(headlane.matmul(none, some), np.zeros((3, 5), np.float32), kind)


def test_broadcasts_are_copied_once():
    """2^40 elements that are all one: neither stored nor walked over."""
    mask = np.broadcast_to(np.zeros((1, 1), np.float16), (2**20, 2**20))
    x = np.broadcast_to(np.ones((1, 1), np.float16), (2**20, 1))
    one = np.ones((1, 1), np.float16)
    out = headlane.scaled_dot_product_attention(one, x, x, mask[:1])
    assert (out.dtype, out) == (np.float16, 1)
    wide_rows = np.broadcast_to(np.ones((1, 1), np.float16), (2**40, 0))
    assert headlane.relu(wide_rows).shape == (2**40, 0)


@pytest.mark.parametrize("kind", HALVES)
def test_references_and_memory(kind):
    """Nothing is kept: neither arrays nor their copies, also where a call fails."""
    x = HALVES[kind](np.ones((64, 1024), np.float32))
    out = HALVES[kind](np.ones((64, 1024), np.float32))

    def run():
        for _ in range(20):
            headlane.softmax(x, bias=x, out=out)
            headlane.rms_norm(x, return_sum=True)
            with pytest.raises(ValueError, match="has 1024 columns"):
                headlane.linear(x, x, out=out)

    run()
    before = sys.getrefcount(x), sys.getrefcount(out)
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10):
        run()
    assert (sys.getrefcount(x), sys.getrefcount(out)) == before
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - pages
    assert grown < 16 * 1024  # KiB; 200 copies have 50 MiB


class InNamespace(Exporter):
    """An array of a library that makes its own arrays."""

    @staticmethod
    def from_dlpack(array):
        return InNamespace(array)

    def __array_namespace__(self):
        return InNamespace


@pytest.mark.parametrize("kind", TENSORS)
def test_libraries_with_a_namespace(kind):
    torch = pytest.importorskip("torch")
    x = TENSORS[kind](calls.X)
    result = headlane.softmax(InNamespace(x))
    assert isinstance(result, InNamespace)
    assert_rounded_once(torch.from_dlpack(result), headlane.softmax(wide(x)), kind)


@pytest.mark.parametrize("kind", TENSORS)
def test_unknown_libraries(kind):
    """The result is NumPy's array, or for bfloat16, which NumPy does not have, one with __dlpack__."""
    torch = pytest.importorskip("torch")
    x = TENSORS[kind](calls.X)
    result = headlane.softmax(Exporter(x))
    assert isinstance(result, np.ndarray) == (kind != "torch.bfloat16")
    assert_rounded_once(torch.from_dlpack(result), headlane.softmax(wide(x)), kind)
    out = torch.zeros_like(x)
    assert isinstance(headlane.softmax(Exporter(x), out=Exporter(out)), Exporter)
    assert_rounded_once(out, headlane.softmax(wide(x)), kind)


def test_ml_dtypes_is_not_imported():
    code = (
        "import sys, numpy as np, headlane; x = np.ones((2, 2), np.float16); headlane.softmax(x);"
        "headlane.KvCache(1, 2, dtype='bfloat16'); print('ml_dtypes' in sys.modules, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "False False\n"


def test_kinds():
    """That which makes the other tests tests."""
    assert {kind_of(make(calls.X)) for make in ALL.values()} == set(ALL)
