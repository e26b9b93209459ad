"""linear_attention: against float64 and PyTorch; layouts; in several calls."""

import headlane
import layouts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sequences import LENGTHS, RNG, normal, same_bits


def inputs(length, key_heads=2, heads=4, key_dim=16, value_dim=24, batch=2):
    """q, k, v, and log_decay and beta of each token."""
    q, k = normal(batch, key_heads, length, key_dim), normal(batch, key_heads, length, key_dim)
    v = normal(batch, heads, length, value_dim)
    return q, k, v, -RNG.random(v.shape[:3], np.float32), RNG.random(v.shape[:3], np.float32)


def gated(
    log_decay,
    beta,
    a_log=None,
    dt_bias=None,
    min_step=0.0,
    max_step=np.inf,
    sigmoid_beta=False,
    beta_scale=1.0,
):
    """log_decay, beta and softplus by the formulas of their gates, in float64; 2 axes of dt_bias: of rows."""
    step = None
    if a_log is not None:
        bias = np.zeros(1) if dt_bias is None else np.float64(dt_bias)
        of_heads = (-1, *(1 for _ in range(log_decay.ndim - 2)))
        bias = bias[:, None] if bias.ndim == 2 else bias.reshape(of_heads)
        rate = np.exp(np.float64(a_log)).reshape(of_heads)
        step = np.logaddexp(0, np.float64(log_decay) + bias).clip(min_step, max_step)
        log_decay = -rate * step
    if beta is not None:
        beta = np.float64(beta)
        beta = beta_scale * (1 / (1 + np.exp(-beta)) if sigmoid_beta else beta)
    return log_decay, beta, step


def attended(
    q,
    k,
    v,
    log_decay=None,
    beta=None,
    *,
    state=None,
    scale=None,
    normalize=False,
    eps=1e-6,
    discretize=False,
    skip=None,
    **gates,
):
    """(out, state) by the formula, in float64."""
    log_decay, beta, step = gated(log_decay, beta, **gates)
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
        u = v[:, :, t] * (step[:, :, t, None] if discretize else 1)
        if beta is not None:
            u = beta[:, :, t, None] * (u - np.einsum("bhij,bhi->bhj", s, k[:, :, t]))
        s = s + k[:, :, t, :, None] * u[:, :, None]
        out[:, :, t] = np.einsum("bhij,bhi->bhj", s, q[:, :, t]) * (dim**-0.5 if scale is None else scale)
    return out if skip is None else out + np.float64(skip)[:, None, None] * v, s


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


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("bias", ["none", "heads", "rows"])
@pytest.mark.parametrize("decays", ["token", "row"])
def test_gates(decays, bias, length):
    """a_log and dt_bias, sigmoid_beta and beta_scale, each with and without the others."""
    if decays == "token" and bias == "rows":
        return
    q, k, v, _, beta = inputs(length)
    gate = 2 * normal(*v.shape[:3], *([16] if decays == "row" else []))
    dt_bias = {"none": None, "heads": normal(4), "rows": normal(4, 16)}[bias]
    of_decay = {"a_log": normal(4) - 1, "dt_bias": dt_bias}
    before = normal(2, 4, 16, 24)
    sigmoid = {"sigmoid_beta": True}
    for of_beta in ({}, sigmoid, {"beta_scale": 1.5}, {**sigmoid, "beta_scale": 2.0}):
        for options in ({**of_decay, **of_beta}, of_beta):
            given_decay = gate if "a_log" in options else -abs(gate)
            given_beta = 3 * (beta - 0.5) if "sigmoid_beta" in of_beta else beta
            state = before.copy()
            out = headlane.linear_attention(
                q, k, v, given_decay, given_beta, normalize=True, state=state, **options
            )
            exact, after = attended(q, k, v, given_decay, given_beta, normalize=True, state=before, **options)
            assert abs(out - exact).max() < 4e-6 * abs(exact).max()
            assert abs(state - after).max() < 4e-6 * abs(after).max()
    out = headlane.linear_attention(q, k, v, gate, **of_decay)
    exact, _ = attended(q, k, v, gate, **of_decay)
    assert abs(out - exact).max() < 4e-6 * abs(exact).max()
    same_bits(headlane.linear_attention(q, k, v, gate, **of_decay, sigmoid_beta=False, beta_scale=3.0), out)


@pytest.mark.parametrize("length", LENGTHS)
def test_discretize_and_skip(length):
    """As in Mamba-2, and each with other options."""
    q, k, v, _, beta = inputs(length)
    gate, before = 2 * normal(*v.shape[:3]), normal(2, 4, 16, 24)
    of_gate = {"a_log": normal(4) - 1, "dt_bias": normal(4), "discretize": True}
    for options in (
        {**of_gate, "skip": normal(4), "scale": 1.0},
        {**of_gate, "dt_bias": None},
        {**of_gate, "min_step": 0.3, "max_step": 0.9},
        {**of_gate, "beta": beta, "sigmoid_beta": True, "normalize": True},
        {"skip": normal(4)},
        {"skip": normal(4), "beta": beta, "normalize": True},
    ):
        decay, state = gate if "a_log" in options else -abs(gate), before.copy()
        out = headlane.linear_attention(q, k, v, decay, state=state, **options)
        exact, after = attended(q, k, v, decay, state=before, **options)
        assert abs(out - exact).max() < 4e-6 * abs(exact).max()
        assert abs(state - after).max() < 4e-6 * abs(after).max()
    one = headlane.linear_attention(q, k, v, gate, skip=np.float32(0.5))
    same_bits(headlane.linear_attention(q, k, v, gate, skip=np.full(4, 0.5, np.float32)), one)


