"""headlane.torch: layers that use the keys and values of others, are given an input of their own, and are scaled in
place, as those of Gemma 4.
"""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers, "Gemma4TextConfig"):
    pytest.skip("transformers has no Gemma 4", allow_module_level=True)
import headlane.torch  # noqa: E402
from decoder_cases import (  # noqa: E402
    CACHE,
    INPUTS,
    LAYER_TYPES,
    LLAMA,
    check_modules,
    close,
    real,
    same,
    steps,
)
from decoder_cases import entries as all_entries  # noqa: E402
from headlane.torch._arguments import Input, Shared  # noqa: E402
from headlane.torch._attend import attend  # noqa: E402
from headlane.torch._nodes import NotPlain  # noqa: E402
from recorded_cases import Given  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402
from transformers.cache_utils import KVSharingDict  # noqa: E402

SIZES = {
    **LLAMA,
    "num_hidden_layers": 6,
    "head_dim": 8,
    "global_head_dim": 16,
    "sliding_window": 5,
    "layer_types": LAYER_TYPES * 3,
    "vocab_size_per_layer_input": 50,
    "hidden_size_per_layer_input": 8,
}
MODELS = {
    "shared": {**SIZES, "num_kv_shared_layers": 2},
    "own": {**SIZES, "num_kv_shared_layers": 0},
    "dense": {**SIZES, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
    "keys as values": {
        **SIZES,
        "num_kv_shared_layers": 0,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    },
}


def made(name, dtype=torch.float32):
    config = transformers.Gemma4TextConfig(**MODELS[name])
    model = seeded(transformers.AutoModelForCausalLM.from_config, config)
    for number, layer in enumerate(model.model.layers):
        layer.layer_scalar.fill_(1.25 - number / 8)
    return model.to(dtype)


def entries(cache):
    return [x for x in all_entries(cache) if x is not None]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("given", INPUTS, ids=["whole", "padded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_layers(name, given, dtype, decoder_runs, monkeypatch):
    model = made(name, dtype)
    optimized = headlane.torch.optimize(model)
    first, _ = steps(optimized, given)  # whose plans are made
    decoder_runs.clear()
    result, cache = steps(optimized, given)
    # All have plans but those that give their keys to others. PyTorch first gives the factor of a layer its shape.
    count = sum(not layer.self_attn.store_full_length_kv for layer in model.model.layers)
    assert [(len(x.steps), len(x.with_room)) for x in decoder_runs] == [(4, 2)] * count * 4
    expected, expected_cache = steps(model, given)
    if dtype is torch.float32:
        close(real(result, given), real(expected, given))
        close(real(entries(cache), given), real(entries(expected_cache), given))
    else:
        pairs = list(zip(real(result, given), real(expected, given)))
        limit = 32 * torch.finfo(dtype).eps * max(x.abs().max() for _, x in pairs)
        assert max((x - y).abs().max() for x, y in pairs) <= limit
    assert same(result, first)
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, given)


@torch.no_grad()
def test_generation():
    for name in MODELS:
        model = made(name)
        optimized = headlane.torch.optimize(model)
        for options in ({}, {"num_beams": 3}, {"use_cache": False}):
            ours, theirs = (
                each.generate(**INPUTS[1], max_new_tokens=8, do_sample=False, **options)
                for each in (optimized, model)
            )
            assert ours.equal(theirs)


@torch.no_grad()
def test_factors_that_change(decoder_runs):
    model = made("own")
    optimized = headlane.torch.optimize(model)
    for change in ("none", "in place", "another"):
        for layer in (*model.model.layers, *optimized.model.layers):
            if change == "in place":
                layer.layer_scalar.mul_(0.5)
            elif change == "another":
                layer.layer_scalar = torch.tensor([1.5])
        for _ in range(2):
            decoder_runs.clear()
            close(steps(optimized, INPUTS[0])[0], steps(model, INPUTS[0])[0])
        assert any(plan.is_deep for plan in decoder_runs) is (change != "another")


@pytest.mark.parametrize("shape", [(1, 5, 8), (2, 1, 8), (2, 5, 1)], ids=str)
@torch.no_grad()
def test_inputs_that_are_repeated(shape, decoder_runs):
    """The plan does not run for them, and the cache is appended to once."""
    model = made("own")
    layers = [x.model.layers[0] for x in (model, headlane.torch.optimize(model))]
    x, tables = normal(2, 5, 32), (normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3))
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    for each in ((2, 5, 8), (2, 5, 8), shape, (2, 5, 8)):
        caches = [transformers.DynamicCache(config=model.config) for _ in layers]
        decoder_runs.clear()
        made_by = [
            layer(x, normal(*each, seed=4), None, tables, mask, **{CACHE: cache})
            for layer, cache in zip(layers, caches)
        ]
        close(made_by[1:], made_by[:1])
        close(*(entries(cache)[:2] for cache in caches))
    assert [len(plan.equal) for plan in decoder_runs] == [1]


@torch.no_grad()
def test_keys_of_other_sizes(decoder_runs):
    """Of a dict whose keys change between calls."""
    model = made("shared")
    layers = [x.model.layers[4] for x in (model, headlane.torch.optimize(model))]
    tables = normal(1, 3, 8, seed=2), normal(1, 3, 8, seed=3)
    runs = []
    for heads, length, batch in ((2, 7, 2), (2, 7, 2), (4, 7, 2), (2, 3, 2), (1, 3, 2), (2, 9, 2), (2, 7, 1)):
        x, keys = normal(2, 3, 32), normal(batch, heads, length, 8, seed=5)
        shared = KVSharingDict(
            {"sliding_attention": (keys, 2 * keys), "full_attention": (keys, keys[..., :4])}
        )
        given = normal(2, 3, 8, seed=4), shared, tables, torch.ones(2, 1, 3, length, dtype=torch.bool)
        layers[0].self_attn.num_key_value_groups = 4 // heads
        decoder_runs.clear()
        close([layers[1](x, *given)], [layers[0](x, *given)])
        runs.append(len([plan for plan in decoder_runs if plan.is_deep]))
    assert min(runs) == 1
    assert len({*layers[1]._headlane.plans}) == 3


def shared_of(g, sizes):
    return Input(Shared(KVSharingDict, sizes)).value(g.graph)


def test_attention_to_shared_keys():
    given = Given()
    shared = shared_of(given, (("some", (2, 8, 6)),))
    assert isinstance(shared, KVSharingDict)
    keys, values = shared["some"]
    call = headlane.transformers, given.graph.stand_in(nn.Identity()), keys, values, None, (), {}
    made = attend(given.x, *call)
    assert made._node.what.heads == ((None, 8), ((0, 16), 8), ((0, 12), 6))
    assert (made._node.what.entries, made._node.what.is_of_filled_cache) == (("some",), True)
    assert (made._node.width, made.shape[2:]) == (24, (4, 6))
    with pytest.raises(NotPlain):
        attend(given.x, *call)


@pytest.mark.parametrize(
    "code",
    [
        lambda x, g: x["other"],
        lambda x, g: x[0],
        lambda x, g: x.get("some"),
        lambda x, g: x.pop("some"),
        lambda x, g: x.to("cpu"),
        lambda x, g: list(x),
        lambda x, g: dict(x),
        lambda x, g: x.data,
        lambda x, g: x == {},
        lambda x, g: 1 if x else 2,
        lambda x, g: "some" in x,
        lambda x, g: len(x),
        lambda x, g: x.__setitem__("some", x["some"]),
        lambda x, g: x.update(some=1),
        lambda x, g: x.__delitem__("some"),
        lambda x, g: x["some"][0] + x["some"][1],
        lambda x, g: attend(g.x, headlane.transformers, None, *x["some"][::-1], None, (), {}),
        lambda x, g: attend(
            g.x, headlane.transformers, None, x["some"][0], x["some"][1], None, (), {}
        ),  # of two reads
    ],
)
def test_other_uses_of_shared_keys(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError, AttributeError)):
        code(shared_of(given, (("some", (2, 8, 8)),)), given)


