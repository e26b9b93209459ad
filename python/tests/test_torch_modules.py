"""headlane.torch.optimize(): each kind of module computes what PyTorch's code does, in every way it can be
called, and the model stays what it was.
"""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules, _weight  # noqa: E402
from headlane.torch._report import Record  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import (  # noqa: E402
    CALLS_ACTIVATIONS,
    DTYPES,
    LEFT,
    MODELS,
    close,
    run,
    seeded,
)


@pytest.fixture(params=MODELS)
def case(request):
    make, inputs = MODELS[request.param]
    return seeded(make), inputs


@torch.no_grad()
def test_same_results(case):
    model, inputs = case
    expected = run(model, inputs)
    optimized = headlane.torch.optimize(model)
    assert type(optimized) is not type(model) or Record.of(model) is None
    close(run(optimized, inputs), expected)
    torch.testing.assert_close(run(model, inputs), expected, rtol=0, atol=0)  # not changed itself
    left = [m for m in optimized.modules() if not isinstance(m, (_modules.Replaced, *LEFT))]
    assert not left


@pytest.mark.parametrize("dtype", DTYPES[1:])
@torch.no_grad()
def test_sixteen_bits(case, dtype):
    model, inputs = case
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    wide = run(model.float(), [x.float() if x.is_floating_point() else x for x in inputs])
    optimized = headlane.torch.optimize(model.to(dtype))
    close(run(optimized, inputs), wide.to(dtype), dtype)


@torch.no_grad()
def test_default_type_of_another_size(case):
    model, inputs = case
    kinds = [type(m) for m in headlane.torch.optimize(model).modules()]
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            optimized = headlane.torch.optimize(model)
            close(run(optimized, inputs), run(model, inputs))
        finally:
            torch.set_default_dtype(torch.float32)
        assert [type(m) for m in optimized.modules()] == kinds


@torch.no_grad()
def test_negative_views(case):
    model, inputs = case
    views = [torch.complex(x, -x).conj().imag if x.is_floating_point() else x for x in inputs]
    assert all(x.is_neg() for x in views if x.is_floating_point())
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        close(run(optimized, views), run(model, inputs))


@torch.no_grad()
def test_state_dict_and_restore(case):
    model, inputs = case
    expected = run(model, inputs)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    shapes = [(name, x.shape, x.dtype, x.device) for name, x in model.named_parameters()]
    classes = [type(m) for m in model.modules()]
    headlane.torch.optimize(model, inplace=True)
    after = model.state_dict()
    assert list(after) == list(before)
    for name, x in after.items():
        assert type(x) is torch.Tensor
        torch.testing.assert_close(x, before[name], rtol=0, atol=0)
    assert shapes == [(name, x.shape, x.dtype, x.device) for name, x in model.named_parameters()]
    assert not any(x.requires_grad for x in model.parameters())
    assert [type(m).__name__ for m in model.modules()] == [c.__name__ for c in classes]
    assert all(isinstance(m, c) for m, c in zip(model.modules(), classes))

    headlane.torch.restore(model)
    assert [type(m) for m in model.modules()] == classes
    assert all(type(x) is nn.Parameter and x.requires_grad for x in model.parameters())
    torch.testing.assert_close(run(model, inputs), expected, rtol=0, atol=0)
    assert not any("headlane" in key for m in model.modules() for key in m.__dict__)
    with pytest.raises(ValueError, match="restore: the model is not one that optimize"):
        headlane.torch.restore(model)


@torch.no_grad()
def test_copies(case):
    model, inputs = case
    optimized = headlane.torch.optimize(model)
    expected = run(optimized, inputs)
    saved = io.BytesIO()
    torch.save(optimized, saved)
    saved.seek(0)
    copies = (
        copy.deepcopy(optimized),
        pickle.loads(pickle.dumps(optimized)),
        torch.load(saved, weights_only=False),
    )
    for other in copies:
        torch.testing.assert_close(run(other, inputs), expected, rtol=0, atol=0)
        headlane.torch.restore(other)
        torch.testing.assert_close(run(other, inputs), run(model, inputs), rtol=0, atol=0)
    torch.testing.assert_close(run(optimized, inputs), expected, rtol=0, atol=0)


