"""PyTorch tensors: layouts, gradients, out, torch.compile; and PyTorch as a second opinion on
accuracy.
"""

import gc
import sys
import weakref

import headlane
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch_ops  # noqa: E402
from headlane.torch._recognise import ACTIVATIONS  # noqa: E402

SDPA = headlane.scaled_dot_product_attention
REFERENCE = torch.nn.functional.scaled_dot_product_attention

LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "step": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "offset": lambda x: torch.cat((torch.zeros(1), x.flatten()))[1:].view(x.shape),
    "expanded": lambda x: x[:1].expand_as(x),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "parameter": torch.nn.Parameter,
    "read from NumPy": lambda x: torch.from_numpy(x.numpy()),
}


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_layouts(layout):
    q, k, v = (LAYOUTS[layout](normal(2, 3, 7, 8, seed=seed)) for seed in range(3))
    result, lse = SDPA(q, k, v, return_lse=True)
    assert type(result) is type(lse) is torch.Tensor
    expected = SDPA(q.detach().numpy(), k.detach().numpy(), v.detach().numpy(), return_lse=True)
    for ours, theirs in zip((result, lse), expected):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal(headlane.softmax(q, 1).numpy(), headlane.softmax(q.detach().numpy(), 1))
    np.testing.assert_array_equal(
        headlane.matmul(q, k.mT).numpy(), headlane.matmul(q.detach().numpy(), k.mT.detach().numpy())
    )
    np.testing.assert_array_equal(headlane.gelu(q).numpy(), headlane.gelu(q.detach().numpy()))
    weight, bias, residual = v[0, 0], k[0, 0, :, 0], q[..., :7]  # [out, in], [out]
    result = headlane.linear(q, headlane.PackedMatrix(weight.T), bias, "relu", residual)
    assert type(result) is torch.Tensor
    operands = (x.detach().numpy() for x in (q, weight.T, bias))
    expected = headlane.linear(*operands, "relu", residual.detach().numpy())
    np.testing.assert_array_equal(result.numpy(), expected)
    result = headlane.gemm_gated(q, weight.T, k[0, 0].T, gate_bias=bias)
    assert type(result) is torch.Tensor
    a, gate, up, gate_bias = (x.detach().numpy() for x in (q, weight.T, k[0, 0].T, bias))
    expected = headlane.gemm_gated(a, gate, up, gate_bias=gate_bias)
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS.keys() - {"identity"}))
def test_linear_layer(name):
    """A layer of PyTorch in float64, within the bound."""
    x, weight, bias, residual = (
        normal(3, 5, 70),
        normal(40, 70, seed=1),
        normal(40, seed=2),
        normal(3, 5, 40, seed=3),
    )
    wide = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    exact = (ACTIVATIONS[name](wide) + residual.double()).numpy()
    packed = headlane.PackedMatrix(weight.T)
    y = headlane.linear(x, packed, bias, name, residual)
    ours, bound = reference.linear(x.numpy(), weight.T.numpy(), bias.numpy(), name, residual.numpy())
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-12)
    reference.check(y.numpy(), exact, bound)


def test_feed_forward():
    """Llama's gated layer in float64, within the bound; into an out of other strides."""
    a, gate, up = normal(2, 9, 70), normal(40, 70, seed=1), normal(40, 70, seed=2)
    exact = torch.nn.functional.silu(a.double() @ gate.double().T) * (a.double() @ up.double().T)
    packed = headlane.PackedMatrix(gate.T), headlane.PackedMatrix(up.T)
    out = torch.full((2, 40, 9), torch.nan).transpose(1, 2)
    assert headlane.gemm_gated(a, *packed, out=out) is out
    ours, bound = reference.gemm_gated(a.numpy(), gate.T.numpy(), up.T.numpy())
    np.testing.assert_allclose(ours, exact.numpy(), rtol=0, atol=1e-12)
    reference.check(out.numpy(), exact.numpy(), bound)


