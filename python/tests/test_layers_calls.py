"""Calls of the layers: caches, variable-length batches, kinds of arrays, out, threads, errors."""

from concurrent.futures import ThreadPoolExecutor

import headlane
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def decoder():
    module = nn.TransformerDecoderLayer(32, 4, 50, batch_first=True)
    return headlane.DecoderLayer(module.state_dict(), num_heads=4)


def test_cached_decoding(decoder):
    x, memory = rows(2, 30, 32), rows(2, 9, 32, seed=2)
    whole = decoder(x, memory)
    np.testing.assert_array_equal(decoder(x, memory, is_causal=True), whole)
    cache, kept = headlane.KvCache(4, 8, page_size=32), headlane.KvCache(4, 8)
    sequences, others = [cache.add() for _ in x], [kept.add() for _ in x]
    decoder.remember(memory, kept, others)
    for first in range(0, 30, 5):
        got = decoder(
            x[:, first : first + 5],
            cache=cache,
            sequences=sequences,
            memory_cache=kept,
            memory_sequences=others,
        )
        np.testing.assert_array_equal(got, whole[:, first : first + 5])
    assert cache.length(sequences[1]) == 30
    one = decoder(x[1], memory[1])  # [length, d]
    np.testing.assert_array_equal(one, whole[1])
    with pytest.raises(ValueError, match="DecoderLayer.forward: wanted: memory, or cache"):
        decoder(x, memory, cache=cache, sequences=sequences)
    with pytest.raises(ValueError, match="cache and memory_cache are the same"):
        decoder(x, cache=cache, sequences=sequences, memory_cache=cache, memory_sequences=sequences)
    with pytest.raises(ValueError, match="DecoderLayer.forward.*softcap"):
        decoder(x, cache=cache, sequences=sequences, memory_cache=kept, memory_sequences=others, softcap=-1.0)
    assert cache.length(sequences[0]) == 30


def test_attention_over_caches():
    layer = headlane.MultiHeadAttention(nn.MultiheadAttention(32, 4).state_dict(), num_heads=4)
    x, memory = rows(2, 12, 32), rows(2, 7, 32, seed=1)
    cache = headlane.KvCache(4, 8)
    sequences = [cache.add(), cache.add()]
    parts = [layer(x[:, a:b], cache=cache, sequences=sequences) for a, b in ((0, 5), (5, 12))]
    np.testing.assert_array_equal(torch.cat(parts, 1), layer(x, is_causal=True))
    kept = headlane.KvCache(4, 8)
    others = [kept.add(), kept.add()]
    layer.remember(memory, kept, others, key_lengths=[7, 3])
    np.testing.assert_array_equal(
        layer(x, cache=kept, sequences=others, remembered=True), layer(x, memory, key_lengths=[7, 3])
    )
    alone = kept.add()
    layer.remember(memory[0], kept, alone)
    np.testing.assert_array_equal(
        layer(x[0], cache=kept, sequences=alone, remembered=True), layer(x[0], memory[0])
    )


def test_numpy_variable_length_out_and_threads():
    module = nn.TransformerEncoderLayer(32, 4, 50, batch_first=True)
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    layer, x = headlane.EncoderLayer(state, num_heads=4), rows(3, 11, 32).numpy()
    y = layer(x)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(layer(x, num_threads=1), y)
    np.testing.assert_array_equal(layer.forward(x[0]), y[0])
    starts = [0, 11, 22, 33]
    np.testing.assert_array_equal(
        layer(x.reshape(33, 32), query_starts=starts, key_starts=starts), y.reshape(33, 32)
    )
    visible = np.ones((3, 1, 11, 11), bool)
    np.testing.assert_array_equal(layer(x, visible), y)
    np.testing.assert_array_equal(layer(x, key_lengths=[11, 11, 11]), y)
    with ThreadPoolExecutor(4) as pool:
        for one in pool.map(lambda _: layer(x), range(16)):
            np.testing.assert_array_equal(one, y)
    copied = x.copy()
    assert layer(copied, out=copied) is copied
    np.testing.assert_array_equal(copied, y)


STATE = nn.TransformerEncoderLayer(32, 4, 50).state_dict()
X = np.ones((2, 3, 32), np.float32)
ENCODER = headlane.EncoderLayer(STATE, num_heads=4)
LINEAR = headlane.Linear({"weight": np.ones((4, 32), np.float32)})
CASES = {
    "no dict": (lambda: headlane.Linear(X), TypeError, "Linear: state has type ndarray; wanted: a dict"),
    "missing": (lambda: headlane.Linear({}, "a."), ValueError, r"Linear: the state dict has no a\.weight"),
    "float64": (lambda: headlane.Linear({"weight": np.ones((2, 2))}), TypeError, "weight .*float64"),
    "heads": (lambda: headlane.EncoderLayer(STATE, num_heads=5), ValueError, "in_proj_weight has 96 rows"),
    "no heads": (
        lambda: headlane.EncoderLayer(STATE),
        TypeError,
        "required keyword-only argument: 'num_heads'",
    ),
    "activation": (
        lambda: headlane.FeedForward(STATE, activation="swish"),
        ValueError,
        "activation is 'swish'",
    ),
    "norm": (lambda: headlane.EncoderLayer(STATE, num_heads=4, norm="batch"), ValueError, "norm is 'batch'"),
    "width": (lambda: ENCODER(X[..., :5]), ValueError, r"^EncoderLayer\.forward: .*"),
    "rank": (lambda: ENCODER(X[0, 0]), ValueError, r"x has shape \[32\]"),
    "option": (
        lambda: ENCODER(X, causal=True),
        TypeError,
        "EncoderLayer.forward: there is no option 'causal'",
    ),
    "mask": (
        lambda: ENCODER(X, np.ones((3, 4), bool)),
        ValueError,
        r"attn_mask of shape \[3, 4\] does not broadcast",
    ),
    "lengths": (lambda: ENCODER(X, key_lengths=[1, 4]), ValueError, r"key_lengths\[1\] is 4"),
    "out": (lambda: ENCODER(X, out=X[:1]), ValueError, r"out has shape \[1, 3, 32\]"),
    "overlap": (lambda: LINEAR(X, out=X[..., :4]), ValueError, r"^Linear\.forward: .*overlap"),
    "residual": (lambda: LINEAR(X, residual=X), ValueError, r"^Linear\.forward: residual"),
    "threads": (lambda: ENCODER(X, num_threads=-1), ValueError, "num_threads is -1"),
    "id": (lambda: headlane.Embedding({"weight": X[0]})([7]), ValueError, r"ids\[0, 0\] is 7"),
    "ids": (lambda: headlane.Embedding({"weight": X[0]})([0.5]), TypeError, "ids has dtype float64"),
    "not tied": (
        lambda: headlane.Embedding({"weight": X[0]}).logits(X),
        ValueError,
        "Embedding.logits: .*tied",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_errors(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()
