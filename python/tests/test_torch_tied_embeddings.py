"""headlane.torch: what an embedding takes and refuses whose weight is that of an output layer, too."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch_cases import Tied, X, close, normal, seeded  # noqa: E402

IDS = torch.arange(8)


@pytest.mark.parametrize("weights", [None, "int8"])
@torch.no_grad()
def test_indices(weights):
    """The results, or the class of the error, of PyTorch's."""
    model = seeded(Tied).embedding
    optimized = headlane.torch.optimize(seeded(Tied), weights=weights).embedding
    for ids in (IDS, IDS.int(), IDS[:0], IDS[3], IDS[::2], IDS.view(8, *[1] * 7), IDS.view(8, *[1] * 8)):
        assert optimized(ids).equal(model(ids))
    assert torch.vmap(optimized)(IDS).equal(model(IDS))
    for wrong in (IDS + 43, IDS - 1, IDS.short(), IDS.byte(), IDS.float(), IDS.bool()):
        with pytest.raises((IndexError, RuntimeError)) as theirs:
            model(wrong)
        with pytest.raises(theirs.type):
            optimized(wrong)
    assert torch.compile(optimized, backend="eager")(IDS).equal(model(IDS))


@pytest.mark.parametrize("weights", [None, "int8"])
@torch.no_grad()
def test_another_default_device(weights):
    """On which new tensors are, unless code names one: optimize(), calls and conversions name the CPU."""
    model = seeded(Tied)
    expected = headlane.torch.optimize(model, weights=weights)(IDS)
    optimized = headlane.torch.optimize(model, weights=weights)
    with torch.device("meta"):
        later = headlane.torch.optimize(model, weights=weights)
        for each in (optimized, later):
            assert each.float()(IDS).equal(expected)
            assert each.head.weight.clone().device.type == "cpu"
            headlane.torch.restore(each)
            assert each(IDS).equal(model(IDS))


@torch.no_grad()
def test_masks_under_another_default_device():
    model = seeded(torch.nn.MultiheadAttention, 24, 3, batch_first=True)
    optimized = headlane.torch.optimize(model)
    mask, padding = normal(5, 5), torch.arange(5).expand(2, 5) > 3
    with torch.device("meta"):
        result = optimized(X, X, X, attn_mask=mask, key_padding_mask=padding)[0]
    close(result, model(X, X, X, attn_mask=mask, key_padding_mask=padding)[0])


@torch.no_grad()
def test_addresses():
    """By which accelerate finds parameters that share memory."""
    optimized = headlane.torch.optimize(seeded(Tied))
    addresses = [x.weight.data_ptr() for x in (optimized.embedding, optimized.head, *optimized.mlp[::2])]
    assert addresses[0] == addresses[1] != 0
    assert len(set(addresses)) == 3


@torch.no_grad()
def test_parameters_made_by_the_class():
    """As accelerate moves them to another device."""
    weight = headlane.torch.optimize(seeded(Tied)).head.weight
    with pytest.raises(
        RuntimeError, match=r"is packed and cannot be changed; headlane.torch.restore\(model\)"
    ):
        type(weight)(torch.empty(50, 24), requires_grad=False)
