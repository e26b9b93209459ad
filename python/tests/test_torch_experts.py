"""headlane.torch: the experts of mixtures, in the models of transformers and by themselves."""

import copy
import inspect
import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from expert_cases import IDS, KINDS, MODELS, experts_of, made, module  # noqa: E402
from torch_cases import DTYPES, close  # noqa: E402


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_models(name):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    assert len(experts_of(optimized)) == MODELS[name][1]
    close(optimized(IDS).logits, model(IDS).logits)
    given = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    assert optimized.generate(IDS, **given).equal(model.generate(IDS, **given))
    before = model.state_dict()
    assert all(x.equal(before[key]) for key, x in optimized.state_dict().items())
    headlane.torch.restore(optimized)
    assert not experts_of(optimized)
    assert all(x.equal(before[key]) for key, x in optimized.state_dict().items())
    assert optimized(IDS).logits.equal(model(IDS).logits)


@pytest.mark.parametrize("implementation", ["eager", "batched_mm", "grouped_mm"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_types(name, dtype, implementation):
    theirs, _, (x, index, factors) = module(name, dtype)
    theirs.config._experts_implementation = implementation
    ours = headlane.torch.optimize(theirs)
    assert type(ours).__name__ == f"{name}Experts"
    result = ours(x, index, factors)
    assert isinstance(ours, KINDS[name])
    assert result.dtype is dtype
    close(result, theirs(x, index, factors), dtype)
    if name == "GptOss":  # in 16 bits what is between the products is rounded
        return
    # Of the exact result no more than one rounding away.
    wide = copy.deepcopy(theirs).double()
    wide.config._experts_implementation = "eager"
    exact = wide(x.double(), index, factors.double())
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(dtype).eps, atol=2e-6)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_a_token_alone_and_among_others(name, restore):
    _, ours, (x, index, factors) = module(name)
    expected = ours(x, index, factors)
    for i in range(len(x)):
        assert ours(x[i : i + 1], index[i : i + 1], factors[i : i + 1])[0].equal(expected[i])
    many = [
        torch.cat([each] * 300) for each in (x, index, factors)
    ]  # more than a chunk of tokens for each expert
    assert ours(*many).equal(torch.cat([expected] * 300))
    columns = x.T.contiguous().T
    assert ours(columns, index, factors).equal(expected)
    swapped = ours(x, index.flip(1), factors.flip(1))  # experts are added by their numbers
    assert swapped.equal(expected)
    before = torch.get_num_threads()
    try:
        for isa in headlane.available_isas():
            headlane.set_isa(isa)
            for threads in (1, 3):
                torch.set_num_threads(threads)
                assert ours(x, index, factors).equal(expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_special_indices(name):
    theirs, ours, (x, index, factors) = module(name)
    theirs.config._experts_implementation = "eager"
    twice = torch.tensor([[3, 3], [1, 3], [2, 2], [3, 1], [1, 1]])
    close(ours(x, twice, factors), theirs(x, twice, factors))
    close(ours(x[:1], twice[:1], factors[:1]), theirs(x[:1], twice[:1], factors[:1]))
    none = torch.tensor([[4, 0], [4, 4], [0, 1], [3, 4], [1, 0]])  # 4: no expert
    zero = torch.where(none == 4, 0, none), factors * (none != 4)
    close(ours(x, none, factors), theirs(x, *zero))
    assert ours(x[:0], index[:0], factors[:0]).shape == (0, 32)
    assert ours(x, index[:, :0], factors[:, :0]).count_nonzero() == 0
    for wrong in (-1, 5):
        with pytest.raises(ValueError, match=f"is {wrong}, there are 4 experts"):
            ours(x, torch.tensor([[0, 1], [wrong, 1], [0, 1], [0, 1], [0, 1]]), factors)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_other_types(name):
    theirs, ours, (x, index, factors) = module(name)
    theirs.config._experts_implementation = ours.config._experts_implementation = "batched_mm"
    expected = theirs(x, index, factors)
    close(ours(x, index.int(), factors), expected)  # by their own code
    close(ours(x, index, factors.double()), expected)


@torch.no_grad()
def test_shapes_that_do_not_fit():
    _, ours, (x, index, factors) = module()
    with pytest.raises(ValueError, match=r"factors has shape \[5, 1\], wanted: \[5, 2\]"):
        ours(x, index, factors[:, :1])
    with pytest.raises(ValueError, match=r"x has shape \[5, 31\], wanted: \[5, 32\]"):
        ours(x[:, 1:], index, factors)


@pytest.mark.parametrize(
    ("weights", "activations", "error"),
    [
        ("bfloat16", None, 0.02),
        ("bfloat16", "bfloat16", 0.03),
        ("int8", None, 0.03),
        ("int8", "int8", 0.05),
        ("int8_group32", "int8", 0.05),
        ("int4_group32", None, 0.3),
    ],
)
@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_fewer_bits(name, weights, activations, error, release):
    theirs, ours, call = module(name, weights=weights, activations=activations, release=release)
    expected, result = theirs(*call), ours(*call)
    assert 0 < (result - expected).norm() < error * expected.norm()
    if release:
        rounded = {key: x.clone() for key, x in ours.state_dict().items()}
        assert not all(x.equal(rounded[key]) for key, x in theirs.state_dict().items())
        theirs.load_state_dict(rounded)
        if activations is None:
            close(result, theirs(*call))
    else:
        assert all(x.equal(ours.state_dict()[key]) for key, x in theirs.state_dict().items())
        headlane.torch.restore(ours)
        assert ours(*call).equal(expected)


@pytest.mark.parametrize("name", KINDS)
def test_calls_that_are_not_for_inference(name):
    theirs, ours, (x, index, factors) = module(name)
    names = list(inspect.signature(type(theirs).forward).parameters)[1:]
    for implementation in ("eager", "grouped_mm"):
        theirs.config._experts_implementation = ours.config._experts_implementation = implementation
        expected = theirs(x, index, factors).detach()
        wanted = x.clone().requires_grad_()
        result = ours(wanted, index, factors)
        result.sum().backward()
        close(result.detach(), expected)
        assert wanted.grad.count_nonzero() > 0
        close(ours.train()(x, index, factors).detach(), expected)
        ours.eval()
    ours.config._experts_implementation = "eager"  # the names of its own code
    close(ours(**dict(zip(names, (x, index, factors)))).detach(), expected)
    with torch.no_grad():
        before = ours(x, index, factors)
        assert copy.deepcopy(ours)(x, index, factors).equal(before)
        with torch.no_grad():
            theirs.down_proj.mul_(2)
        ours.down_proj = theirs.down_proj
        close(ours(x, index, factors), theirs(x, index, factors))


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2Moe", "DeepseekV3", "GptOss"])
def test_weights_that_require_gradients(name):
    """Of experts and routers, too: by the code of the modules."""
    model = made(name)
    optimized = headlane.torch.optimize(model)
    before = optimized(IDS).logits
    optimized.requires_grad_()
    for each in (model, optimized):
        each(IDS).logits.square().sum().backward()
    for (key, theirs), ours in zip(model.named_parameters(), optimized.parameters()):
        assert (theirs.grad is None) == (ours.grad is None), key
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4, msg=key)
    with torch.no_grad():
        assert optimized(IDS).logits.equal(before)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_a_weight_can_be_read(name):
    theirs, ours, _ = module(name)
    for ours_of, theirs_of in ((ours.gate_up_proj, theirs.gate_up_proj), (ours.down_proj, theirs.down_proj)):
        assert ours_of.shape == theirs_of.shape
        assert (ours_of + 0).equal(theirs_of)
        assert (ours_of[2] + 0).equal(theirs_of[2])
        assert (ours_of[-1] + 0).equal(theirs_of[-1])
        assert (ours_of[:, 2] + 0).equal(theirs_of[:, 2])
        assert (ours_of[torch.tensor([3, 1])] + 0).equal(theirs_of[[3, 1]])
        with pytest.raises(RuntimeError, match="is packed and cannot be changed"):
            ours_of[1].zero_()


@pytest.mark.parametrize("name", ["Qwen3Moe", "GptOss"])
@torch.no_grad()
def test_a_copy_from_a_file(name):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    expected = optimized(IDS).logits
    file = io.BytesIO()
    torch.save(optimized, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert len(experts_of(loaded)) == 2
    assert loaded(IDS).logits.equal(expected)


@torch.no_grad()
def test_compiled():
    _, ours, call = module()
    expected = ours(*call)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    assert compiled(*call).equal(expected)
    exported = torch.export.export(ours, call)
    assert exported.module()(*call).equal(expected)
    theirs, ours, call = module("GptOss")
    close(torch.compile(ours, backend="eager")(*call), theirs(*call))
