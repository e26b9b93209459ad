"""The state that linear_attention and causal_convolution read and write; arrays of 16 bits; errors."""

import threading
from concurrent.futures import ThreadPoolExecutor

import headlane
import numpy as np
import pytest
from exporter import Exporter
from half import HALVES, KINDS, TENSORS, assert_rounded_once, bits, mapped, wide, widened
from sequences import RNG, normal

Q, K, V = normal(2, 2, 70, 16), normal(2, 2, 70, 16), normal(2, 4, 70, 40)
OF_TOKENS = {"log_decay": -abs(normal(2, 4, 70)), "beta": RNG.random((2, 4, 70), np.float32)}
GATES = {"a_log": normal(4), "dt_bias": normal(4)}
PLAIN = {"log_decay": None, "beta": None, "a_log": None, "dt_bias": None}
ROWS = -abs(normal(2, 4, 70, 16))
X = normal(2, 70, 33)
# name: (function, arguments, state)
CALLS = {
    "linear_attention": (
        lambda **o: headlane.linear_attention(normalize=True, sigmoid_beta=True, beta_scale=1.5, **o),
        {"q": Q, "k": K, "v": V, **OF_TOKENS, **GATES},
        normal(2, 4, 16, 40),
    ),
    "causal_convolution": (
        lambda **o: headlane.causal_convolution(activation="silu", **o),
        {"x": X, "weight": normal(33, 4), "bias": normal(33)},
        normal(2, 33, 3),
    ),
}
each_call = pytest.mark.parametrize("name", CALLS)


def after(name, arguments=None):
    """(result, state) of the call with a copy of the state."""
    function, own, before = CALLS[name]
    state = before.copy()
    return function(**(arguments or own), state=state), state


@each_call
def test_the_state_is_written_in_place(name):
    function, arguments, before = CALLS[name]
    out, expected = after(name)
    state, target = before.copy(), np.empty_like(out)
    pool = np.full((3, *before.shape), 77, np.float32)  # the states of more sequences
    pool[1] = before
    assert function(**arguments, state=state, out=target) is target
    function(**arguments, state=pool[1])
    assert target.tobytes() == out.tobytes()
    assert state.tobytes() == pool[1].tobytes() == expected.tobytes()
    assert (pool[::2] == 77).all()
    assert (state != before).all()
    swapped = np.ascontiguousarray(before.swapaxes(-1, -2)).swapaxes(-1, -2)
    function(**arguments, state=swapped)
    np.testing.assert_array_equal(swapped, expected)
    exported = before.copy()
    function(**arguments, state=Exporter(exported))
    np.testing.assert_array_equal(exported, expected)


