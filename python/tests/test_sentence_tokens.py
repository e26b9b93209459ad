"""Special and added tokens of a folder's files, beside those of sentence-transformers."""

import json

import pytest
from sentence_folders import TEXTS, Pair, change, make, models, save_plain, tokenizers


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    save_plain(folder)
    return folder


TEXTS = [*TEXTS, "<new>the <new> cat<other> [MASK]x", "x" * 150]
STRIPS = {"content": "<new>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False}


def same_tokens(folder, texts=TEXTS):
    """Returns those of all texts."""
    pair = Pair(folder)
    theirs = [pair.theirs.tokenize([text])["input_ids"][0].tolist() for text in texts]
    assert pair.ours.tokenize(texts) == theirs
    return theirs


KINDS = ("BertTokenizer", "PreTrainedTokenizerFast")
FILES = [
    ("special_tokens_map", {"cls_token": "[MASK]", "sep_token": "cat"}),
    ("special_tokens_map", {"unk_token": "cat", "eos_token": STRIPS}),
    ("added_tokens", {"<other>": 900, "<new>": 901}),
    ("tokenizer_config", {"added_tokens_decoder": {"900": {**STRIPS, "special": True}}}),
    ("tokenizer_config", {"added_tokens_decoder": {"0": {"content": "at"}, "9": {"content": "sat"}}}),
    ("tokenizer_config", {"extra_special_tokens": ["<other>", "<new>"]}),
    ("tokenizer_config", {"extra_special_tokens": {"q_token": "<new>"}, "p_token": "<other>"}),
    ("tokenizer_config", {"additional_special_tokens": ["<new>"], "bos_token": "<other>"}),
    ("tokenizer_config", {"unk_token": "cat"}),
    ("tokenizer_config", {"cls_token": "<new>", "mask_token": "cat"}),
]


@pytest.mark.parametrize(("name", "members"), FILES, ids=lambda value: str(value)[:60])
def test_tokens_of_files(plain, tmp_path, name, members):
    usual = same_tokens(make(tmp_path / "usual", plain, 3))
    for kind in KINDS:
        folder = make(tmp_path / kind, plain, 3, tokenizer_config={"tokenizer_class": kind})
        change(folder / f"{name}.json", members)
        found = same_tokens(folder)
        assert found != usual or kind != "BertTokenizer"


def test_a_list_of_all_tokens_counts_alone(plain, tmp_path):
    listed = {"900": {**STRIPS, "special": False}}
    folder = make(tmp_path, plain, 3, tokenizer_config={"added_tokens_decoder": listed})
    change(folder / "special_tokens_map.json", {"cls_token": "[MASK]"})
    change(folder / "added_tokens.json", {"<other>": 900})
    same_tokens(folder)


def test_a_model_of_words_in_tokenizer_json(plain, tmp_path):
    """Of a BertTokenizer, its vocabulary counts alone."""
    folder = make(tmp_path / "folder", plain, 3)
    settings = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    settings["model"].update(continuing_subword_prefix="@@", max_input_chars_per_word=3, unk_token="cat")
    change(folder / "tokenizer.json", {"model": settings["model"], "added_tokens": []})
    assert same_tokens(folder) == same_tokens(make(tmp_path / "usual", plain, 3))


@pytest.mark.parametrize("kind", ["XLMRobertaTokenizer", "PreTrainedTokenizerFast"])
def test_spaces_of_an_xlm_roberta(plain, tmp_path, kind):
    """transformers divides texts at spaces, whatever tokenizer.json says, but for a plain tokenizer."""
    folder = make(tmp_path, plain, 3, tokenizer_config={"tokenizer_class": kind, "do_lower_case": "-"})
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = [*special[:4], "\u2581", "\u2581a", *"abc", "\u2581\u2581", special[4]]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram([(one, -1.0) for one in vocabulary], 3, False))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(special)
    ends = {"single": "<s> $A </s>", "special_tokens": [("<s>", 0), ("</s>", 2)]}
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(**ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"cls_token": "<s>", "bos_token": "<s>", "sep_token": "</s>", "eos_token": "</s>"}
    names.update(unk_token="<unk>", pad_token="<pad>", mask_token="<mask>")
    change(folder / "tokenizer_config.json", names)
    found = same_tokens(folder, ["a b", " a", "c ", "  ", "", "a  b <mask> c"])
    assert (found[3] == found[4]) == (kind == "XLMRobertaTokenizer")


@pytest.mark.parametrize(
    ("file", "members", "words"),
    [
        ("tokenizer_config.json", {"cls_token": 5}, "'cls_token' has 5, which is no token"),
        ("tokenizer_config.json", {"sep_token": {"x": 1}}, "'sep_token' has {'x': 1}"),
        ("tokenizer_config.json", {"extra_special_tokens": [3]}, "'extra_special_tokens' has 3"),
        ("special_tokens_map.json", {"cls_token": []}, "'cls_token' has []"),
        (
            "tokenizer_config.json",
            {"extra_special_tokens": 3},
            "'extra_special_tokens' is 3; wanted: list or dict",
        ),
        ("tokenizer_config.json", {"added_tokens_decoder": []}, "'added_tokens_decoder' is []; wanted: dict"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"a": "b"}}, "'a' is no id of a token"),
        ("added_tokens.json", {"b": None}, "None is no id of a token"),
        ("tokenizer_config.json", {"do_lower_case": "yes"}, "'do_lower_case' is 'yes'; wanted: bool"),
        ("tokenizer_config.json", {"truncation_side": 3}, "'truncation_side' is 3; wanted: str"),
        ("tokenizer.json", {"model": {}}, "is not a tokenizer: "),
        ("tokenizer.json", {"truncation": None}, "the vocabulary lacks '<new>', the 'unk_token'"),
    ],
)
def test_refused(plain, tmp_path, file, members, words):
    folder = make(tmp_path, plain, 3)
    change(folder / file, members)
    if "unk_token" in words:
        change(folder / "tokenizer_config.json", {"unk_token": "<new>"})
    with pytest.raises(models.CheckpointError) as error:
        models.SentenceEncoder(folder)
    assert f"{folder}/{file}: {words}" in str(error.value)
