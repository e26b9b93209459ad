"""python -m headlane.torch: models whose weights the program uses are given back to it."""

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _program, _weight  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import Tied, normal, seeded  # noqa: E402

X = normal(3, 8)


@pytest.fixture
def program(monkeypatch):
    """One that has begun, until the end of the test."""
    changed = [(nn.Module, "__call__"), (nn.Module, "train"), (nn.Module, "__reduce_ex__")]
    changed += [(torch.jit, "script"), (torch.jit, "trace"), (_weight.Hook, "give_back")]
    for of, name in changed:
        monkeypatch.setattr(of, name, getattr(of, name))
    made = _program.Program(None, None)
    made.install()
    return made


def _model():
    return seeded(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)))


def _evaluated():
    model = _model()
    with torch.no_grad():
        model(X)
    return model


def _is_packed(model):
    return any(type(x) is _weight.PackedWeight for x in model.parameters())


def _step(model, optimizer):
    optimizer.zero_grad()
    model(X).square().mean().backward()
    optimizer.step()


def test_an_optimizer_of_an_evaluated_model(program):
    model = _evaluated()
    assert _is_packed(model)
    assert all(x.requires_grad for x in model.parameters())
    given = list(model.parameters())
    optimizer = torch.optim.SGD([x for x in given if x.requires_grad], 0.1)
    before = [x.detach().clone() for x in given]
    _step(model, optimizer)  # in evaluation mode
    assert all(x is y for x, y in zip(given, model.parameters()))
    assert not any(x.equal(y) for x, y in zip(given, before))
    model.train()
    _step(model, optimizer)


def test_a_part_of_an_evaluated_model(program):
    model = _evaluated()
    optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
    before = model[2].weight.detach().clone()
    model[2](X).sum().backward()
    optimizer.step()
    assert not before.equal(model[2].weight)


def test_what_is_asked_leaves_weights_packed(program):
    model = _evaluated()
    asked = [
        (x.shape, x.dtype, x.device, x.numel() * x.element_size(), x.requires_grad, hash(x))
        for x in model.parameters()
    ]
    assert len(asked) == 4
    model.to("cpu")
    model.eval()
    assert _is_packed(model)
    assert program.lines == [program.lines[0]]


def _zeros(model):
    return {name: torch.zeros(x.shape) for name, x in model.named_parameters()}


def _load_by_swaps(model):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict(_zeros(model))
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


USES = {
    "load_state_dict": lambda m: m.load_state_dict(_zeros(m)),
    "by swaps": _load_by_swaps,
    "lerp_": lambda m: [x.lerp_(y, 1.0) for x, y in zip(m.parameters(), _zeros(m).values())],
    "data": lambda m: [x.data.zero_() for x in m.parameters()],
    "numpy": lambda m: [x.detach().numpy().fill(0) for x in m.parameters()],
    "foreach": lambda m: torch._foreach_zero_(list(m.parameters())),
    "init": lambda m: [nn.init.zeros_(x) for x in m.parameters()],
    "vector": lambda m: nn.utils.vector_to_parameters(torch.zeros(108), m.parameters()),
    "state_dict": lambda m: [x.zero_() for x in m.state_dict().values()],
    "a view": lambda m: [x.view(-1).mul_(0) for x in m.parameters()],
}


@pytest.mark.parametrize("use", USES)
@torch.no_grad()
def test_changes(program, use):
    model = _evaluated()
    USES[use](model)
    assert not _is_packed(model)
    assert not model(X).any()
    assert _is_packed(model) or use == "vector"  # whose parameters are views of one


def _pickled(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


OTHER = {
    "double": lambda m: m.double()(X.double()).float(),
    "deepcopy": lambda m: copy.deepcopy(m)(X),
    "save": lambda m: _pickled(m)(X),
    "trace": lambda m: torch.jit.trace(m, X)(X),
    "script": lambda m: torch.jit.script(m)(X),
    "jacobian": lambda m: torch.func.jacfwd(m)(X).sum((2, 3)),
    "functional_call": lambda m: torch.func.jvp(
        lambda *p: torch.func.functional_call(m, dict(zip("0.weight 0.bias".split(), p)), X),
        tuple(_zeros(m[0]).values()),
        tuple(_zeros(m[0]).values()),
    )[0],
}


@pytest.mark.parametrize("use", OTHER)
@torch.no_grad()
def test_uses(program, use):
    expected = OTHER[use](_model().train())  # left alone
    model = _evaluated()
    assert _is_packed(model)
    torch.testing.assert_close(OTHER[use](model), expected)
    assert not _is_packed(model)


def test_parameters_stay_what_they_are(program):
    """With their attributes and hooks."""
    model, seen = _model(), []
    weight = model[0].weight
    weight.tag, expected = 1, weight.detach().clone()
    weight.register_post_accumulate_grad_hook(seen.append)
    with torch.no_grad():
        model(X)
    assert _is_packed(model)
    assert model[0].weight is weight
    weight.other = weight.tag + 1
    model(X).sum().backward()
    assert seen[0] is weight
    assert vars(weight) == {"tag": 1, "other": 2}
    assert weight.equal(expected)


@torch.no_grad()
def test_models_that_share_a_weight(program):
    model, ids = seeded(Tied), torch.arange(5)
    model.head(torch.zeros(1, 24))
    model(ids)
    model.head.train()
    assert not _is_packed(model)
    model.embedding.weight.zero_()
    assert not model.embedding(ids).any()


def test_a_model_of_which_a_gradient_is_pending(program):
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    result = model(X)
    with torch.no_grad():
        model(X)
    result.square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        assert (model(X) - result).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("alias", [lambda x: x.data, lambda x: x.detach().numpy(), lambda x: x.view(-1)])
def test_memory_that_others_have(program, alias):
    model = _model()
    kept = [alias(x) for x in model.parameters()]
    assert model(X).any()
    assert not _is_packed(model)
    for x in kept:
        x *= 0
    assert not model(X).any()
    del kept, x
    model(X)
    assert _is_packed(model)


@torch.no_grad()
def test_how_often(program):
    """Loads of checkpoints are packed again, but not for ever."""
    model, packed = _model(), []
    for i in range(6):
        model.load_state_dict({name: x * i for name, x in _model().state_dict().items()})
        assert model(X).any() == bool(i)
        packed.append(_is_packed(model))
    assert packed == [True] * 4 + [False] * 2


class _Head(nn.Module):
    """It has a model that is not one of its modules."""

    def __init__(self, model):
        super().__init__()
        self.parts = (model,)

    def forward(self, x):
        model = self.parts[0]
        return nn.functional.linear(x, model[0].weight, model[0].bias)


@pytest.mark.parametrize("whole", [lambda m: nn.Sequential(m, nn.Linear(4, 2)), _Head])
def test_training_in_another_model(program, whole):
    """In evaluation mode, with gradients."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trained = whole(model).eval()
    with torch.no_grad():
        model(X)
    assert _is_packed(model)
    loss = trained(X).square().mean()
    optimizer.zero_grad()
    loss.backward()
    before = model[0].weight.detach().clone()
    optimizer.step()
    assert not model[0].weight.equal(before)


@torch.no_grad()
def test_a_model_that_the_program_optimizes(program):
    """Is its own affair, but for training."""
    model = headlane.torch.optimize(_model())
    copied = copy.deepcopy(model)
    assert model[0].weight.mean().isfinite()
    assert _is_packed(model)
    assert _is_packed(copied)
    copied.train()
    assert not _is_packed(copied)
