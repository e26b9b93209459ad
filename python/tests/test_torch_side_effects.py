"""headlane.torch: code of modules that does more than compute a result does it once in a call, with tensors."""

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, seeded  # noqa: E402


class Saves(nn.Module):
    """Its activations, in containers of its own."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24)
        self.saved, self.log = {}, []

    def forward(self, x):
        hidden = self.act(self.up(x))
        self.saved["hidden"] = hidden
        self.log.append(hidden)
        return self.down(hidden)


@torch.no_grad()
def test_activations_that_are_saved():
    model = seeded(Saves)
    optimized = headlane.torch.optimize(model)
    assert not optimized.saved
    assert not optimized.log
    for scale in (1, 2, 3):
        close(optimized(scale * X), model(scale * X))
        close(optimized.saved["hidden"], model.saved["hidden"])
    for ours, theirs in zip(optimized.log, model.log, strict=True):
        close(ours, theirs)


class Counts(nn.Module):
    count = 0

    def forward(self, x):
        self.count += 1
        return 2 * x + 1


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def between(child):
    return nn.Sequential(nn.Linear(24, 40), nn.ReLU(), child, nn.Linear(40, 24))


@torch.no_grad()
def test_modules_that_count_their_calls():
    optimized = headlane.torch.optimize(seeded(between, Counts()))
    for count in (1, 2, 3):
        optimized(X)
        assert optimized[2].count == count
    assert all(optimized._headlane.plans.values())


@torch.no_grad()
def test_modules_that_draw_random_numbers():
    """The same ones as without headlane."""
    model = seeded(between, Noise())
    optimized = headlane.torch.optimize(model)
    results = []
    for each in (model, optimized):
        torch.manual_seed(1)
        results.append(torch.stack([each(X) for _ in range(3)]))
    close(*results)
    assert all(optimized._headlane.plans.values())


class InPlace(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.linear, self.act = nn.Linear(24, 24), act

    def forward(self, x):
        return self.linear(x) + self.act(x)


@pytest.mark.parametrize("make", [nn.Hardtanh, nn.ELU, nn.LeakyReLU])
@torch.no_grad()
def test_modules_that_change_what_they_are_given(make):
    model = seeded(InPlace, make(inplace=True))
    optimized = headlane.torch.optimize(model)
    assert not isinstance(optimized, _modules.Replaced)
    for scale in (0.01, 1, 3):
        one, two = scale * X, scale * X
        close(optimized(one), model(two))
        assert one.equal(two)


SEEN = []


def save_by_a_function(x):
    SEEN.append(x)


class SavesElsewhere(nn.Module):
    def __init__(self, save):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24)
        self.save = save

    def forward(self, x):
        hidden = self.act(self.up(x))
        self.save(hidden)
        return self.down(hidden)


@pytest.mark.parametrize("save", [lambda x: SEEN.append(x), lambda x: save_by_a_function(x)])
@torch.no_grad()
def test_activations_that_are_saved_elsewhere(save):
    model = seeded(SavesElsewhere, save)
    optimized = headlane.torch.optimize(model)
    SEEN.clear()
    for scale in (1, 2, 3):
        close(optimized(scale * X), model(scale * X))
    assert len(SEEN) == 6
    for ours, theirs in zip(SEEN[::2], SEEN[1::2]):
        close(ours, theirs)


class Skips(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.up, self.down = nn.Linear(24, 24), nn.Linear(24, 24)
        self.draw = draw

    def forward(self, x):
        hidden = self.down(torch.relu(self.up(x)))
        return hidden + x if self.draw() < 0.5 else hidden


@pytest.mark.parametrize("draw", [random.random, lambda: torch.rand(1).item()], ids=["Python", "PyTorch"])
@torch.no_grad()
def test_code_that_draws_random_numbers(draw):
    """optimize() draws none, and each call does."""
    model = seeded(Skips, draw)
    results = []
    for is_optimized in (False, True):
        random.seed(3)
        torch.manual_seed(3)
        each = headlane.torch.optimize(model) if is_optimized else model
        results.append(torch.stack([each(X) for _ in range(8)]))
    close(*results)
