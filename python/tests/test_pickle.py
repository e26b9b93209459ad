"""Pickles and copies: matrices, layers and caches as their numbers, models as their folder."""

import copy
import importlib.util
import multiprocessing
import pickle

import calls
import headlane
import numpy as np
import pytest

RNG = np.random.default_rng(1)


def copies(x):
    """From pickles of every protocol."""
    return [pickle.loads(pickle.dumps(x, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 5), (1, 1), (7, 33), (512, 32), (513, 31), (1100, 70)])
def test_packed_matrices(shape):
    b = RNG.standard_normal(shape, np.float32)
    matrix = headlane.PackedMatrix(b)
    np.testing.assert_array_equal(matrix.unpack(), b)
    assert copy.copy(matrix) is copy.deepcopy(matrix) is matrix
    a = RNG.standard_normal((3, shape[0]), np.float32)
    for other in copies(matrix):
        assert type(other) is headlane.PackedMatrix
        assert other.shape == shape
        assert headlane.gemm(a, other).tobytes() == headlane.gemm(a, matrix).tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "int8_group32", "int4_group32"])
def test_packed_matrices_keep_their_type(dtype):
    matrix = headlane.PackedMatrix(RNG.standard_normal((7, 33), np.float32), dtype=dtype)
    for other in copies(matrix):
        assert other.dtype == dtype
        assert other.unpack().tobytes() == matrix.unpack().tobytes()


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


def states(d=40, heads=5, kv_heads=1, dim=24, d_ff=70, gated=True):
    """Widths that are no multiples of 32, grouped heads, gates."""
    columns = (heads + 2 * kv_heads) * dim
    attention = {
        "in_proj_weight": normal(columns, d),
        "in_proj_bias": normal(columns),
        "out_proj.weight": normal(d, heads * dim),
        "out_proj.bias": normal(d),
    }
    feed_forward = {
        f"linear{i}.{what}": x
        for i, n, k in ((1, d_ff, d), (2, d, d_ff))
        for what, x in (("weight", normal(n, k)), ("bias", normal(n)))
    }
    if gated:
        feed_forward.update({"linear_gate.weight": normal(d_ff, d), "linear_gate.bias": normal(d_ff)})
    norms = {f"norm{i}.{what}": normal(d) for i in (1, 2, 3) for what in ("weight", "bias")}
    both = {f"{part}.{name}": x for part in ("self_attn", "multihead_attn") for name, x in attention.items()}
    return attention, feed_forward, {**both, **feed_forward, **norms}


