"""headlane.torch: code of modules that looks like what is recorded, and is not."""

import operator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
import headlane.transformers  # noqa: E402
from decoder_cases import CACHE, LLAMA, attention_of, close, llama_with  # noqa: E402
from headlane.torch._arguments import Input  # noqa: E402
from headlane.torch._attend import attend  # noqa: E402
from headlane.torch._graph import Graph  # noqa: E402
from headlane.torch._mixture_parts import Opaque  # noqa: E402
from headlane.torch._nodes import NotPlain  # noqa: E402
from headlane.torch._values import Unused  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

IDS = torch.arange(3, 43).view(2, 20) % 50
GRAPH = Graph(torch.float32)
X = Input(3).value(GRAPH)
X.node.width = 32
HEADS = X.view(*X.shape[:2], 4, 8).transpose(1, 2)
TABLE = Input(3).value(GRAPH).unsqueeze(1)
COMPLEX = torch.view_as_complex(HEADS.reshape(*HEADS.shape[:-1], -1, 2))
RECORDED = {
    "value": X,
    "table": TABLE,
    "half of a table": TABLE[..., : TABLE.shape[-1] // 2],
    "part": HEADS[..., :4],
    "every second": HEADS[..., ::2],
    "product": HEADS[..., ::2] * TABLE[..., : TABLE.shape[-1] // 2],
    "numbers of heads": X.unsqueeze(-1),
    "complex": COMPLEX,
    "angles": Input("complex").value(GRAPH),
    "mask": Input(None).value(GRAPH),
    "wide mask": Input("wide").value(GRAPH),
    "of positions": HEADS.as_source(),
    "parameter": GRAPH.vector(torch.nn.Parameter(torch.ones(1))),
    "unused": Unused(GRAPH),
    "opaque": Opaque(GRAPH, X.node),
    "parts of heads": X.view(*X.shape[:2], 2, 2, 8),
}


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize(
    "code",
    [
        lambda x: x == 0,
        lambda x: x != 0,
        bool,
        lambda x: 0 if x else 1,
        lambda x: operator.iadd(x, 1),
        lambda x: operator.isub(x, 1),
        lambda x: operator.imul(x, 2),
        lambda x: operator.itruediv(x, 2),
        lambda x: operator.setitem(x, 0, 1),
        lambda x: x.add_(1),
        lambda x: x.sum(),
    ],
)
def test_comparisons_and_changes(name, code):
    with pytest.raises(NotPlain):
        code(RECORDED[name])


FUNCTIONS = [
    torch.exp,
    lambda x: torch.cat((x, x, x), -1),
    lambda x: torch.ones(2) * x,
    lambda x: torch.where(x, 1, 0),
    lambda x: torch.nn.functional.linear(x, torch.ones(2, 2)),
]


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(name, function):
    """Of PyTorch, which would read the memory of a tensor."""
    with pytest.raises((NotPlain, TypeError)):
        function(RECORDED[name])


@pytest.mark.parametrize("mask", ["table", "half of a table", "part", "numbers of heads", "complex"])
def test_masks_that_are_none(mask):
    given = HEADS, HEADS, RECORDED[mask], (), {}
    with pytest.raises(NotPlain):
        attend(HEADS, headlane.transformers, None, *given)


def test_other_axes_of_parts():
    """They are not told, but for whether there is one token, of which a plan is for calls alone."""
    for x in (HEADS[..., :4], TABLE):
        for axis, number in ((0, 1), (2, 2)):
            with pytest.raises(NotPlain):
                assert x.shape[axis] != number
    with pytest.raises(NotPlain):
        assert TABLE.shape[2] != 1
    graph = HEADS.graph
    graph.asks_if_single = False
    assert HEADS[..., :4].shape[2] != 1
    assert graph.asks_if_single
    assert HEADS[..., :4].shape[1:] == (4, HEADS.shape[2], 4)
    with pytest.raises(NotPlain):
        assert torch.repeat_interleave(TABLE, 2, 3).shape


class Attention(torch.nn.Module):
    """Of 4 heads of 8, with code of its own in `turn` and `attend`."""

    def __init__(self, config, layer):
        super().__init__()
        self.config, self.layer, self.is_causal = config, layer, True
        self.q, self.k, self.v, self.out = (torch.nn.Linear(32, 32, bias=False) for _ in range(4))
        self.act = torch.nn.Softsign()

    def turn(self, q, cos, sin):
        return q

    def attend(self, x, tables, mask, cache=None):
        q, k, v = (f(x).view(*x.shape[:2], -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        if tables is not None:
            q, k = self.turn(q, *tables), self.turn(k, *tables)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        made, weights = attention_of(self, q, k, v, mask)
        return self.out(made.reshape(*x.shape[:2], -1)), weights

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, **options):
        return self.attend(hidden_states, position_embeddings, attention_mask, options.get(CACHE))


class InPlace(Attention):
    def turn(self, q, cos, sin):
        turned, cos, sin = q[..., :4], cos.unsqueeze(1)[..., :4], sin.unsqueeze(1)[..., :4]
        other = torch.cat((-turned[..., 2:], turned[..., :2]), dim=-1) * sin
        turned *= cos
        turned += other
        return q


class ByLength(Attention):
    """A prompt is turned, and a token not."""

    def turn(self, q, cos, sin):
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        if q[..., :8].shape[2] == 1 or cos.shape[2] == 1:
            return q
        return (q * cos) + (modeling_llama.rotate_half(q) * sin)


class Repeated(Attention):
    """As many numbers as repeated tables have: all."""

    def turn(self, q, cos, sin):
        cos, sin = (torch.repeat_interleave(x[..., :4].unsqueeze(1), 2, 3) for x in (cos, sin))
        some = q[..., : cos.shape[-1]]
        stacked = torch.stack((-some[..., 1::2], some[..., ::2]), dim=-1).flatten(-2)
        return torch.cat(((some * cos) + (stacked * sin), q[..., cos.shape[-1] :]), dim=-1)


@pytest.mark.parametrize("lengths", [[1, 1, 1, 5], [8, 1, 1, 8], [2, 6, 1]], ids=str)
@pytest.mark.parametrize("kind", [Attention, InPlace, ByLength, Repeated])
@torch.no_grad()
def test_code_of_positions(kind, lengths):
    model = llama_with(kind)
    optimized, made = headlane.torch.optimize(model), []
    for one in (model, optimized, optimized):
        cache, first = transformers.DynamicCache(config=model.config), 0
        made.append([])
        for length in lengths:
            ids = IDS[:, first : first + length]
            made[-1].append(one(ids, **{CACHE: cache}, use_cache=True).logits)
            first += length
    close(made[1], made[0])
    close(made[2], made[0])


class Scaled(Attention):
    def forward(self, x, mask):
        mask = mask * 2.0
        return self.attend(self.act(x), None, mask)[0]


class Twice(Attention):
    def forward(self, x, mask):
        one = mask + mask
        two = one + mask
        x = x + self.attend(x, None, two)[0]
        return x + self.attend(x, None, one)[0]


class Unsqueezed(Attention):
    def forward(self, x, mask):
        return self.attend(x, None, mask.unsqueeze(1))[0]


class Hidden(Attention):
    def forward(self, x, mask):
        x = x * (1.0 * (mask != 0))
        return self.out(x)


@pytest.mark.parametrize("kind", [Scaled, Twice, Unsqueezed, Hidden])
@torch.no_grad()
def test_masks_that_are_computed(kind):
    """The first mask hides nothing."""
    shape = {Unsqueezed: (4, 6, 6), Hidden: (4, 6, 1)}.get(kind, (4, 1, 6, 6))
    nothing = torch.full(shape, float(kind is Hidden))
    some = nothing.clone()
    some[0, ..., :3, 0] = 0 if kind is Hidden else -30
    some[1, ..., 2:, 0] = 0 if kind is Hidden else -20
    model = llama_with(kind)
    own, ours = (x.model.layers[1].self_attn for x in (model, headlane.torch.optimize(model)))
    for count in (1, 4):
        for mask in (nothing, some):
            given = normal(count, 6, 32), mask[:count]
            close([ours(*given)], [own(*given)])


@pytest.mark.parametrize("name", ["Qwen3_5Text", "Lfm3", "Llama"])
@torch.no_grad()
def test_bits_of_a_first_token(name):
    """A token alone has the bits of a prompt's first, before and after there is a plan."""
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"transformers has no {name}")
    kinds = {} if name == "Llama" else {"layer_types": ["full_attention"] * 2}
    config = getattr(transformers, f"{name}Config")(**LLAMA, head_dim=8, **kinds)
    model = headlane.torch.optimize(seeded(transformers.AutoModelForCausalLM.from_config, config))
    first = [model(x[None, None], use_cache=False).logits for x in IDS[0]]
    at_once = model(IDS[:, :4].flip(1), use_cache=False).logits
    later = [model(x[None, None], use_cache=False).logits for x in IDS[0]]
    assert all(x.equal(y) for x, y in zip(first, later))
    assert at_once[0, 0].equal(later[3][0, 0])
