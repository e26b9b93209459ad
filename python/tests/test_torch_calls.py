"""headlane.torch: arguments, errors, what stays as it is, threads."""

import functools
import io
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules  # noqa: E402
from headlane.torch_ops import SharedMatrix  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import GatedMlp, Tied, X, normal, seeded  # noqa: E402


@torch.no_grad()
def test_what_stays_as_it_is():
    class Own(nn.Linear):
        def forward(self, input):  # noqa: A002
            return super().forward(input) + 1

    model = nn.ModuleDict(
        {
            "own_": Own(24, 24),
            "double_": nn.Linear(24, 24).double(),
            "meta_": nn.Linear(24, 24, device="meta"),
            "empty_": nn.Linear(24, 0),
            "skipped_": nn.Sequential(nn.Linear(24, 24), nn.ReLU()),
            "axes_": nn.LayerNorm((5, 24)),
            "scaled_": nn.MultiheadAttention(24, 3, add_bias_kv=True),
            "leaky_": nn.LeakyReLU(),
            "convolution_": nn.Conv1d(2, 2, 3),
            "lookup_": nn.Embedding(10, 24),
            "wrapped_": nn.Linear(24, 24),
        }
    ).eval()
    model["wrapped_"].forward = functools.partial(nn.Linear.forward, model["wrapped_"])
    optimized = headlane.torch.optimize(model, skip="skipped_*")
    for name in model:
        if name != "scaled_":  # its output layer is a Linear
            assert not any(isinstance(x, _modules.Replaced) for x in optimized[name].modules()), name
    stream = io.StringIO()
    headlane.torch.report(optimized, stream)
    text = stream.getvalue()
    for reason in (
        "own_ has a forward function of its own",
        "double_ its weight is of torch.float64",
        "meta_ its weight is on meta",
        "empty_ its weight is empty",
        "axes_ it is over several axes",
        "scaled_ has keys of its own",
        "wrapped_ its forward function was replaced",
    ):
        assert reason in " ".join(text.split()), text
    x = X.double()
    torch.testing.assert_close(optimized["double_"](x), model["double_"](x), rtol=0, atol=0)
    assert optimized["own_"](X).equal(model["own_"](X))
    assert optimized["meta_"](X.to("meta")).shape == (2, 5, 24)


@pytest.mark.parametrize("skip", ["1", "?"])
def test_activations_that_are_skipped(skip):
    model = nn.Sequential(nn.Linear(24, 24), nn.GELU()).eval()
    assert type(headlane.torch.optimize(model, skip=skip)[1]) is nn.GELU


@torch.no_grad()
def test_inputs_that_do_not_fit():
    """PyTorch's errors, or those of headlane; nothing is computed."""
    optimized = headlane.torch.optimize(seeded(nn.Linear, 24, 24))
    with pytest.raises(RuntimeError, match="dtype"):
        optimized(X.double())
    with pytest.raises(ValueError, match=r"linear: x of shape \[2, 23\] has 23 columns"):
        optimized(normal(2, 23))
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        optimized(X.to("meta"))
    assert optimized(normal(0, 24)).shape == (0, 24)
    norm = headlane.torch.optimize(nn.LayerNorm(24).eval())
    with pytest.raises(ValueError, match="layer_norm"):
        norm(normal(2, 23))


