"""headlane.torch: which modules are found to be norms, and that they compute what their code says."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules, _norms  # noqa: E402
from headlane.torch._recognise import norm_of  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import NormWithoutWeight, RmsNorm, RmsNormWithoutWeight, X, close, normal, seeded  # noqa: E402


class NormOf(nn.Module):
    """A norm by any function of x, weight and bias."""

    def __init__(self, function, bias=True):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(24))
        self.bias = nn.Parameter(torch.zeros(24)) if bias else None

    def forward(self, x):
        return self.function(x, self.weight, self.bias)


def layer_norm(x, weight, bias=None, eps=1e-5):
    return nn.functional.layer_norm(x, (24,), weight, bias, eps)


@pytest.mark.parametrize(
    ("norm", "found"),
    [
        (NormOf(lambda x, w, b: layer_norm(x, w, b, 0.0)), True),
        (NormOf(lambda x, w, b: layer_norm(x, w, b, 3e-5)), False),  # which no attribute says
        (NormOf(lambda x, w, b: layer_norm(x, w, -b, 0.0)), False),
        (NormOf(lambda x, w, b: layer_norm(x, b, w, 0.0)), False),
        (NormOf(lambda x, w, b: nn.functional.rms_norm(x, (24,), w, 0.0) + b), False),
        (NormOf(lambda x, w, b: (x - x.mean(-1, True)) / x.std(-1, keepdim=True) * w, bias=False), False),
        (NormOf(lambda x, w, b: layer_norm(x - 0.01, w, None, 0.0) + 1e-3, bias=False), False),
        (NormOf(lambda x, w, b: layer_norm(x, w, None, 0.0), bias=False), True),
    ],
)
def test_norms_are_recognised_by_what_they_compute(norm, found):
    state = norm_of(norm)
    assert (state is not None) == found
    assert state is None or (state.centred, state.eps, state.offset) == (True, 0.0, 0.0)


class NormWithoutParameters(nn.Module):
    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        self.__dict__.update(attributes)

    def forward(self, x):
        return self.function(x)


def rms_norm(x, eps=1e-6):
    return nn.functional.rms_norm(x, x.shape[-1:], None, eps)


@pytest.mark.parametrize(
    ("norm", "found"),
    [
        (NormWithoutParameters(rms_norm, eps=1e-6), (False, 1e-6)),  # which it does not read
        (NormWithoutParameters(lambda x: layer_norm(x, None), normalized_shape=(24,)), (True, 1e-5)),
        (NormWithoutParameters(lambda x: layer_norm(x, None), normalized_shape=24), (True, 1e-5)),
        (NormWithoutParameters(lambda x: layer_norm(x, None), normalized_shape=(12, 24)), None),
        (NormWithoutParameters(lambda x: rms_norm(x.float()), eps=1e-6), None),  # in another type
        (NormWithoutParameters(lambda x: rms_norm(x) + 1e-3, eps=1e-6), None),
        (NormWithoutParameters(lambda x: rms_norm(x, 3e-5), eps=1e-6), None),
        (NormWithoutParameters(lambda x: x + 1e-6, eps=1e-6), None),
        (NormWithoutParameters(rms_norm, epoch=1), None),  # not even tried
    ],
)
def test_norms_without_parameters(norm, found):
    state = norm_of(norm)
    assert (state and (state.centred, state.eps)) == found


@torch.no_grad()
def test_norm_without_weight_of_another_width():
    for module in (
        nn.LayerNorm(24, elementwise_affine=False),
        NormWithoutWeight(24),
        nn.RMSNorm(24, elementwise_affine=False),
    ):
        optimized = headlane.torch.optimize(module.eval())
        for other in (normal(2, 12), normal(2, 48)):
            with pytest.raises((ValueError, RuntimeError)):
                optimized(other)
        for kind in (torch.float64, torch.bfloat16):
            close(optimized(X.to(kind)).float(), module(X.to(kind)).float(), torch.bfloat16)
        assert optimized(X.to("meta")).shape == X.shape  # of another device: PyTorch's
    free = headlane.torch.optimize(RmsNormWithoutWeight().eval())
    assert isinstance(free, _norms.Norm)
    for x in (X, X[..., :7]):
        close(free(x), RmsNormWithoutWeight()(x))


class Squared(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(24))
        self.eps = 1e-6
        self.kind = kind

    def forward(self, x):
        if self.kind == "of the norm":
            return x / x.norm(dim=-1, keepdim=True) * self.weight
        if self.kind == "eps outside":
            return x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3) * self.weight
        if self.kind == "squared weight":
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight.square()
        if self.kind == "centred twice":
            x = x - 2 * x.mean(-1, keepdim=True)
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
        if self.kind == "of batches":
            return x * torch.rsqrt(x.square().mean(0, keepdim=True) + self.eps) * self.weight
        if self.kind == "saturating":
            return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight).clamp(-3, 3)
        return x * self.weight


@pytest.mark.parametrize(
    "kind",
    ["of the norm", "eps outside", "squared weight", "centred twice", "of batches", "saturating", "scale"],
)
@torch.no_grad()
def test_norms_that_are_none(kind):
    model = Squared(kind).eval()
    optimized = headlane.torch.optimize(model)
    assert not isinstance(optimized, _modules.Replaced)
    torch.testing.assert_close(optimized(X), model(X), rtol=0, atol=0)


@torch.no_grad()
def test_eps_of_a_norm_is_read_in_each_call():
    model = seeded(RmsNorm, 24)
    optimized = headlane.torch.optimize(model)
    small = X * 1e-3
    model.variance_epsilon = optimized.variance_epsilon = 1e-4
    close(optimized(small), model(small))


class Of(nn.Module):
    """A norm by a function of the module and x."""

    def __init__(self, function, width=24, **attributes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.__dict__.update(attributes)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def rms(m, x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * m.weight


TINY = {
    "normalize": Of(lambda m, x: nn.functional.normalize(x, dim=-1) * m.scale * m.weight, scale=24**0.5),
    "1e-12": Of(lambda m, x: rms(m, x, 1e-12)),
    "attribute": Of(lambda m, x: rms(m, x, m.eps), dropout=0.0, eps=1e-12),
    "none": Of(lambda m, x: rms(m, x, 0.0), dropout=0.0),
    "two": Of(lambda m, x: rms(m, x, m.eps), other=1e-6, eps=1e-6),
    "once": Of(lambda m, x: rms(m, x, 1e-7), eps=1e-7),  # given to the function before
}


@pytest.mark.parametrize("name", TINY)
@torch.no_grad()
def test_rows_of_zeros_and_small_numbers(name):
    model = TINY[name].eval()
    optimized = headlane.torch.optimize(model)
    x = X.clone()
    x[0, 1], x[0, 2], x[1] = 0, x[0, 2] * 1e-13, x[1] * 1e-8
    torch.testing.assert_close(optimized(x), model(x), equal_nan=True)
    for each in (model, optimized):
        each.dropout, each.other = 0.5, 0.5
    torch.testing.assert_close(optimized(x), model(x), equal_nan=True)


def test_which_eps_is_found():
    found = {name: norm_of(norm) for name, norm in TINY.items()}
    assert {name: state and state.eps for name, state in found.items()} == {
        "normalize": None,
        "1e-12": None,
        "attribute": "eps",
        "none": 0.0,
        "two": "eps",
        "once": 1e-7,
    }


class ChannelsFirst(nn.LayerNorm):
    """Of images, whose channels are the second axis."""

    def forward(self, x):
        if x.dim() == 4:
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return super().forward(x)


def over_length(m, x):
    axes = [-1] if x.dim() == 3 else list(range(1, x.dim()))
    return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + 1e-5) * m.weight


def counted(m, x):
    m.calls += 1
    return rms(m, x, 1e-5)


BY_INPUT = {
    "channels first": lambda: ChannelsFirst(24),
    "axes": lambda: Of(over_length),
    "in place": lambda: Of(lambda m, x: x.copy_(rms(m, x, 1e-5))),
    "counted": lambda: Of(counted, calls=0),
    "not a number": lambda: Of(lambda m, x: rms(m, x.nan_to_num(0), 1e-5)),
    "other rows": lambda: Of(lambda m, x: rms(m, x, 1e-5).transpose(0, 1).reshape(x.shape)),
}


@pytest.mark.parametrize("name", BY_INPUT)
@torch.no_grad()
def test_norms_of_some_inputs_only(name):
    model = BY_INPUT[name]().eval()
    optimized = headlane.torch.optimize(model)
    assert not isinstance(optimized, _norms.Norm)
    for x in (X, normal(2, 24, 24, 24), normal(3, 24)):
        assert optimized(x.clone()).equal(model(x.clone()))
    assert vars(optimized).get("calls") == vars(model).get("calls")


@torch.no_grad()
def test_norms_of_another_type():
    """Whose code returns float32 for 16 bits: a norm where that is the model's type."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = Of(lambda m, x: rms(m, x.float(), 1e-5)).to(dtype).eval()
        optimized = headlane.torch.optimize(model)
        assert isinstance(optimized, _norms.Norm) == (dtype is torch.float32)
        result = optimized(X.to(dtype))
        assert result.dtype is torch.float32
        close(result, model(X.to(dtype)))


WIDTHS = {
    "one": lambda: Of(lambda m, x: rms(m, x, 1e-5), width=1),
    "heads": lambda: Of(lambda m, x: rms(m, x.unflatten(-1, (-1, 24)), 1e-5).flatten(-2)),
    "heads without weight": lambda: NormWithoutParameters(
        lambda x: rms_norm(x.unflatten(-1, (-1, 32))).flatten(-2), eps=1e-6
    ),
    "any": lambda: NormWithoutParameters(rms_norm, normalized_shape=(24,)),
}


@pytest.mark.parametrize("name", WIDTHS)
@torch.no_grad()
def test_norms_of_more_than_one_width(name):
    """Of the rows, and of parts of them."""
    model = WIDTHS[name]().eval()
    optimized = headlane.torch.optimize(model)
    for width in (96, 192):
        x = normal(2, 3, width)
        close(optimized(x), model(x))