@each_call
def test_states_of_pytorch(name):
    torch = pytest.importorskip("torch")
    function, arguments, before = CALLS[name]
    out, expected = after(name)
    state = torch.from_numpy(before.copy())
    version = state._version
    function(**arguments, state=state)
    assert state._version > version
    np.testing.assert_array_equal(state, expected)
    with torch.inference_mode():
        state = torch.from_numpy(before.copy())
        result = function(**{key: torch.from_numpy(x) for key, x in arguments.items()}, state=state)
    np.testing.assert_array_equal(result, out)
    np.testing.assert_array_equal(state, expected)
    for wrong, message in (
        (torch.from_numpy(before.copy()).requires_grad_(), f"{name}: state requires a gradient"),
        (torch.zeros(before.shape, device="meta"), f"{name}: state has no values"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=message):
            function(**arguments, state=wrong)


@each_call
@pytest.mark.parametrize("empty", ["length", "batch"])
def test_without_tokens(name, empty):
    function, arguments, before = CALLS[name]
    axis = -2 if empty == "length" else 0
    if name == "causal_convolution":
        arguments = {**arguments, "x": np.take(X, [], axis)}
    else:
        of_tokens = {key: x for key, x in arguments.items() if x.ndim > 1}
        arguments = {**GATES, **{key: np.take(x, [], 2 if axis else 0) for key, x in of_tokens.items()}}
    state = before[: None if axis else 0].copy()
    y = function(**arguments, state=state)
    assert y.size == 0
    np.testing.assert_array_equal(state, before[: None if axis else 0])


@each_call
@pytest.mark.parametrize("kind", {**KINDS, **TENSORS})
def test_arguments_of_16_bits(name, kind):
    """All of them, or the first: the result is rounded once, a state of float32 is that of float32."""
    function, arguments, before = CALLS[name]
    make = {**KINDS, **TENSORS}[kind]
    first = next(iter(arguments))
    for given in (mapped(make, arguments), {**arguments, first: make(arguments[first])}):
        out, expected = after(name, widened(given))
        state = before.copy()
        assert_rounded_once(function(**given, state=state), out, kind)
        np.testing.assert_array_equal(state, expected)


@each_call
@pytest.mark.parametrize("kind", HALVES)
def test_states_of_16_bits(name, kind):
    """Read exactly, and rounded when they are written."""
    function, arguments, before = CALLS[name]
    state = HALVES[kind](before)
    exact = wide(state).copy()
    out = function(**arguments, state=exact)
    np.testing.assert_array_equal(function(**arguments, state=state), out)
    assert_rounded_once(state, exact, kind)


@each_call
@pytest.mark.parametrize("kind", KINDS)
def test_states_that_overlap(name, kind):
    function, arguments, before = CALLS[name]
    out = after(name)[0]
    memory = np.zeros(out.size + before.size, KINDS[kind](before).dtype)
    state = memory[: before.size].reshape(before.shape)
    target = memory[before.size - 1 : -1].reshape(out.shape)
    for given in (arguments, mapped(KINDS[kind], arguments)):
        with pytest.raises(ValueError, match=rf"^{name}: (out|state) of shape .* overlaps (out|state)"):
            function(**given, state=state, out=target)
    assert (memory == 0).all()
    function(**arguments, state=state, out=memory[before.size :].reshape(out.shape))
    one = np.broadcast_to(memory[:1], before.shape)
    one.flags.writeable = True
    with pytest.raises(ValueError, match=rf"^{name}: state of shape .* overlaps itself"):
        function(**arguments, state=one)


@each_call
def test_a_state_that_is_an_input(name):
    function, arguments, before = CALLS[name]
    for parameter, x in arguments.items():
        if x.size < before.size:
            continue
        saved, state = x.copy(), x.reshape(-1)[: before.size].reshape(before.shape)
        with pytest.raises(ValueError, match=rf"^{name}: state of shape .* overlaps {parameter} "):
            function(**arguments, state=state)
        np.testing.assert_array_equal(x, saved)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@each_call
def test_states_that_cannot_be_written(name):
    function, arguments, before = CALLS[name]
    state = before.copy()
    state.flags.writeable = False
    with pytest.raises(ValueError, match=f"^{name}: state is read-only"):
        function(**arguments, state=state)
    with pytest.raises(TypeError, match=f"^{name}: state has type ndarray, dtype float64; wanted: float32"):
        function(**arguments, state=before.astype(np.float64))
    with pytest.raises(TypeError, match=f"^{name}: state has type str; wanted: an array"):
        function(**arguments, state="0")
    for shape in (before.shape[1:], (1, *before.shape)):
        with pytest.raises(ValueError, match=rf"^{name}: state has shape .*, wanted \[batch, "):
            function(**arguments, state=np.zeros(shape, np.float32))


def refuses(function, message, **arguments):
    """ValueError with this message; out and state are not written."""
    shape = arguments.pop("shape")
    arguments.setdefault("state", np.full(shape[0], 5, np.float32))
    arguments.setdefault("out", np.full(shape[1], 6, np.float32))
    before = [arguments[name].copy() for name in ("state", "out")]
    with pytest.raises(ValueError, match=rf"^{function.__name__}: {message}"):
        function(**arguments)
    for name, x in zip(("state", "out"), before):
        np.testing.assert_array_equal(arguments[name], x)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": Q[0, 0, 0]}, r"q has shape \[16\], wanted \[batch, heads, length, dim\]"),
        ({"q": Q[None]}, r"q has shape \[1, 2, 2, 70, 16\], wanted"),
        ({"k": K[0]}, r"k has shape \[2, 70, 16\], q \[2, 2, 70, 16\]: not as many axes"),
        ({"v": V[[0, 1, 1]]}, r"axis 0 of v of shape \[3, 4, 70, 40\] does not broadcast: it has 3"),
        ({"k": K[:, :1]}, "k has 1 heads, q has 2"),
        ({"k": K[:, :, 1:]}, r"k has 69 .*, q has 70"),
        ({"k": K[..., 1:]}, r"k has 15 elements a head .*, q has 16"),
        ({"v": V[:, :, 1:], **PLAIN, "out": V[:, :, 1:] * 1}, "v has 69 tokens, q has 70"),
        ({"v": V[:, :3], **PLAIN, "out": V[:, :3] * 1}, "v has 3 heads, k has 2, which"),
        ({"q": Q[..., :0], "k": K[..., :0]}, "q has key_dim 0, it must be 1 to 512"),
        ({"log_decay": normal(3, 70)}, r"log_decay of shape \[3, 70\] does not broadcast to the tokens, \[2"),
        ({"log_decay": normal(2, 4, 70, 15)}, r"log_decay of shape .* to the tokens, \[2, 4, 70, 16\]"),
        ({"log_decay": normal(1, 2, 4, 70, 16)}, r"log_decay of shape .* to the tokens, \[2, 4, 70, 16\]"),
        ({"beta": normal(2, 4, 70, 1)}, r"beta of shape .* does not broadcast to the tokens, \[2, 4, 70\]"),
        ({"log_decay": None}, "a_log is given without log_decay"),
        ({"log_decay": None, "a_log": None}, "dt_bias is given without a_log"),
        ({"a_log": None}, "dt_bias is given without a_log"),
        ({"beta": None, "sigmoid_beta": True}, "sigmoid_beta is given without beta"),
        ({"a_log": None, "dt_bias": None, "discretize": True}, "discretize is given without a_log"),
        ({"log_decay": ROWS, "discretize": True}, "discretize is given with a log_decay of rank 4, it must be 3"),
        ({"min_step": 0.1}, "min_step or max_step is given without discretize"),
        ({"discretize": True, "min_step": 2, "max_step": 1.5}, "min_step is 2.*, max_step 1.5"),
        ({"skip": normal(3)}, r"skip of shape \[3\] does not broadcast to the heads, \[4\]"),
        ({"a_log": normal(3)}, r"a_log of shape \[3\] does not broadcast to the heads, \[4\]"),
        ({"a_log": normal(1, 4)}, r"a_log of shape \[1, 4\] does not broadcast to the heads, \[4\]"),
        ({"dt_bias": normal(16)}, r"dt_bias of shape \[16\] does not broadcast to the heads, \[4\]"),
        ({"dt_bias": normal(4, 16)}, "dt_bias has rank 2, it may be 1"),
        ({"log_decay": ROWS, "dt_bias": normal(4, 15)}, r"dt_bias of shape \[4, 15\] .* heads, \[4, 16\]"),
        ({"log_decay": ROWS, "dt_bias": normal(2, 16)}, r"dt_bias of shape \[2, 16\] .* heads, \[4, 16\]"),
        ({"dt_bias": normal(1, 4, 16)}, r"dt_bias of shape \[1, 4, 16\] .* the heads, \[4, 16\]"),
        ({"beta_scale": 1e39}, r"beta_scale is 1e\+39, which is beyond float32"),
        ({"state": np.zeros((2, 4, 15, 40), np.float32)}, "state has 15 rows, k has 16"),
        ({"state": np.zeros((2, 2, 16, 40), np.float32)}, "state has 2 heads, v has 4"),
        ({"out": V[..., 1:] * 1}, r"out has shape \[2, 4, 70, 39\], the result \[2, 4, 70, 40\]"),
        ({"out": V}, r"out of shape .* overlaps v"),
        ({"normalize": True, "eps": -1.0}, "eps is -1"),
        ({"scale": 1e39}, r"scale is 1e\+39, which is beyond float32"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_linear_attention_refuses(changed, message):
    arguments = {**CALLS["linear_attention"][1], **changed}
    refuses(headlane.linear_attention, message, shape=((2, 4, 16, 40), V.shape), **arguments)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": X[0, 0]}, r"x has shape \[33\], wanted \[batch, length, channels\] or \[length, channels\]"),
        ({"x": X[None]}, r"x has shape \[1, 2, 70, 33\], wanted"),
        ({"weight": normal(33)}, r"weight has shape \[33\], wanted \[channels, width\]"),
        ({"weight": normal(32, 4)}, "weight has 32 channels, x has 33"),
        ({"weight": normal(33, 65)}, "weight has width 65, it must be 1 to 64"),
        ({"weight": normal(33, 3)}, "state has 3 tokens, wanted 2 .*weight has width 3"),
        ({"bias": normal(33, 1)}, r"bias has shape \[33, 1\], wanted \[channels\]"),
        ({"bias": normal(32)}, "bias has 32 channels, x has 33"),
        ({"activation": "swish"}, "activation is 'swish'; there are relu, gelu"),
        ({"state": np.zeros((2, 32, 3), np.float32)}, "state has 32 channels, x has 33"),
        ({"state": np.zeros((1, 33, 3), np.float32)}, "state has 1 batch elements, x has 2"),
        ({"out": X[..., 1:] * 1}, r"out has shape \[2, 70, 32\], the result \[2, 70, 33\]"),
        ({"out": X}, r"(y|out) of shape .* overlaps x"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_causal_convolution_refuses(changed, message):
    arguments = {**CALLS["causal_convolution"][1], **changed}
    refuses(headlane.causal_convolution, message, shape=((2, 33, 3), X.shape), **arguments)


@each_call
def test_each_thread_has_its_own_state(name):
    """Python's threads call at once, with any number of threads each."""
    function, arguments, before = CALLS[name]
    out, expected = after(name)
    start = threading.Barrier(4)

    def work(number):
        start.wait()
        states = [before.copy() for _ in range(5)]
        results = [function(**arguments, state=state, num_threads=number) for state in states]
        return {bits(x).tobytes() for x in results}, {bits(x).tobytes() for x in states}

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, range(4)):
            assert results == ({bits(out).tobytes()}, {bits(expected).tobytes()})