def test_batches():
    """PyTorch's matmul, expanded and transposed operands."""
    a, b = normal(3, 1, 17, 40).expand(3, 5, 17, 40), normal(5, 3, 33, 40, seed=1).transpose(0, 1).mT
    out = torch.full((5, 3, 17, 33), torch.nan).transpose(0, 1)
    assert headlane.matmul(a, b, out) is out
    exact, bound = reference.gemm(a.numpy(), b.numpy())
    np.testing.assert_allclose(exact, (a.double() @ b.double()).numpy(), rtol=0, atol=1e-12)
    reference.check(out.numpy(), exact, bound)


def test_out_is_written_in_place():
    x = normal(2, 4, 8)
    whole = torch.full((2, 8, 4), torch.nan)
    out = whole.transpose(1, 2)
    address = out.data_ptr()
    assert SDPA(x, x, x, out=out) is out
    assert out.data_ptr() == address
    torch.testing.assert_close(whole.transpose(1, 2), SDPA(x, x, x), rtol=0, atol=0)
    assert headlane.softmax(x, out=x) is x


def test_a_write_counts_as_a_new_version():
    """A backward pass that needs the old values fails, as after any write in place."""
    weight, x, out = normal(4).requires_grad_(), normal(4), normal(4)
    product = weight * out
    headlane.softmax(x, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_gradients_are_refused():
    x = normal(4, 8).requires_grad_()
    for call in (
        lambda: SDPA(x, x, x),
        lambda: headlane.softmax(x),
        lambda: headlane.silu(x),
        lambda: headlane.gemm_gated(x, x.T, x.T),
        lambda: headlane.PackedMatrix(x),
    ):
        with pytest.raises(RuntimeError, match=r"requires a gradient.*torch\.no_grad\(\)"):
            call()
    with torch.no_grad():
        assert not SDPA(x, x, x).requires_grad
    with torch.inference_mode():
        SDPA(x, x, x)
    SDPA(x.detach(), x.detach(), x.detach())
    result = torch.ops.headlane.scaled_dot_product_attention(x, x, x)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        result.sum().backward()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x.double(), r"query .*torch\.float64.*query\.float\(\)"),
        (lambda x: x.to(torch.float8_e5m2), r"query .*torch\.float8_e5m2.*query\.float\(\)"),
        (lambda x: x.long(), r"torch\.int64"),
        (lambda x: torch.complex(x, x).conj().imag, r"query is a negative view.*query\.resolve_neg\(\)"),
        (lambda x: x.to("meta"), "query has no values, being on the device meta"),
        (lambda x: x.to_sparse(), r"query has the layout torch\.sparse_coo: pass query\.to_dense"),
    ],
)
def test_wrong_tensors(make, message):
    x = normal(4, 8)
    with pytest.raises(TypeError, match=message):
        SDPA(make(x), x, x)


def test_references():
    x, mask = normal(2, 4, 8), torch.ones(4, 4, dtype=torch.bool)
    before = sys.getrefcount(x), sys.getrefcount(mask)
    for _ in range(50):
        SDPA(x, x, x, mask)
    assert (sys.getrefcount(x), sys.getrefcount(mask)) == before
    storage = weakref.ref(x.untyped_storage())
    result = weakref.ref(SDPA(x, x, x))
    del x
    gc.collect()
    assert result() is None
    assert storage() is None


def test_tensors_that_only_the_call_holds():
    """A mapping that makes its tensors as they are read, and parts from a generator."""

    class Lazy:
        def __init__(self, state):
            self._state = state

        def items(self):
            return ((name, x.clone()) for name, x in self._state.items())

    shapes = {"weight": (64, 64), "bias": (64,)}
    state = {f"linear{i}.{name}": normal(*shape, seed=i) for i in (1, 2) for name, shape in shapes.items()}
    layer = headlane.FeedForward(Lazy(state))
    for name, x in layer.state_dict().items():
        np.testing.assert_array_equal(x, state[name].numpy())
    parts = [SDPA(normal(64, 8, seed=seed), *[normal(9, 8)] * 2, return_lse=True) for seed in range(4)]
    copies = (tuple(x.clone() for x in part) for part in parts)
    torch.testing.assert_close(headlane.merge(copies), headlane.merge(parts), rtol=0, atol=0)


