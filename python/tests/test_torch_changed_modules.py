"""headlane.torch: modules whose parts or attributes change after they were called compute what their code says."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, normal, seeded  # noqa: E402


class Block(nn.Module):
    of_class = 1.0

    def __init__(self, factor):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(24, 24, bias=False), nn.GELU(), nn.Linear(24, 24)
        self.norm = nn.LayerNorm(24, bias=False)
        self.config, self.scaling, self.own = SimpleNamespace(alpha=1.0), {"default": 1.0}, 1.0
        self.kept, self.count = [1.0], 1.0
        self.other, self.named = None, nn.ModuleDict({"b": nn.Linear(24, 24)})
        self.factor = factor

    @property
    def gain(self):
        return 2 * self.own

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x)))) * self.factor(self)


GLOBAL = 1.0
GLOBALS = {"factor": 1.0}


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(3))
        self.act = nn.ReLU()

    def forward(self, x):
        for layer in self.layers:
            x = x + (layer(x) if layer is self.layers[-1] else self.act(layer(x)))
        return x


class Adapted(nn.Module):
    """A child that may get an adapter."""

    def __init__(self):
        super().__init__()
        self.child, self.norm = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), With()), nn.LayerNorm(24)

    def forward(self, x):
        return x + self.child(self.norm(x))


class With(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(24, 24), nn.ReLU()

    def forward(self, x):
        made = self.act(self.linear(x))
        return self.adapter(made) if hasattr(self, "adapter") else made


NEW = seeded(nn.Linear, 24, 24)
VECTOR = normal(24)


def block(factor):
    return lambda: Block(factor)


def sequential():
    return nn.Sequential(nn.Linear(24, 24), nn.ReLU())


# A module, and how it is changed.
CHANGES = {
    "attribute of an object": (block(lambda m: m.config.alpha), lambda m: setattr(m.config, "alpha", 0.1)),
    "entry of a dict": (block(lambda m: m.scaling["default"]), lambda m: m.scaling.update(default=0.1)),
    "entry of a list": (block(lambda m: m.kept[0]), lambda m: m.kept.insert(0, 0.1)),
    "property": (block(lambda m: m.gain), lambda m: vars(m).update(own=0.1)),
    "bias of a linear": (block(lambda m: 1.0), lambda m: setattr(m.up, "bias", nn.Parameter(VECTOR))),
    "no bias": (block(lambda m: 1.0), lambda m: setattr(m.down, "bias", None)),
    "bias of a norm": (block(lambda m: 1.0), lambda m: setattr(m.norm, "bias", nn.Parameter(VECTOR))),
    "attribute that was None": (
        block(lambda m: 1.0 if m.other is None else 0.1),
        lambda m: setattr(m, "other", NEW),
    ),
    "child of a dict": (
        block(lambda m: 1.0 if "a" in m.named else 0.1),
        lambda m: m.named.update({"a": NEW}),
    ),
    "append": (sequential, lambda m: m.append(NEW)),
    "add_module": (sequential, lambda m: m.add_module("new", NEW)),
    "append to a list": (Layers, lambda m: m.layers.append(NEW)),
    "insert into a list": (Layers, lambda m: m.layers.insert(0, NEW)),
    "delete from a list": (Layers, lambda m: m.layers.__delitem__(1)),
    "adapter": (With, lambda m: setattr(m, "adapter", NEW)),
    "adapter by add_module": (With, lambda m: m.add_module("adapter", NEW)),
    "adapter of a child": (Adapted, lambda m: setattr(m.child[2], "adapter", NEW)),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_changes(name):
    make, change = CHANGES[name]
    model = seeded(make)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        close(optimized(X), model(X))
    for each in (model, optimized):
        change(each)
    for _ in range(2):
        close(optimized(X), model(X))


@torch.no_grad()
def test_changes_of_a_class(monkeypatch):
    model = seeded(block(lambda m: m.of_class))
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized, _modules.Replaced)
    for _ in range(2):
        close(optimized(X), model(X))
    monkeypatch.setattr(Block, "of_class", 0.1)
    close(optimized(X), model(X))
    monkeypatch.setattr(Block, "forward", lambda self, x: self.norm(x))
    close(optimized(X), model(X))


class Doubled(nn.Sequential):
    on = False

    def __call__(self, x):
        return super().__call__(x) * (2 if self.on else 1)


@torch.no_grad()
def test_changes_of_what_a_call_of_a_class_reads(monkeypatch):
    model = seeded(lambda: nn.Sequential(Doubled(nn.Linear(24, 40), nn.ReLU()), nn.Linear(40, 24)))
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        close(optimized(X), model(X))
    monkeypatch.setattr(Doubled, "on", True)
    close(optimized(X), model(X))


@pytest.mark.parametrize("factor", [lambda m: GLOBAL, lambda m: GLOBALS["factor"]])
@torch.no_grad()
def test_changes_of_a_global(monkeypatch, factor):
    model = seeded(block(factor))
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        close(optimized(X), model(X))
    monkeypatch.setitem(globals(), "GLOBAL", 0.1)
    monkeypatch.setitem(GLOBALS, "factor", 0.1)
    close(optimized(X), model(X))


@pytest.mark.parametrize("name", ["forward", "factor_of", "__call__"])
@torch.no_grad()
def test_methods_that_a_class_has_inherited(name):
    class Base(nn.Sequential):
        def factor_of(self):
            return 1.0

        def forward(self, x):
            return super().forward(x) * self.factor_of()

    class Derived(Base):
        pass

    model = seeded(lambda: nn.Sequential(Derived(nn.Linear(24, 40), nn.ReLU()), nn.Linear(40, 24)))
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        close(optimized(X), model(X))
    setattr(Derived, name, {"factor_of": lambda self: 0.1}.get(name, lambda self, x: self[0](x)))
    close(optimized(X), model(X))


@torch.no_grad()
def test_lists_of_modules_are_fused():
    """As long as they remain as they are."""
    optimized = headlane.torch.optimize(seeded(Layers))
    optimized(X)
    (plan,) = optimized._headlane.plans.values()
    assert plan.applies()
    optimized.layers.append(NEW)
    assert not plan.applies()