def total(g):
    """A new result."""
    one, two = (g.value(g.x._node.sizes, 32) for _ in range(2))
    return one + two


def imul(x, other):
    x *= other
    return x


def test_changes_in_place_of_new_results():
    given = Given()
    for other, kind in ((2, "scale"), (given.graph.vector(torch.tensor([3.0])), "weigh")):
        x = total(given)
        before, other_name = x._node, x
        assert imul(x, other) is x
        assert (x.node.kind, x.node.inputs[0]) == (kind, before)
        assert (other_name + x).node.inputs == (x.node, x.node)
    factors = x.node.inputs[1]
    assert factors.inputs[0].sizes is given.x._node.sizes
    assert factors.what(normal(2, 5, 7)).equal(torch.full((1, 5, 1), 3.0))


@pytest.mark.parametrize(
    "code",
    [
        lambda g, x, s: (torch.relu(x), imul(x, s)),
        lambda g, x, s: (x.view(*x.shape[:2], 4, 8), imul(x, s))[0],
        lambda g, x, s: (x[..., :4], imul(x, s))[0],
        lambda g, x, s: imul(x[..., :4], s),
        lambda g, x, s: imul(x.view(*x.shape[:2], 4, 8), s),
        lambda g, x, s: imul(g.value(x.shape[:2], 32), s),  # the caller's
        lambda g, x, s: imul(torch.relu(x), s),  # perhaps in place
        lambda g, x, s: imul(x, x),
        lambda g, x, s: imul(x, torch.tensor([2.0])),
        lambda g, x, s: imul(x, g.graph.vector(torch.ones(2))),
        lambda g, x, s: imul(x, g.graph.vector(torch.ones(1, dtype=torch.float64))),
        lambda g, x, s: imul(x.view(-1, 32), s),
        lambda g, x, s: imul(s, 2),
        lambda g, x, s: x.mul_(2),
    ],
)
def test_other_changes_in_place(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError)):
        code(given, total(given), given.graph.vector(torch.ones(1)))


class Scaled(nn.Module):
    """Scales in place what it has a view of, or has read, or was given."""

    def __init__(self, scale):
        super().__init__()
        self.one, self.two = nn.Linear(32, 32), nn.Linear(32, 32)
        self.act = nn.Sigmoid()
        self.scale = scale
        self.factor = nn.Buffer(torch.tensor([1.0]))

    def forward(self, x):
        return self.scale(self, self.one(x), x)


def view(module, made, x):
    other = made.view(*made.shape[:2], 32)
    made *= module.factor
    return module.two(module.act(made) + other)


def read(module, made, x):
    other = module.act(made)
    made *= module.factor
    return module.two(other + made)


def name(module, made, x):
    other = made
    other *= module.factor
    return module.two(module.act(made))


def own(module, made, x):
    x *= module.factor
    return module.two(module.act(made)) + x


@pytest.mark.parametrize("scale", [view, read, name, own])
@torch.no_grad()
def test_code_that_scales_in_place(scale):
    """The first factor is one, which tells nothing."""
    model = seeded(Scaled, scale)
    optimized = headlane.torch.optimize(model)
    for factor in (1, 1, 0.5, 3):
        for one in (model, optimized):
            one.factor.fill_(factor)
        xs = [normal(2, 5, 32) for _ in range(2)]
        close([optimized(xs[0])], [model(xs[1])])
        assert xs[0].equal(xs[1])
    assert getattr(optimized, "has_plans", False) is (scale is name)