ATTENTION, FEED_FORWARD, DECODER = states()
ENCODER = {n: x for n, x in DECODER.items() if not n.startswith(("multihead_attn", "norm3"))}
CROSS = {
    **{
        f"{which}_proj_weight": normal(24 * (5 if which == "q" else 1), 40 if which == "q" else 50)
        for which in "qkv"
    },
    "in_proj_bias": normal(7 * 24),
    "out_proj.weight": normal(40, 120),
}
GROUPED = {"num_heads": 5, "num_kv_heads": 1}
X, MEMORY = normal(2, 9, 40), normal(2, 6, 50)
LAYERS = {
    "Linear": (headlane.Linear, {"weight": normal(33, 40), "bias": normal(33)}, {}, lambda f: f(X)),
    "Linear without bias": (headlane.Linear, {"weight": normal(600, 40)}, {}, lambda f: f(X)),
    "Embedding": (
        headlane.Embedding,
        {"weight": normal(50, 33)},
        {"max_length": 3},
        lambda f: f([[1, 2, 49, 3]], truncate=True),
    ),
    "Embedding, tied": (
        headlane.Embedding,
        {"weight": normal(50, 40)},
        {"tied": True},
        lambda f: f.logits(f([[1, 49]])),
    ),
    "FeedForward": (headlane.FeedForward, FEED_FORWARD, {"activation": "silu"}, lambda f: f(X)),
    "MultiHeadAttention": (
        headlane.MultiHeadAttention,
        ATTENTION,
        {**GROUPED, "scale": 0.7},
        lambda f: f(X, is_causal=True),
    ),
    "cross-attention": (headlane.MultiHeadAttention, CROSS, GROUPED, lambda f: f(X, MEMORY)),
    "EncoderLayer": (
        headlane.EncoderLayer,
        ENCODER,
        {**GROUPED, "norm_first": True, "layer_norm_eps": 0.1},
        lambda f: f(X),
    ),
    "EncoderLayer, RMS": (
        headlane.EncoderLayer,
        {n: x for n, x in ENCODER.items() if "norm" not in n or "weight" in n},
        {**GROUPED, "norm": "rms", "activation": None},
        lambda f: f(X),
    ),
    "DecoderLayer": (
        headlane.DecoderLayer,
        DECODER,
        {**GROUPED, "activation": "gelu"},
        lambda f: f(X, X[:, :5]),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    kind, state, options, run = LAYERS[name]
    layer = kind({f"a.b.{n}": x for n, x in state.items()}, "a.b.", **options)
    own = layer.state_dict()
    assert own.keys() == state.keys()
    for key, value in state.items():
        np.testing.assert_array_equal(own[key], value, strict=True)
    assert copy.copy(layer) is copy.deepcopy(layer) is layer
    expected = run(layer).tobytes()
    for other in copies(layer):
        assert type(other) is kind
        assert run(other).tobytes() == expected


class OwnLinear(headlane.Linear):
    pass


def test_a_derived_layer_keeps_its_class():
    assert {type(other) for other in copies(OwnLinear({"weight": normal(3, 4)}))} == {OwnLinear}


@pytest.mark.parametrize("weights", ["bfloat16", "float16", "int8", "int8_group32", "int4_group32"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_keep_the_type_of_their_weights(name, weights):
    kind, state, options, run = LAYERS[name]
    layer = kind(state, **options, weights=weights)
    expected = run(layer).tobytes()
    assert expected != run(kind(state, **options)).tobytes()
    assert expected == run(kind(layer.state_dict(), **options)).tobytes()  # in float32
    for other in copies(layer):
        assert run(other).tobytes() == expected


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "Embedding"])  # which has no product
def test_layers_keep_the_type_of_their_activations(name):
    kind, state, options, run = LAYERS[name]
    layer = kind(state, **options, weights="int8", activations="int8")
    expected = run(layer).tobytes()
    assert expected != run(kind(state, **options, weights="int8")).tobytes()
    for other in copies(layer):
        assert run(other).tobytes() == expected


def test_projections_of_one_width_come_as_one():
    q, k, v = (normal(8, 8) for _ in range(3))
    state = {"q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v, "out_proj.weight": normal(8, 8)}
    layer = headlane.MultiHeadAttention(state, num_heads=2)
    np.testing.assert_array_equal(layer.state_dict()["in_proj_weight"], np.concatenate([q, k, v]))


def grown(page_size=32, max_pages=0, dtype="float32"):
    """A cache with a history: shared pages, free numbers, truncated and empty sequences."""
    cache = headlane.KvCache(2, 5, 7, page_size=page_size, max_pages=max_pages, dtype=dtype)

    def append(sequence, tokens):
        cache.append(sequence, normal(2, tokens, 5), normal(2, tokens, 7))

    first, second, third = cache.add(), cache.add(), cache.add()
    append(first, 100)
    append(third, 3)
    whole, part = cache.fork(first), cache.fork(first, 64)
    append(part, 40)
    longer = cache.fork(first, 70)
    append(longer, 90)
    cache.truncate(first, 50)
    deep = cache.fork(longer, 150)
    gone = cache.fork(deep)
    cache.remove(second)
    cache.remove(gone)
    cache.remove(third)
    assert cache.add() == third
    return cache, [first, third, whole, part, longer, deep]


def contents(cache, numbers):
    q = calls.RNG.__class__(np.random.PCG64(3)).standard_normal((1, 2, 4, 5), np.float32)
    return [headlane.attention_over_cache(q, cache, [n]).tobytes() for n in numbers]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("page_size", [32, 128])
def test_caches(page_size, dtype):
    cache, numbers = grown(page_size, dtype=dtype)
    lengths, expected = [cache.length(n) for n in numbers], contents(cache, numbers)
    for other in (*copies(cache), copy.copy(cache), copy.deepcopy(cache)):
        assert repr(other) == repr(cache)  # the sizes, and the pages in use
        assert [other.length(n) for n in numbers] == lengths
        assert contents(other, numbers) == expected
        other.append(numbers[2], normal(2, 1, 5), normal(2, 1, 7))  # of its own
        assert cache.length(numbers[2]) == 100
        cache_numbers, other_numbers = pickle.loads(pickle.dumps(cache)), other
        assert [cache_numbers.add() for _ in range(4)] == [other_numbers.add() for _ in range(4)]
    assert contents(cache, numbers) == expected


def test_a_cache_at_its_limit():
    pages = grown()[0].pages_in_use
    cache, numbers = grown(max_pages=pages + 3)  # which the history needs for a while
    other = pickle.loads(pickle.dumps(cache))
    assert contents(other, numbers) == contents(cache, numbers)
    for one in (cache, other):
        with pytest.raises(ValueError, match=f"max_pages is {pages + 3}"):
            one.append(numbers[0], normal(2, 500, 5), normal(2, 500, 7))


def test_plans():
    plan = headlane.plan_attention(calls.Q, calls.Q, calls.Q)
    assert copies(plan) == [plan] * len(copies(plan))


def models():
    return pytest.importorskip("headlane.models", reason="headlane was built without its models")


def test_t5_and_its_translator():
    pytest.importorskip("sentencepiece")
    made = models().Translator(calls.LITTLE, prefix="")
    ids = made.tokenize(["the cat sees the dog"])
    expected = made.t5.generate(ids, max_length=12), made.translate("the cat sees the dog")
    assert copy.copy(made.t5) is copy.deepcopy(made.t5) is made.t5
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert (other.task, other.prefix, other.t5.folder) == (made.task, made.prefix, made.t5.folder)
        assert (other.t5.generate(ids, max_length=12), other.translate("the cat sees the dog")) == expected
    t5 = pickle.loads(pickle.dumps(made.t5))
    assert t5.generate(ids, max_length=12) == expected[0]
    assert copies(t5.config) == [t5.config] * len(copies(t5.config))


@pytest.mark.parametrize(("weights", "activations"), [("bfloat16", "float32"), ("int8", "int8")])
def test_models_keep_the_types_of_weights_and_activations(weights, activations):
    t5 = models().T5(calls.LITTLE, weights=weights, activations=activations)
    states = t5.encode([3, 4, 5, 1]).tobytes()
    for other in copies(t5):
        assert (other.weights, other.activations) == (weights, activations)
        assert other.folder == str(calls.LITTLE)
        assert other.encode([3, 4, 5, 1]).tobytes() == states
    if importlib.util.find_spec("sentencepiece"):
        for other in copies(models().Translator(calls.LITTLE, weights=weights, activations=activations)):
            assert (other.t5.weights, other.t5.activations) == (weights, activations)


def test_the_path_is_absolute(monkeypatch):
    monkeypatch.chdir(calls.LITTLE.parent)
    t5 = models().T5(calls.LITTLE.name)
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(t5)).folder == str(calls.LITTLE)


def test_errors_cross_processes():
    error = models().CheckpointError("words")
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == "words"


def multiplied(matrix):
    return headlane.gemm(np.ones((1, 3), np.float32), matrix)


def test_as_arguments_of_other_processes():
    matrix = headlane.PackedMatrix(normal(3, 4))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(multiplied, (matrix,)), multiplied(matrix))
