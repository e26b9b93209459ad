"""headlane.torch: gradients of weights that are packed."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._weight import PackedWeight  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import MODELS, X, close, run, seeded  # noqa: E402


def gradients(model, inputs):
    model.zero_grad()
    run(model, inputs).square().sum().backward()
    return {name: x.grad for name, x in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_all_weights_of_a_model(name):
    """They are PyTorch's, by the code of the modules."""
    make, inputs = MODELS[name]
    model = seeded(make)
    optimized = headlane.torch.optimize(model)
    with torch.no_grad():
        before = run(optimized, inputs)
    if not list(model.parameters()):
        return
    optimized.requires_grad_()
    wanted = gradients(model, inputs)
    for each in (optimized, copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        made = gradients(each, inputs)
        assert list(made) == list(wanted)
        for key, gradient in wanted.items():
            torch.testing.assert_close(made[key], gradient, rtol=1e-5, atol=1e-5, msg=key)
    with torch.no_grad():
        assert run(optimized, inputs).equal(before)
    optimized.requires_grad_(False)
    assert not run(optimized, inputs).requires_grad
    assert run(optimized, inputs).equal(before)


def test_one_weight():
    """Of a module that is fused; the others, and other models, keep their bits."""
    model = seeded(MODELS["gated"][0])
    optimized, other = headlane.torch.optimize(model), headlane.torch.optimize(model)
    before = optimized(X)
    model.requires_grad_(False)
    for each in (model, optimized):
        each.up.weight.requires_grad = True
    wanted, made = gradients(model, [X]), gradients(optimized, [X])
    assert [name for name, x in made.items() if x is not None] == ["up.weight"]
    close(made["up.weight"], wanted["up.weight"])
    assert other(X).equal(before)
    with torch.no_grad():
        assert optimized(X).equal(before)
    optimized.up.weight.requires_grad = False
    assert optimized(X).equal(before)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("foreach", [False, True])
def test_no_optimizer_changes_a_packed_weight(optimizer, foreach):
    optimized = headlane.torch.optimize(seeded(nn.Linear, 24, 24))
    before = optimized(X)
    optimized.weight.requires_grad_()
    gradients(optimized, [X])
    with pytest.raises(RuntimeError, match="this weight is packed and cannot be changed"):
        optimizer(optimized.parameters(), lr=0.1, foreach=foreach).step()
    with torch.no_grad():
        assert optimized(X).equal(before)


@pytest.mark.parametrize("name", ["linear", "tied", "multihead attention", "encoder layer"])
def test_compiled(name):
    """A graph of operators without gradients: refused where it would be needed."""
    make, inputs = MODELS[name]
    optimized = headlane.torch.optimize(seeded(make))
    weights = [x for x in optimized.parameters() if isinstance(x, PackedWeight)]
    weights[0].requires_grad_()
    torch._dynamo.reset()
    whole = torch.compile(optimized, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="requires a gradient"):
        run(whole, inputs)
    with torch.no_grad():
        assert run(whole, inputs).equal(run(optimized, inputs))
    torch._dynamo.reset()
    gradients(torch.compile(optimized, backend="aot_eager"), inputs)
    assert weights[0].grad.count_nonzero() > 0