@torch.no_grad()
def test_state_dict_loads_into_a_plain_model(case):
    model, inputs = case
    optimized = headlane.torch.optimize(model)
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.zero_()
    saved = io.BytesIO()
    torch.save(optimized.state_dict(), saved)
    saved.seek(0)
    other.load_state_dict(torch.load(saved, weights_only=True))
    torch.testing.assert_close(run(other, inputs), run(model, inputs), rtol=0, atol=0)


def same_state(state, expected):
    assert list(state) == list(expected)
    for name, value in state.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("inplace", [False, True])
def test_inference_mode(case, inplace):
    """The tensors of a model that is optimized and restored there can be trained later."""
    model, inputs = case
    expected = run(model, inputs)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.inference_mode():
        optimized = headlane.torch.optimize(model, inplace=inplace)
        assert not any(x.is_inference() for x in optimized.parameters())
        run(optimized, inputs)
        same_state(optimized.state_dict(), state)
        headlane.torch.restore(optimized)
    assert not any(x.is_inference() for x in (*optimized.parameters(), *optimized.buffers()))
    torch.testing.assert_close(run(optimized, inputs), expected, rtol=0, atol=0)
    if state:
        run(optimized, inputs).square().sum().backward()


@pytest.mark.parametrize("inplace", [False, True])
def test_model_of_inference_mode(inplace):
    """Its tensors stay those of inference mode, in it and outside of it."""
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).eval()
        expected, state = model(x), {name: value.clone() for name, value in model.state_dict().items()}
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            optimized = headlane.torch.optimize(model, inplace=inplace)
            close(optimized(x), expected)
            same_state(optimized.state_dict(), state)
            headlane.torch.restore(optimized)
            torch.testing.assert_close(optimized(x), expected, rtol=0, atol=0)
        assert all(x.is_inference() and x.requires_grad for x in optimized.parameters())


def same_when_traced(model, got, expected):
    if isinstance(model, CALLS_ACTIVATIONS):
        close(got, expected)
    else:
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@torch.no_grad()
def test_compiled(case):
    """The same bits, in one graph."""
    model, inputs = case
    optimized = headlane.torch.optimize(model)
    torch._dynamo.reset()
    compiled = torch.compile(optimized, fullgraph=True, backend="aot_eager")
    same_when_traced(model, run(compiled, inputs), run(optimized, inputs))


@torch.no_grad()
def test_exported(case, tmp_path):
    """The same bits, after a way through a file as well."""
    model, inputs = case
    optimized = headlane.torch.optimize(model)
    program = torch.export.export(optimized, inputs)
    expected, exported = run(optimized, inputs), run(program.module(), inputs)
    same_when_traced(model, exported, expected)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    torch.testing.assert_close(run(loaded, inputs), exported, rtol=0, atol=0)


def test_an_input_that_requires_a_gradient(case):
    """The original code: the gradient is PyTorch's."""
    model, inputs = case
    if not inputs[0].is_floating_point():
        return
    model.requires_grad_(False)
    optimized = headlane.torch.optimize(model)
    gradients = []
    for each in (model, optimized):
        given = [x.clone().requires_grad_() for x in inputs]
        run(each, given).square().sum().backward()
        gradients.append([x.grad for x in given])
    for theirs, ours in zip(*gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_training_mode(case):
    """The original code: dropout too."""
    model, inputs = case
    optimized = headlane.torch.optimize(model).train()
    model.train()
    results = []
    for each in (model, optimized):
        torch.manual_seed(5)
        results.append(run(each, inputs))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_autocast(case):
    """The original code, which computes in bfloat16."""
    model, inputs = case
    optimized = headlane.torch.optimize(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, ours = run(model, inputs), run(optimized, inputs)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


@torch.no_grad()
def test_to_and_load_state_dict(case):
    model, _ = case
    optimized = headlane.torch.optimize(model)
    has_packed = any(isinstance(x, _weight.PackedWeight) for x in optimized.parameters())
    assert optimized.to("cpu").float() is optimized
    if not has_packed:
        return
    with pytest.raises(RuntimeError, match=r"this weight is packed and cannot be changed"):
        optimized.load_state_dict(model.state_dict())


@torch.no_grad()
def test_batches_and_lengths():
    """A row has the bits that it has alone."""
    for name in ("linear", "sequential", "gated", "encoder", "tied"):
        make, (x, *_) = MODELS[name]
        optimized = headlane.torch.optimize(seeded(make))
        both = optimized(x)
        for i in range(2):
            torch.testing.assert_close(optimized(x[i : i + 1])[0], both[i], rtol=0, atol=0)
