"""Arrays whose memory does not tell their values, or whose calls PyTorch would record: refused by
every function that takes arrays.
"""

import calls
import headlane
import numpy as np
import pytest

# Every array of every call: (name, parameter, a function that calls with another array in its
# place).
PLACES = [
    (name, parameter)
    for name, (_, arguments) in calls.CALLS.items()
    for parameter, value in arguments.items()
    if isinstance(value, np.ndarray)
]
LISTS = [  # integers that are converted
    (name, parameter)
    for name, (_, arguments) in calls.CALLS.items()
    for parameter in ("lengths", "key_lengths", "query_lengths", "positions", "ids", "columns")
    if parameter in arguments
]


def call(name, parameter, change):
    function, arguments = calls.CALLS[name]
    return function(**{**arguments, parameter: change(np.asarray(arguments[parameter]))})


@pytest.mark.parametrize(("name", "parameter"), PLACES + LISTS)
def test_masked(name, parameter):
    with pytest.raises(TypeError, match=rf"{name}: {parameter} is a masked array.*{parameter}\.filled"):
        call(name, parameter, lambda x: np.ma.masked_array(x, mask=np.zeros(x.shape, bool)))


def test_masked_parts_and_states():
    out, lse = calls.PARTS[0]
    with pytest.raises(TypeError, match=r"merge: parts\[0\]\.lse is a masked array"):
        headlane.merge([(out, np.ma.masked_array(lse))])
    with pytest.raises(TypeError, match="Linear: weight is a masked array"):
        headlane.Linear({"weight": np.ma.masked_array(calls.X[0])})
    out = np.ma.masked_array(np.zeros_like(calls.X))
    with pytest.raises(TypeError, match="softmax: out is a masked array"):
        headlane.softmax(calls.X, out=out)


def test_subclasses_without_a_meaning_of_their_own():
    x = calls.X[0]
    assert type(headlane.softmax(x.view(np.matrix))) is np.ndarray
    assert type(headlane.softmax(x.view(np.recarray))) is np.ndarray


def tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return torch, torch.from_numpy(calls.X[0].copy())


def tensor(x):
    return tensors()[0].from_numpy(np.ascontiguousarray(x))


@pytest.mark.parametrize(("name", "parameter"), PLACES + LISTS)
def test_traced(name, parameter):
    torch, x = tensors()

    def traced(y):
        with pytest.raises(RuntimeError, match=rf"{name}: {parameter} is traced by torch\.jit"):
            call(name, parameter, tensor)
        return y

    torch.jit.trace(traced, (x,), check_trace=False)


FLOATS = [p for p in PLACES if calls.CALLS[p[0]][1][p[1]].dtype == np.float32]


@pytest.mark.parametrize(("name", "parameter"), FLOATS)
def test_differentiated(name, parameter):
    torch, _ = tensors()
    forward = torch.autograd.forward_ad
    with pytest.raises(RuntimeError, match=f"{name}: {parameter} requires a gradient"):
        call(name, parameter, lambda x: tensor(x).requires_grad_())
    with forward.dual_level():
        with pytest.raises(RuntimeError, match=f"{name}: {parameter} has a tangent"):
            call(name, parameter, lambda x: forward.make_dual(tensor(x), tensor(x)))
        call(name, parameter, tensor)  # one without
        with torch.no_grad(), pytest.raises(RuntimeError, match="has a tangent"):
            call(name, parameter, lambda x: forward.make_dual(tensor(x), tensor(x)))


def test_traces_are_refused_whole():
    """Before, uninitialized memory was returned."""
    torch, x = tensors()
    with pytest.raises(RuntimeError, match="softmax: x is traced"):
        torch.jit.trace(headlane.softmax, (x,))
    with pytest.raises(RuntimeError, match="softmax: x has a tangent"):
        torch.func.jvp(headlane.softmax, (x,), (x,))
    with pytest.raises(RuntimeError, match="softmax: x requires a gradient"):
        torch.func.grad(lambda y: headlane.softmax(y).sum())(x)


KINDS = {
    "vmap": (lambda t, x: t.vmap(headlane.softmax)(x), r"x is wrapped by torch\.func"),
    "functionalize": (lambda t, x: t.func.functionalize(headlane.softmax)(x), "x .*no values in memory"),
    "sparse": (
        lambda t, x: headlane.softmax(x.to_sparse()),
        r"x has the layout torch.sparse_coo: pass x\.to_dense",
    ),
    "CSR": (
        lambda t, x: headlane.softmax(x.to_sparse_csr()),
        r"x has the layout torch.sparse_csr: pass x\.to_dense",
    ),
    "quantised": (
        lambda t, x: headlane.softmax(t.quantize_per_tensor(x, 0.1, 0, t.qint8)),
        r"x is quantised: pass x\.dequantize\(\)",
    ),
    "nested": (lambda t, x: headlane.softmax(t.nested.nested_tensor([x, x])), "x is a nested tensor"),
    "jagged": (
        lambda t, x: headlane.softmax(t.nested.nested_tensor([x, x], layout=t.jagged)),
        "x has type .*NestedTensor.*computes by itself",
    ),
    "meta": (lambda t, x: headlane.softmax(x.to("meta")), "x has no values, being on the device meta"),
    "complex": (lambda t, x: headlane.softmax(t.complex(x, x)), r"x .*complex64.*pass x\.real and x\.imag"),
    "masked tensor": (
        lambda t, x: headlane.softmax(t.masked.masked_tensor(x, x > 0)),
        "x has type .*MaskedTensor.*computes by itself",
    ),
    "zero tensor": (lambda t, x: headlane.softmax(t._efficientzerotensor((4, 8))), "x .*no values in memory"),
    "NumPy's complex": (
        lambda t, x: headlane.softmax(x.numpy() * 1j),
        r"x .*complex64.*pass x\.real and x\.imag",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_kinds_of_tensors(kind):
    torch, x = tensors()
    make, message = KINDS[kind]
    with pytest.raises(TypeError, match=f"softmax: {message}"):
        make(torch, x)


def test_fake_tensors():
    torch, x = tensors()
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        with pytest.raises(TypeError, match="softmax: x has type .*FakeTensor.*computes by itself"):
            headlane.softmax(torch.ones(4, 8))
        with pytest.raises(TypeError, match="softmax: out has type .*FakeTensor"):
            headlane.softmax(x)


def test_tensor_subclasses_without_a_meaning_of_their_own():
    torch, x = tensors()

    class Plain(torch.Tensor):
        pass

    assert type(headlane.softmax(x.as_subclass(Plain))) is torch.Tensor
    assert type(headlane.softmax(torch.nn.Buffer(x))) is torch.Tensor
