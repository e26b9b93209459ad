"""causal_convolution: against float64 and PyTorch; layouts; in several calls."""

import headlane
import layouts
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from sequences import LENGTHS, normal, same_bits


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