def test_arguments():
    model = nn.Linear(3, 4).eval()
    with pytest.raises(TypeError, match="optimize: model is int; wanted: a torch.nn.Module"):
        headlane.torch.optimize(3)
    with pytest.raises(ValueError, match="weights is 'int3'; there are 'float32', 'bfloat16'"):
        headlane.torch.optimize(model, "int3")
    with pytest.raises(ValueError, match="activations is 'int4'; there are 'float32', 'int8'"):
        headlane.torch.optimize(model, "int8", "int4")
    for weights, activations in ((None, "int8"), ("bfloat16", "int8"), ("int8", "bfloat16")):
        with pytest.raises(ValueError, match=f"activations='{activations}' needs weights of .*; they are"):
            headlane.torch.optimize(model, weights, activations)
    with pytest.raises(ValueError, match="activations='bfloat16' needs weights of 'bfloat16'; the model has"):
        headlane.torch.optimize(model, activations="bfloat16")
    with pytest.raises(ValueError, match="the model is in training mode; call model.eval\\(\\) first"):
        headlane.torch.optimize(nn.Linear(3, 4))
    with pytest.raises(ValueError, match="has parameters without a shape; call it once"):
        headlane.torch.optimize(nn.LazyLinear(4).eval())
    with pytest.raises(ValueError, match="the model is compiled by torch.jit"):
        headlane.torch.optimize(torch.jit.trace(model, torch.ones(1, 3)))
    optimized = headlane.torch.optimize(model)
    with pytest.raises(ValueError, match="optimized already; headlane.torch.restore"):
        headlane.torch.optimize(optimized)
    for call in (headlane.torch.restore, headlane.torch.report):
        with pytest.raises(ValueError, match="not one that optimize"):
            call(model)


def test_inference_mode():
    optimized = headlane.torch.optimize(seeded(Tied))
    with torch.inference_mode():
        y = optimized(torch.arange(5))
        assert y.is_inference()
    with torch.no_grad():
        torch.testing.assert_close(optimized(torch.arange(5)), y.clone(), rtol=0, atol=0)


@torch.no_grad()
def test_threads():
    optimized = headlane.torch.optimize(seeded(GatedMlp))
    expected = [optimized(X + i) for i in range(8)]
    found = [None] * 8

    def work(i):
        with torch.no_grad():
            found[i] = [optimized(X + i) for _ in range(20)][-1]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, found))


@pytest.fixture
def threads_of(monkeypatch):
    """The numbers of threads that a function is given in calls with 1 and 2 threads of PyTorch."""

    def threads_of(owner, name, call):
        given, real, before = [], getattr(owner, name), torch.get_num_threads()

        def recorded(*arguments, **options):
            given.append(options["num_threads"] if options else arguments[-1])
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, recorded)
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                call()
        finally:
            torch.set_num_threads(before)
        return given

    return threads_of


@torch.no_grad()
def test_modules_have_the_threads_of_pytorch(threads_of):
    optimized = headlane.torch.optimize(seeded(nn.Linear, 24, 24))
    assert threads_of(_modules, "_linear", lambda: optimized(X)) == [1, 2]


Q = normal(1, 2, 5, 8)
OPERATORS = {
    "scaled_dot_product_attention": (headlane, lambda ops, _: ops.scaled_dot_product_attention(Q, Q, Q)),
    "attention_weights": (headlane, lambda ops, _: ops.attention_weights(Q, Q)),
    "layer_norm": (headlane, lambda ops, _: ops.layer_norm(X, X[0, 0], None, 1e-5)),
    "rms_norm": (headlane, lambda ops, _: ops.rms_norm(X, X[0, 0], 1e-5)),
    "gelu": (headlane, lambda ops, _: ops.activation(X, "gelu_tanh")),
    "silu": (headlane, lambda ops, _: ops.activation(X, "silu")),
    "linear": (headlane, lambda ops, weight: ops.linear(X, *weight, None, "float32")),
    "unpack_columns": (
        headlane.PackedMatrix,
        lambda ops, weight: ops.embedding(torch.arange(3), *weight, torch.float32),
    ),
    "unpack": (headlane.PackedMatrix, lambda ops, weight: ops.unpack(*weight, torch.float32, True)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_the_threads_of_pytorch(threads_of, name):
    shared = SharedMatrix(headlane.PackedMatrix(normal(24, 24)))
    owner, call = OPERATORS[name]
    assert threads_of(owner, name, lambda: call(torch.ops.headlane, (shared.bytes, shared.key))) == [1, 2]


@torch.no_grad()
def test_attention_of_transformers_has_the_threads_of_pytorch(threads_of):
    ours = pytest.importorskip("headlane.transformers", reason="transformers is not installed")
    call = threads_of(
        headlane, "scaled_dot_product_attention", lambda: ours.attention_forward(None, Q, Q, Q, None)
    )
    assert call == [1, 2]
