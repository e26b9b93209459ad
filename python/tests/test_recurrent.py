"""linear_attention and causal_convolution: against float64 and PyTorch; layouts; in several calls."""

import headlane
import layouts
import numpy as np
import pytest
import reference
from half import bits
from hypothesis import given
from hypothesis import strategies as st

RNG = np.random.default_rng(0)
LENGTHS = [1, 2, 15, 64, 65, 150]


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


def same_bits(a, b):
    np.testing.assert_array_equal(bits(a), bits(b))


# linear_attention


def inputs(length, key_heads=2, heads=4, key_dim=16, value_dim=24, batch=2):
    """q, k, v, and log_decay and beta of each token."""
    q, k = normal(batch, key_heads, length, key_dim), normal(batch, key_heads, length, key_dim)
    v = normal(batch, heads, length, value_dim)
    return q, k, v, -RNG.random(v.shape[:3], np.float32), RNG.random(v.shape[:3], np.float32)


def attended(q, k, v, log_decay=None, beta=None, *, state=None, scale=None, normalize=False, eps=1e-6):
    """(out, state) by the formula, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    if normalize:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + eps) for x in (q, k))
    batch, heads, length, value_dim = v.shape
    q, k = (x.repeat(heads // x.shape[1], 1) for x in (q, k))
    dim = q.shape[3]
    decay = np.zeros(k.shape) if log_decay is None else np.float64(log_decay)
    decay = np.broadcast_to(decay if decay.ndim == 4 else decay[..., None], k.shape)
    s = np.zeros((batch, heads, dim, value_dim)) if state is None else state.astype(np.float64)
    out = np.empty(v.shape)
    for t in range(length):
        s = s * np.exp(decay[:, :, t, :, None])
        u = v[:, :, t]
        if beta is not None:
            u = beta[:, :, t, None] * (u - np.einsum("bhij,bhi->bhj", s, k[:, :, t]))
        s = s + k[:, :, t, :, None] * u[:, :, None]
        out[:, :, t] = np.einsum("bhij,bhi->bhj", s, q[:, :, t]) * (dim**-0.5 if scale is None else scale)
    return out, s


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decays", ["none", "token", "row"])
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_linear_attention(key_heads, delta, decays, length):
    q, k, v, decay, beta = inputs(length, key_heads)
    if decays == "row":
        decay = -RNG.random((*v.shape[:3], 16), np.float32)
    given_decay, given_beta = None if decays == "none" else decay, beta if delta else None
    before = normal(2, 4, 16, 24)
    for options in (
        {"normalize": True},
        {"normalize": True, "eps": 0.5, "scale": 0.7, "state": before},
        {"scale": 1.0, "normalize": not delta, "state": before if delta else None},
    ):
        if delta and not options["normalize"]:
            k = k / np.linalg.norm(k, axis=-1, keepdims=True)
        state = None if options.get("state") is None else options["state"].copy()
        out = headlane.linear_attention(q, k, v, given_decay, given_beta, **{**options, "state": state})
        exact, after = attended(q, k, v, given_decay, given_beta, **options)
        assert (out.shape, out.dtype) == (v.shape, np.float32)
        assert abs(out - exact).max() < 4e-6 * abs(exact).max()
        if state is not None:
            assert abs(state - after).max() < 4e-6 * abs(after).max()


def test_eps_and_scale_by_default():
    q, k, v, decay, beta = inputs(9)
    whole = headlane.linear_attention(q, k, v, decay, beta, normalize=True)
    options = {"normalize": True, "eps": 1e-6, "scale": 0.25, "state": None, "num_threads": None}
    same_bits(headlane.linear_attention(q, k, v, log_decay=decay, beta=beta, **options), whole)
    zero = np.zeros((2, 4, 16, 24), np.float32)
    same_bits(headlane.linear_attention(q, k, v, decay, beta, normalize=True, state=zero), whole)


@pytest.mark.parametrize("cuts", [range(151), (0, 1, 65, 66, 150), (0, 64, 128, 150)], ids=str)
@pytest.mark.parametrize("delta", [False, True])
def test_linear_attention_in_several_calls(delta, cuts):
    """Token by token, and in other pieces: the bits of one call."""
    q, k, v, decay, beta = inputs(150)
    first = normal(2, 4, 16, 24)
    last = first.copy()

    def attend(part, state):
        here = [x[:, :, part] for x in (q, k, v, decay, beta)]
        return headlane.linear_attention(*here[: 5 if delta else 4], state=state, normalize=True)

    whole = attend(slice(None), last)
    pieces = [attend(slice(*pair), first) for pair in zip(cuts, cuts[1:])]
    same_bits(np.concatenate(pieces, 2), whole)
    same_bits(first, last)


@given(data=st.data())
def test_layouts_of_linear_attention(data):
    """The bits of dense arrays, whatever the strides; axes of 1 and missing ones broadcast."""
    batch, key_heads, group, length = (data.draw(st.integers(1, 3)) for _ in range(4))
    length *= data.draw(st.sampled_from([1, 23]))
    dim, value_dim = data.draw(st.sampled_from([1, 8, 17])), data.draw(st.sampled_from([1, 32, 37]))
    heads = key_heads * group
    keys, values = (batch, key_heads, length, dim), (batch, heads, length, value_dim)
    q, k, v = (data.draw(layouts.shuffled(shape)) for shape in (keys, keys, values))
    last = data.draw(st.sampled_from([(), (dim,)]))
    decay = -abs(data.draw(layouts.shuffled((batch, heads, length, *last))))
    beta = abs(data.draw(layouts.shuffled((batch, heads, length))))
    states = (batch, heads, dim, value_dim)
    state = layouts.arranged(normal(*states), data.draw(st.sampled_from(layouts.OUTPUT_LAYOUTS)))
    dense = np.array(state, order="C")
    out = data.draw(layouts.outputs(values))
    options = {"normalize": data.draw(st.booleans())}
    result = headlane.linear_attention(q, k, v, decay, beta, state=state, out=out, **options)
    assert out is None or result is out
    copies = [np.array(x, order="C") for x in (q, k, v, decay, beta)]
    same_bits(result, headlane.linear_attention(*copies, state=dense, **options))
    same_bits(state, dense)


def test_broadcasting():
    q, k, v, _, _ = inputs(7)
    decay, beta = -RNG.random(4, np.float32), RNG.random(7, np.float32)
    by_row = -RNG.random((4, 1, 16), np.float32)
    for narrow in (decay[:, None], decay[0], by_row[None], by_row[None, :1, :, :1]):
        size = (2, 4, 7, 16)[: 4 if narrow.ndim == 4 else 3]
        wide_decay, wide_beta = np.broadcast_to(narrow, size).copy(), np.broadcast_to(beta, (2, 4, 7)).copy()
        expected = headlane.linear_attention(q, k, v, wide_decay, wide_beta)
        same_bits(headlane.linear_attention(q, k, v, narrow, beta), expected)
    same_bits(
        headlane.linear_attention(q[:1], k, v[:1]),
        headlane.linear_attention(q[[0, 0]], k, v[[0, 0]]),
    )
    shared = np.broadcast_to(decay[:1, None, None], (2, 4, 7))
    same_bits(headlane.linear_attention(q, k, v, shared), headlane.linear_attention(q, k, v, shared.copy()))


def test_fewer_axes():
    q, k, v, decay, beta = (x[0] for x in inputs(9))
    rows = -RNG.random((4, 9, 16), np.float32)
    for given_decay in (decay, rows):
        one, batched = (np.zeros(shape, np.float32) for shape in ((4, 16, 24), (1, 4, 16, 24)))
        out = headlane.linear_attention(q, k, v, given_decay, beta, state=one)
        arrays = (x[None] for x in (q, k, v, given_decay, beta))
        same_bits(out, headlane.linear_attention(*arrays, state=batched)[0])
        same_bits(one, batched[0])
        head = np.zeros((16, 24), np.float32)
        out_of_head = headlane.linear_attention(q[1], k[1], v[3], given_decay[3], beta[3], state=head)
        same_bits(out_of_head, out[3])
        same_bits(head, one[3])


# causal_convolution


def convolved(x, weight, bias=None, activation=None, state=None):
    """(y, state) by the formula, in float64; x [batch, length, channels]."""
    channels, width = weight.shape
    shape = (x.shape[0], width - 1, channels)
    before = np.zeros(shape) if state is None else state.swapaxes(1, 2).astype(np.float64)
    rows = np.concatenate([before, x.astype(np.float64)], 1)
    y = sum(rows[:, j : j + x.shape[1]] * weight[:, j].astype(np.float64) for j in range(width))
    y = y if bias is None else y + bias
    y = y if activation is None else reference.ACTIVATIONS[activation].exact(y)
    return y, rows[:, x.shape[1] :].swapaxes(1, 2)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("width", [1, 2, 4, 64])
@pytest.mark.parametrize("activation", [None, *reference.ACTIVATIONS])
def test_causal_convolution(activation, width, length):
    for channels in (1, 19, 300):
        x, weight, bias = normal(2, length, channels), normal(channels, width) / width, normal(channels)
        first = normal(2, channels, width - 1)
        for given_bias, before in ((bias, None), (None, first), (bias, first)):
            state = None if before is None else before.copy()
            y = headlane.causal_convolution(x, weight, given_bias, activation=activation, state=state)
            exact, after = convolved(x, weight, given_bias, activation, before)
            assert (y.shape, y.dtype) == (x.shape, np.float32)
            assert abs(y - exact).max() < 4e-6
            if state is not None:
                np.testing.assert_array_equal(state, after)


def test_conv1d_of_pytorch():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Conv1d(40, 40, 4, groups=40, padding=3)
    x = torch.from_numpy(normal(3, 20, 40))
    with torch.no_grad():
        expected = torch.nn.functional.silu(layer(x.mT)[..., :20]).mT
        y = headlane.causal_convolution(x, layer.weight[:, 0], layer.bias, activation="silu")
    assert isinstance(y, torch.Tensor)
    assert (y - expected).abs().max() < 2e-6


@pytest.mark.parametrize("cuts", [range(151), (0, 1, 65, 66, 150), (0, 64, 128, 150)], ids=str)
@pytest.mark.parametrize("width", [1, 4, 7])
def test_causal_convolution_in_several_calls(width, cuts):
    """Token by token, and in other pieces, some shorter than the state: the bits of one call."""
    x, weight, bias, first = normal(2, 150, 33), normal(33, width), normal(33), normal(2, 33, width - 1)
    last = first.copy()
    whole = headlane.causal_convolution(x, weight, bias, activation="gelu", state=last)
    pieces = [
        headlane.causal_convolution(x[:, begin:end], weight, bias, activation="gelu", state=first)
        for begin, end in zip(cuts, cuts[1:])
    ]
    same_bits(np.concatenate(pieces, 1), whole)
    same_bits(first, last)


@given(data=st.data())
def test_layouts_of_causal_convolution(data):
    batch, length = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 3, 70]))
    channels, width = data.draw(st.sampled_from([1, 16, 37, 260])), data.draw(st.integers(1, 5))
    x, weight = (
        data.draw(layouts.shuffled((batch, length, channels))),
        data.draw(layouts.shuffled((channels, width))),
    )
    bias = data.draw(layouts.shuffled((channels,)))
    layout = data.draw(st.sampled_from(layouts.OUTPUT_LAYOUTS))
    state = layouts.arranged(normal(batch, channels, width - 1), layout)
    dense = np.array(state, order="C")
    out = data.draw(layouts.outputs(x.shape))
    result = headlane.causal_convolution(x, weight, bias, activation="silu", state=state, out=out)
    assert out is None or result is out
    copies = [np.array(array, order="C") for array in (x, weight, bias)]
    same_bits(result, headlane.causal_convolution(*copies, activation="silu", state=dense))
    same_bits(state, dense)
    one, state = x[0], np.zeros((channels, width - 1), np.float32)
    expected = np.zeros((1, channels, width - 1), np.float32)
    y = headlane.causal_convolution(one, weight, bias, state=state)
    same_bits(y, headlane.causal_convolution(one[None], weight, bias, state=expected)[0])
    same_bits(state, expected[0])