def test_gates_of_pytorch():
    """As models write them, of parameters in bfloat16, too."""
    torch = pytest.importorskip("torch")
    q, k, v, _, beta = (torch.from_numpy(x) for x in inputs(20))
    gate, a_log, dt_bias = (torch.from_numpy(x) for x in (normal(2, 4, 20), normal(4), normal(4)))
    for kind in (torch.float32, torch.bfloat16):
        a_log, dt_bias = a_log.to(kind), dt_bias.to(kind)
        decay = -a_log.float().exp()[:, None] * torch.nn.functional.softplus(gate + dt_bias[:, None])
        expected = headlane.linear_attention(q, k, v, decay, beta.sigmoid() * 2, normalize=True)
        options = {"a_log": a_log, "dt_bias": dt_bias, "sigmoid_beta": True, "beta_scale": 2.0}
        out = headlane.linear_attention(q, k, v, gate, beta, normalize=True, **options)
        assert (out - expected).abs().max() < 2e-6


def test_eps_and_scale_by_default():
    q, k, v, decay, beta = inputs(9)
    whole = headlane.linear_attention(q, k, v, decay, beta, normalize=True)
    options = {"normalize": True, "eps": 1e-6, "scale": 0.25, "state": None, "num_threads": None}
    options |= {"a_log": None, "dt_bias": None, "sigmoid_beta": False, "beta_scale": 1.0}
    options |= {"discretize": False, "min_step": 0.0, "max_step": np.inf, "skip": None}
    same_bits(headlane.linear_attention(q, k, v, log_decay=decay, beta=beta, **options), whole)
    zero = np.zeros((2, 4, 16, 24), np.float32)
    same_bits(headlane.linear_attention(q, k, v, decay, beta, normalize=True, state=zero), whole)


@pytest.mark.parametrize("cuts", [range(151), (0, 1, 65, 66, 150), (0, 64, 128, 150)], ids=str)
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize(
    "gates", [{}, {"a_log": normal(4) - 1, "dt_bias": normal(4)}], ids=["plain", "gates"]
)
def test_linear_attention_in_several_calls(gates, delta, cuts):
    """Token by token, and in other pieces: the bits of one call."""
    q, k, v, decay, beta = inputs(150)
    first = normal(2, 4, 16, 24)
    last = first.copy()

    def attend(part, state):
        here = [x[:, :, part] for x in (q, k, v, decay, beta)]
        return headlane.linear_attention(*here[: 5 if delta else 4], state=state, normalize=True, **gates)

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
    gates = {}
    if data.draw(st.booleans()):
        biases = data.draw(st.sampled_from([(heads,), (heads, *last)]))
        gates = {
            "a_log": data.draw(layouts.shuffled((heads,))),
            "dt_bias": data.draw(layouts.shuffled(biases)),
        }
        options |= {"sigmoid_beta": data.draw(st.booleans()), "beta_scale": 0.75}
    result = headlane.linear_attention(q, k, v, decay, beta, state=state, out=out, **gates, **options)
    assert out is None or result is out
    copies = [np.array(x, order="C") for x in (q, k, v, decay, beta)]
    options |= {name: np.array(x, order="C") for name, x in gates.items()}
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
    rows = -RNG.random((2, 4, 7, 16), np.float32)
    for a_log, dt_bias in (
        (normal(1), normal(1)),
        (np.array(normal(1)[0]), np.array(normal(1)[0])),
        (normal(4), normal(4, 1)),
        (normal(1), normal(1, 16)),
    ):
        wide = {"a_log": np.broadcast_to(a_log, 4).copy()}
        size = (4, 16) if dt_bias.ndim == 2 else 4
        wide["dt_bias"] = np.broadcast_to(dt_bias, size).copy()
        out = headlane.linear_attention(q, k, v, rows, a_log=a_log, dt_bias=dt_bias)
        same_bits(out, headlane.linear_attention(q, k, v, rows, **wide))


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


def test_gates_of_fewer_axes():
    """Without heads a_log and dt_bias have no such axis; an axis of 1 is also taken."""
    q, k, v, decay, beta = (x[0] for x in inputs(9))
    rows, a_log, dt_bias = -RNG.random((4, 9, 16), np.float32), normal(4), normal(4)
    row_bias = normal(4, 16)
    for given_decay, bias in ((decay, dt_bias), (rows, dt_bias), (rows, row_bias)):
        out = headlane.linear_attention(q, k, v, given_decay, beta, a_log=a_log, dt_bias=bias)
        batched = (x[None] for x in (q, k, v, given_decay, beta))
        same_bits(headlane.linear_attention(*batched, a_log=a_log, dt_bias=bias)[0], out)
        head = [q[1], k[1], v[3], given_decay[3], beta[3]]
        for rate in (np.array(a_log[3]), a_log[3:]):
            same_bits(headlane.linear_attention(*head, a_log=rate, dt_bias=np.array(bias[3])), out[3])
        if bias is dt_bias:
            same_bits(headlane.linear_attention(*head, a_log=a_log[3:], dt_bias=bias[3:]), out[3])
