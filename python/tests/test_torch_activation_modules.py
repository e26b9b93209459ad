"""headlane.torch: which modules are found to be activations, and that they compute what their code says."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._modules import Activation  # noqa: E402
from headlane.torch._recognise import activation_of_module  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, seeded  # noqa: E402


class Code(nn.Module):
    """A function of two linear layers and an activation."""

    def __init__(self, activation, code):
        super().__init__()
        self.first = nn.Linear(24, 24)
        self.act = activation
        self.last = nn.Linear(24, 24)
        self.code = code

    def forward(self, x):
        return self.code(self, x)


def plain(m, x):
    return m.last(m.act(m.first(x)))


def ignored(m, x):
    h = m.first(x)
    m.act(h)
    return m.last(h)


def of_input(m, x):
    return x + m.last(m.act(x))


class TimesTwo(nn.Module):
    def forward(self, x):
        return x.mul_(2)


@pytest.mark.parametrize("code", [plain, ignored, of_input])
@pytest.mark.parametrize(
    "make", [lambda: nn.ReLU(True), lambda: nn.SiLU(True), lambda: nn.LeakyReLU(0.1, True), TimesTwo]
)
@torch.no_grad()
def test_in_place(make, code):
    """What it is given is changed once in each call, the first too."""
    model = seeded(Code, make(), code)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        x, other = X.clone(), X.clone()
        close(optimized(x), model(other))
        assert x.equal(other)


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


OTHERS = {
    "bounded": lambda: nn.Hardtanh(0, 64.0),
    "bounded late": lambda: Of(lambda x: x.clamp(0, 1e20)),
    "not a number": lambda: Of(lambda x: torch.where(x > 0, x, 0.0)),
    "axes": lambda: Of(lambda x: torch.tanh(x.transpose(0, 1)).reshape(x.shape)),
    "rows": lambda: Of(lambda x: torch.relu(x.flip(1))),
    "type": lambda: Of(lambda x: torch.sigmoid(x.float())),
}


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_activations_of_some_inputs_only(name):
    model = seeded(Code, OTHERS[name](), lambda m, x: m.act(m.first(x)).cumsum(-1))
    optimized = headlane.torch.optimize(model)
    assert type(optimized.act) is type(model.act)
    for x in (X[:1, :1], X, X * 1e3, X * 1e25):
        close(optimized(x), model(x))


@pytest.mark.parametrize("kind", [nn.GELU, nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Tanh])
def test_activations_of_pytorch_are_found(kind):
    assert activation_of_module(kind()) == kind.__name__.lower()


class Swish(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = 1.0

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


ATTRIBUTES = {
    "beta": (Swish, 2.0),
    "approximate": (nn.GELU, "tanh"),
    "negative_slope": (lambda: nn.LeakyReLU(0.0), 0.3),
    "inplace": (nn.ReLU, True),
}


@pytest.mark.parametrize("code", [plain, of_input, lambda m, x: m.act(m.first(x)).cumsum(-1)])
@pytest.mark.parametrize("name", ATTRIBUTES)
@torch.no_grad()
def test_attributes_set_later(name, code):
    make, value = ATTRIBUTES[name]
    model = seeded(Code, make(), code)
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized.act, Activation)
    close(optimized(X), model(X))
    copied = copy.deepcopy(optimized)
    for each in (model, optimized, copied):
        setattr(each.act, name, value)
    for each in (optimized, copied, copy.deepcopy(optimized)):
        close(each(X.clone()), model(X.clone()))
    headlane.torch.restore(optimized)
    assert optimized(X.clone()).equal(model(X.clone()))


@torch.no_grad()
def test_activation_of_a_transformer_layer():
    model = seeded(nn.TransformerEncoderLayer, 24, 3, 40, activation=nn.GELU(), batch_first=True)
    optimized = headlane.torch.optimize(model)
    close(optimized(X), model(X))
    model.activation = nn.GELU("tanh")  # whose path does not see the attribute
    optimized.activation.approximate = "tanh"
    close(optimized(X), model(X))


class Half(nn.Module):
    def forward(self, x):
        return x / 2


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.activation.register_forward_hook(lambda module, given, result: result / 2),
        lambda m: m.dropout.register_forward_pre_hook(lambda module, given: (given[0] / 2,)),
        lambda m: setattr(m, "dropout", Half().eval()),
    ],
)
@torch.no_grad()
def test_changes_inside_a_transformer_layer(change):
    for function in (nn.GELU, nn.ReLU):
        model, optimized = (
            seeded(nn.TransformerDecoderLayer, 24, 3, 40, activation=function(), batch_first=True)
            for _ in range(2)
        )
        headlane.torch.optimize(optimized, inplace=True)  # a copy has F.relu
        for each in (model, optimized):
            change(each)
        close(optimized(X, X), model(X, X))


class Recorder(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = torch.relu(x)
        return self.last


@torch.no_grad()
def test_one_that_records_its_result():
    model = seeded(Code, Recorder(), lambda m, x: m.act(m.first(x)).cumsum(-1))
    optimized = headlane.torch.optimize(model)
    for x in (X, X + 1):
        close(optimized(x), model(x))
        close(optimized.act.last, model.act.last)