@pytest.mark.parametrize("enable_gqa", [False, True])
def test_compiled(enable_gqa):
    """The operator stays in the graph: fullgraph fails where it would break."""
    q, k, v = (
        normal(2, 4, 5, 8),
        normal(2, 2 if enable_gqa else 4, 6, 8),
        normal(2, 2 if enable_gqa else 1, 6, 3),
    )
    mask = normal(5, 6) > 0
    arguments = (q, k, v, mask, False, 0.5, enable_gqa)
    function = torch.ops.headlane.scaled_dot_product_attention
    compiled = torch.compile(lambda *a: function(*a) * 2, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments), function(*arguments) * 2, rtol=0, atol=0)
    torch.library.opcheck(function, arguments, test_utils=("test_schema", "test_faketensor"))


def test_operator_options():
    """Every option of the operator is that of the function."""
    q, k = normal(3, 4, 5, 8), normal(3, 4, 9, 8, seed=1)
    options = {
        "is_causal": True,
        "softcap": 2.0,
        "key_lengths": torch.tensor([9, 4, 7]),
        "query_lengths": torch.tensor([5, 4, 2]),
        "alibi_slopes": normal(4),
        "sinks": normal(4, seed=2),
        "mask_bits": torch.randint(256, (5, 2), dtype=torch.uint8),
        "relative_bias": normal(4, 8, seed=3),
        "relative_max_distance": 5,
        "relative_bidirectional": False,
    }
    offsets = torch.tensor([4, 0, 2])
    of_operator = {**options, "causal_offsets": offsets, "window_left": 3, "window_right": 1}
    operator = torch.ops.headlane.scaled_dot_product_attention
    expected = SDPA(q, k, k, **options, causal_offset=offsets, window=(3, 1))
    torch.testing.assert_close(operator(q, k, k, **of_operator), expected, rtol=0, atol=0)
    compiled = torch.compile(lambda: operator(q, k, k, **of_operator), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(), expected, rtol=0, atol=0)
    torch.library.opcheck(operator, (q, k, k), of_operator, test_utils=("test_schema", "test_faketensor"))
    starts = {"query_starts": torch.tensor([0, 2, 5]), "key_starts": torch.tensor([0, 9, 9])}
    variable = operator(q[0], k[0], k[0], **starts)
    torch.testing.assert_close(variable, SDPA(q[0], k[0], k[0], **starts), rtol=0, atol=0)


# The error of a row is that of its few largest weights. Norms over fewer rows than these would
# compare luck: of 800 random cases with as few as two, the largest ratio is 2.5.
ROWS = 128


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.integers(1, 4),
    rows=st.integers(1, 70),
    keys=st.sampled_from([1, 3, 17, 64, 200, 600]),
    dim=st.sampled_from([8, 32, 64, 100]),
    kind=st.sampled_from(["none", "bool", "float", "causal"]),
)
def _accuracy(ratios, seed, heads, rows, keys, dim, kind):
    batch = max(2, -(-ROWS // (heads * rows)))
    q, k, v = (normal(batch, heads, n, dim, seed=seed + i) for i, n in enumerate((rows, keys, keys)))
    mask = normal(rows, keys, seed=seed + 3) if kind in ("bool", "float") else None
    if kind == "bool":
        mask = mask > 0  # a row without visible keys is 0, in PyTorch too
    wide = mask.double() if kind == "float" else mask
    exact = REFERENCE(q.double(), k.double(), v.double(), wide, is_causal=kind == "causal")
    ours, theirs = (
        torch.linalg.vector_norm(f(q, k, v, mask, is_causal=kind == "causal").double() - exact).item()
        for f in (SDPA, REFERENCE)
    )
    # The floor: half the error of a correctly rounded result. With one visible key both are exact.
    floor = 0.25 * torch.finfo(torch.float32).eps * torch.linalg.vector_norm(exact).item()
    floor = max(floor, sys.float_info.min)  # a mask that hides everything
    assert ours <= 2 * max(theirs, floor)
    ratios.append(max(ours, floor) / max(theirs, floor))


def test_at_most_twice_the_error_of_pytorch(report):
    ratios = []
    _accuracy(ratios)
    mean = np.exp(np.mean(np.log(ratios)))
    report(
        f"attention's error / PyTorch's: {mean:.3f} in the geometric mean, {max(ratios):.2f} at most, "
        f"{len(ratios)} cases"
    )
