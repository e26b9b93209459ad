"""What programs do beside calling models: registries of classes, pickles of their own, sparse inputs, hooks."""

import copy
import pickle
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.modules import module as hooks  # noqa: E402
from torch_cases import normal  # noqa: E402


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


class Registered(Pair):
    known = {}

    def __init_subclass__(cls, *, kind, **options):
        super().__init_subclass__(**options)
        assert kind not in Registered.known
        Registered.known[kind] = cls


class Net(Registered, kind="net"):
    pass


class Locked(Pair):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __getstate__(self):
        return {name: x for name, x in self.__dict__.items() if name not in ("lock", "_headlane")}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.lock = threading.Lock()


class Versioned(Pair):
    def __getstate__(self):
        return 2, self.__dict__.copy()

    def __setstate__(self, state):
        super().__setstate__(state[1])


class Sized(Pair):
    """With the usual __deepcopy__, and an argument that a call without any does not have."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return super().forward(x) * self.scale

    def __deepcopy__(self, memo):
        kind = self.__class__
        made = kind.__new__(kind)
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            made.__dict__[name] = copy.deepcopy(value, memo)
        return made


class Partly(Sized):
    """Of which a copy does not have all attributes."""

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        made.__init__(self.scale)
        made.load_state_dict(self.state_dict())
        return made.eval()


@pytest.fixture(autouse=True)
def _without_gradients():
    torch.manual_seed(5)
    with torch.no_grad():
        yield


def check(model, result, *inputs):
    """The result is that of the model before it was optimized."""
    expected = model(*inputs)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_classes_that_register_themselves():
    model, x = Net().eval(), normal(3, 16)
    fused = headlane.torch.optimize(model)
    check(model, fused(x), x)
    assert Registered.known == {"net": Net}
    assert isinstance(fused, Net)

    class Other(type(fused), kind="other"):  # as parametrizations do
        pass

    assert Registered.known.pop("other") is Other


@pytest.mark.parametrize("kind", [Locked, Versioned, lambda: torch.fx.symbolic_trace(Pair())])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_states_of_their_own(kind, copied):
    model, x = kind().eval(), normal(3, 16)
    fused = headlane.torch.optimize(model)
    for y in (fused, copied(fused), copied(headlane.torch.optimize(nn.Sequential(fused).eval()))):
        check(model, y(x), x)
    if not isinstance(model, torch.fx.GraphModule):  # a copy of one is made of its graph
        restored = copied(fused)
        headlane.torch.restore(restored)
        check(model, restored(x), x)


@pytest.mark.parametrize("kind", [Sized, Partly])
def test_copies_by_the_class(kind):
    model, x = kind(0.5).eval(), normal(3, 16)
    fused = headlane.torch.optimize(model)
    made = copy.deepcopy(fused)
    assert type(made) is (type(fused) if kind is Sized else kind)
    for y in (made, copy.deepcopy(made), headlane.torch.optimize(nn.Sequential(fused).eval())):
        check(model, y(x), x)
    if kind is Sized:
        headlane.torch.restore(made)
        assert made(x).equal(model(x))


@pytest.mark.parametrize("sparse", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_sparse_inputs(sparse):
    model, x = Pair().eval(), normal(5, 16).relu()
    check(model, headlane.torch.optimize(model)(sparse(x)), sparse(x))


def test_scripts_are_refused():
    for model in (Pair().eval(), nn.Linear(16, 16).eval()):
        fused = headlane.torch.optimize(model)
        for each in (fused, nn.Sequential(fused)):
            with pytest.raises(
                RuntimeError, match=r"torch.jit.script of an optimized model; restore\(model\)"
            ):
                torch.jit.script(each)
        headlane.torch.restore(fused)
        check(model, torch.jit.script(fused)(x := normal(3, 16)), x)


def test_global_hooks_see_every_module():
    model, x = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).eval(), normal(2, 5, 16)
    fused = headlane.torch.optimize(model)
    fused(x, x)
    seen = []

    def hook(module, inputs, y):
        seen.append(type(module).__name__)
        return y * 1.5 if module in (model.linear1, fused.linear1) else None

    handle = hooks.register_module_forward_hook(hook)
    try:
        result = fused(x, x)
        count = len(seen)
        check(model, result, x, x)
    finally:
        handle.remove()
    assert len(seen) == 2 * count


def test_an_embedding_whose_norms_are_limited():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.out = nn.Embedding(30, 16, max_norm=1.0), nn.Linear(16, 30, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, numbers):
            return self.out(self.embedding(numbers))

    model, numbers = Tied().eval(), torch.arange(12).view(2, 6)
    fused = headlane.torch.optimize(copy.deepcopy(model))
    check(model, fused(numbers), numbers)


def test_weights_of_eager_attention_in_a_hook():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 48}
    config = transformers.BertConfig(vocab_size=99, attn_implementation="eager", **sizes)
    model, numbers = transformers.BertModel(config).eval(), torch.arange(3, 17).view(2, 7)
    found = []
    for x in (model, headlane.torch.optimize(model)):
        attention = x.encoder.layer[0].attention.self
        handle = attention.register_forward_hook(lambda module, inputs, y: found.append(y[1]))
        x(numbers)
        handle.remove()
    torch.testing.assert_close(*found)


def test_eager_attention_of_float64():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from headlane.torch._transformers import _eager_attention_forward

    config = transformers.BertConfig(hidden_size=32, num_attention_heads=4)
    module = transformers.models.bert.modeling_bert.BertSelfAttention(config).double().eval()
    q, mask = normal(1, 4, 3, 8).double(), torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    result, _ = _eager_attention_forward(module, q, q, q, mask, scaling=0.5)
    expected = nn.functional.scaled_dot_product_attention(q, q, q, mask, scale=0.5).transpose(1, 2)
    torch.testing.assert_close(result, expected)
