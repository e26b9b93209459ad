"""headlane.torch: modules whose code is recorded, with linear attention: whether they keep its state."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from delta_cases import (  # noqa: E402
    CHANNELS,
    DIM,
    HEADS,
    KEY_HEADS,
    KINDS,
    VALUE_DIM,
    DeltaGiven,
    refused,
)
from headlane.torch import _recurrent_calls  # noqa: E402
from headlane.torch._arguments import Input  # noqa: E402
from headlane.torch._code import Code  # noqa: E402
from headlane.torch._delta import RECORDED  # noqa: E402

PARTS = (KEY_HEADS * DIM, KEY_HEADS * DIM, HEADS * VALUE_DIM)
convolution, update, rule = (RECORDED[x] for x in ("causal_conv1d_fn", "causal_conv1d_update", KINDS[0]))


def test_functions_of_transformers():
    """Values go to what is recorded, all others to the function; those that no plan has are not plain."""
    given, calls = DeltaGiven(), []

    def original(*arguments, **options):
        calls.append(("original", arguments, options))

    def recorded(*arguments, **options):
        calls.append(("recorded", arguments, options))
        return given.mixed

    function = _recurrent_calls._routed(original, original, recorded)
    for x in (given.channels, given.query, given.mixed):
        assert function(x, 1, two=2) is given.mixed
        assert calls.pop() == ("recorded", (x, 1), {"two": 2})
    tensor = torch.ones(2)
    assert function(tensor, two=2) is None
    assert calls.pop() == ("original", (tensor,), {"two": 2})
    assert function() is None
    assert calls == [("original", (), {})]
    for name in sorted(_recurrent_calls._OURS):
        is_known = name in RECORDED
        assert is_known is (name.startswith("causal_conv1d") or name in KINDS)
    refused(lambda g: _recurrent_calls._not_recorded(g.query, 1, two=2), given)


class Mixer(torch.nn.Module):
    """A layer of linear attention whose code ends in other ways."""

    def __init__(self, ends):
        super().__init__()
        self.ends = ends
        self.mixed = torch.nn.Linear(16, CHANNELS)
        self.gates = torch.nn.Linear(16, 2 * HEADS)
        self.conv = torch.nn.Conv1d(CHANNELS, CHANNELS, 4, groups=CHANNELS)
        self.a_log, self.dt_bias = (torch.nn.Parameter(torch.ones(HEADS)) for _ in range(2))

    def forward(self, x, cache):
        length = x.shape[1]
        mixed = self.mixed(x).transpose(1, 2)
        decay, beta = self.gates(x).chunk(2, dim=-1)
        weight, options = self.conv.weight.squeeze(1), {"activation": "silu"}
        if length == 1:
            state = cache.get_conv_state(0)
            mixed = update(mixed, state, weight, self.conv.bias, **options)
        else:
            mixed = cache.update_conv_state(mixed, 0, conv_kernel_size=4)
            mixed = convolution(mixed, weight, self.conv.bias, **options)[:, :, -length:]
        mixed = mixed.transpose(1, 2)
        parts = torch.split(mixed, PARTS, dim=-1)
        query, key, value = (y.view(*x.shape[:2], -1, d) for y, d in zip(parts, (DIM, DIM, VALUE_DIM)))
        g = -self.a_log.float().exp() * F.softplus(decay.float() + self.dt_bias)
        state = cache.get_recurrent_state(0)
        options = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
        made, state = rule(query, key, value, g, beta.sigmoid(), **options)
        return self.ends(cache, state, made.reshape(*x.shape[:2], -1), mixed)


def kept(cache, state, made, mixed):
    cache.update_recurrent_state(state, 0)
    return made


def kept_too_early(cache, state, made, mixed):
    cache.update_recurrent_state(cache.get_recurrent_state(0), 0)
    return made


def kept_twice(cache, state, made, mixed):
    kept(cache, state, made, mixed)
    return kept(cache, state, made, mixed)


def kept_elsewhere(cache, state, made, mixed):
    cache.update_recurrent_state(state, 1)
    return made


def read_elsewhere(cache, state, made, mixed):
    cache.get_recurrent_state(1)
    return kept(cache, state, made, mixed)


def code_of(ends, is_single):
    module = headlane.torch.optimize(Mixer(ends).eval())
    return module, Code.of(module, torch.float32, (Input(3), Input(object)), {}, is_single)


@pytest.mark.parametrize("is_single", [False, True])
def test_modules(is_single):
    """Whether there is one token is asked, and for both there is a plan; the state is kept."""
    module, code = code_of(kept, is_single)
    assert code.graph.asks_if_single
    kinds = [x.kind for x in code.graph.nodes]
    assert kinds.count("convolve") == kinds.count("linear_attention") == 1
    (state,) = code.graph.states
    assert state.is_kept
    assert state.sizes == [(CHANNELS, 4), (HEADS, DIM, VALUE_DIM)]
    there = [module.conv.weight, module.conv.bias, module.a_log, module.dt_bias]
    assert all(any(x is y for y in code.graph.vectors) for x in there)


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize(
    "ends",
    [
        lambda cache, state, made, mixed: made,  # the new state is lost
        lambda cache, state, made, mixed: state,
        kept_too_early,
        kept_twice,
        kept_elsewhere,
        read_elsewhere,
    ],
)
def test_modules_that_end_in_other_ways(ends, is_single):
    assert code_of(ends, is_single)[1] is None
