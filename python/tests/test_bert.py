"""headlane.models.Bert beside transformers, with random weights."""

import json
import shutil
import sys
import threading

import headlane
import numpy as np
import pytest
from random_bert import SMALL, made, random_ids, states_of

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")

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
    """A checkpoint in bfloat16 computes the same as its values in float32."""
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
