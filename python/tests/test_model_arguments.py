"""Arguments of headlane.models: folders, texts, tokens and options of wrong types, each named; and
empty ones.
"""

import inspect
import os

import calls
import numpy as np
import pytest
from small_bert import write_bert

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
KINDS = (models.T5, models.Translator, models.Bert, models.SentenceEncoder)
SURROGATES = ("\ud800", "a\udfff", "\udc80b")


@pytest.fixture(scope="module")
def t5():
    return models.T5(calls.LITTLE)


@pytest.fixture(scope="module")
def translator():
    pytest.importorskip("sentencepiece")
    return models.Translator(calls.LITTLE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    write_bert(path)
    return path


@pytest.fixture(scope="module")
def bert(folder):
    return models.Bert(folder)


@pytest.fixture(scope="module")
def encoder(folder):
    tokenizers = pytest.importorskip("tokenizers")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    model = tokenizers.models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))
    return models.SentenceEncoder(folder)


def needs(kind):
    pytest.importorskip(
        {"Translator": "sentencepiece", "SentenceEncoder": "tokenizers"}.get(kind.__name__, "numpy")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_folders(kind, tmp_path):
    needs(kind)
    for wrong in (3, None, ["a"]):
        with pytest.raises(
            TypeError, match=f": folder has type {type(wrong).__name__}; wanted: str or os.PathLike"
        ):
            kind(wrong)
    for path in (f"{calls.LITTLE}\0.bak", f"{calls.LITTLE}\0".encode()):
        with pytest.raises(ValueError, match="folder is .*which has a NUL"):
            kind(path)
    with pytest.raises(ValueError, match="folder is '.ud800', which can be no file's name"):
        kind("\ud800")
    for name in ("google-t5/t5-small", "all-MiniLM-L6-v2", tmp_path / "none"):
        with pytest.raises(
            models.CheckpointError, match="there is no folder .*downloads nothing.*snapshot_download"
        ):
            kind(name)


def test_weights():
    types = "float32, bfloat16, float16, int8, int8_group32 and int4_group32"
    with pytest.raises(ValueError, match=f"T5: weights is 'int3'; there are {types}"):
        models.T5(calls.LITTLE, weights="int3")
    with pytest.raises(TypeError, match="Bert: weights is 8; wanted: a str"):
        models.Bert(calls.LITTLE, weights=8)


def test_activations(folder):
    for kind, path in ((models.T5, calls.LITTLE), (models.Bert, folder)):
        name = kind.__name__
        with pytest.raises(
            ValueError, match=f"{name}: activations is 'float16'; there are float32, bfloat16 and int8"
        ):
            kind(path, weights="int8", activations="float16")
        with pytest.raises(TypeError, match=f"{name}: activations is 8; wanted: a str"):
            kind(path, activations=8)
        for weights in ("float32", "bfloat16"):
            with pytest.raises(
                ValueError, match=f"^{name}: .* is a PackedMatrix of {weights}; with activations"
            ):
                kind(path, weights=weights, activations="int8")
        assert kind(path).activations == "float32"
        assert kind(path, weights="int8", activations="int8").activations == "int8"


def test_names_of_any_bytes(folder, tmp_path):
    """Files may have names that are no UTF-8."""
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.symlink(folder, name)
    for given in (name, os.fsdecode(name)):
        bert = models.Bert(given)
        assert os.fsencode(bert.folder) == name
        assert bert.embed([[1, 2]]).shape == (1, 64)
    os.mkdir(name + b"2")
    with pytest.raises(models.CheckpointError, match=r"/\\xff\\xfe2/config.json: cannot be opened"):
        models.Bert(name + b"2")


def test_texts(translator, encoder):
    for function, name in (
        (translator.translate, "translate"),
        (translator.tokenize, "tokenize"),
        (encoder.encode, "encode"),
        (encoder.tokenize, "tokenize"),
    ):
        for wrong in (3, None, b"bytes"):
            with pytest.raises(
                TypeError, match=rf"{name}: texts\[1\] has type {type(wrong).__name__}; wanted: str"
            ):
                function(["a", wrong])
            with pytest.raises(TypeError, match=f"{name}: texts has type {type(wrong).__name__}"):
                function(wrong)
        for text in SURROGATES:
            with pytest.raises(
                ValueError, match=rf"{name}: texts\[2\] is no Unicode text: it has the surrogate"
            ) as caught:
                function(iter(["a", "b", text]))
            assert not isinstance(caught.value, UnicodeError)
            if name in ("translate", "encode"):
                with pytest.raises(ValueError, match=f"{name}: texts is no Unicode text"):
                    function(text)
    with pytest.raises(TypeError, match="tokenize: texts has type str"):
        translator.tokenize("a")


def test_names(translator, encoder, t5):
    for text in SURROGATES:
        for option in ("task", "prefix"):
            with pytest.raises(ValueError, match=f"Translator: {option} is no Unicode text"):
                models.Translator(calls.LITTLE, **{option: text})
        for option in ("prompt", "prompt_name"):
            with pytest.raises(ValueError, match=f"encode: {option} is no Unicode text"):
                encoder.encode("a", **{option: text})
        with pytest.raises(ValueError, match="task is .*no Unicode text"):
            t5.defaults(text)
        with pytest.raises(ValueError, match="pooling is .*no Unicode text"):
            encoder.encode("a", pooling=text)
    for option in ("task", "prefix"):
        with pytest.raises(TypeError, match=f"Translator: {option} has type int; wanted: str"):
            models.Translator(calls.LITTLE, **{option: 3})
    for option in ("prompt", "prompt_name"):
        with pytest.raises(TypeError, match=f"encode: {option} has type int; wanted: str"):
            encoder.encode("a", **{option: 0})
    with pytest.raises(TypeError, match="defaults: task is 0; wanted: a str"):
        t5.defaults(0)


INTEGER, NUMBER, FLAG = ((1.5, "2", None), ("2", None, [1]), (1, "yes", 0.0))
OPTIONS = {
    "num_beams": INTEGER,
    "max_length": INTEGER,
    "max_new_tokens": INTEGER,
    "min_length": INTEGER,
    "length_penalty": NUMBER,
    "early_stopping": (1, None, 0.0),
    "no_repeat_ngram_size": INTEGER,
    "num_threads": (1.5, "2"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_generate(t5, translator, option):
    assert OPTIONS.keys() - {"num_threads", "max_new_tokens"} == t5.defaults().keys()
    for value in OPTIONS[option]:
        with pytest.raises(TypeError, match=f"generate: {option} is "):
            t5.generate([[1]], **{option: value})
        with pytest.raises(TypeError, match=f"generate: {option} is "):
            translator.translate("a", **{option: value})


def test_options_of_others(t5, translator, bert, encoder):
    given = {
        bert.embed: (
            [[1]],
            {"pooling": (3, ["cls"]), "normalize": FLAG, "truncate": FLAG, "prompt_tokens": INTEGER},
        ),
        bert.encode: ([[1]], {"truncate": FLAG}),
        encoder.encode: (
            ["a"],
            {"batch_size": INTEGER, "pooling": (3,), "normalize": FLAG, "prompt": (1,), "prompt_name": (1,)},
        ),
        translator.translate: (["a"], {"batch_size": INTEGER}),
        t5.encode: ([1], {}),
    }
    for function, (first, options) in given.items():
        keywords = {
            p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY
        }
        assert keywords - {"token_type_ids", "out"} == {*options, "num_threads"}, function
        for option, values in {**options, "num_threads": (1.5, "2")}.items():
            for value in values:
                with pytest.raises(TypeError, match=rf"\w+: {option} (is|has type) "):
                    function(first, **{option: value})
    with pytest.raises(TypeError, match="logits: num_threads is 2.0; wanted: an integer"):
        t5.logits([1], [0], num_threads=2.0)


def test_tokens(t5, translator):
    for function, name in (
        (t5.encode, "encode: ids"),
        (lambda x: t5.logits(x, [0]), "logits: ids"),
        (lambda x: t5.logits([1], x), "logits: output"),
        (translator.detokenize, "detokenize: ids"),
        (lambda x: t5.generate([x]), r"generate: ids\[0\]"),
    ):
        with pytest.raises(TypeError, match=rf"{name}\[1\] is 2.5; wanted: an integer"):
            function([1, 2.5])
        with pytest.raises(TypeError, match=rf"{name}\[0\] is '1'; wanted: an integer"):
            function(["1"])
    for function in (t5.encode, lambda x: t5.generate([x])):
        with pytest.raises(TypeError, match="has type str; wanted: a sequence of integers"):
            function("text")
        function(np.array([3, 1]))


def test_nothing_to_do(bert, encoder, translator, t5):
    """Empty results of the right shape."""
    assert bert.embed([]).shape == bert.embed([], pooling="none").shape == (0, 64)
    assert bert.embed([]).dtype == np.float32
    out = np.zeros((0, 64), np.float32)
    assert bert.embed([], out=out) is out
    with pytest.raises(ValueError, match=r"out has shape \[1, 64\], the result \[0, 64\]"):
        bert.embed([], out=np.zeros((1, 64), np.float32))
    assert bert.encode([]) == []
    assert encoder.encode([]).shape == (0, 64)
    assert t5.generate([]) == []
    assert translator.translate([]) == []


def test_objects_that_were_not_initialised(t5):
    for kind in KINDS:
        empty = kind.__new__(kind)
        for call in (repr, lambda x: x.__reduce__(), lambda x: x.encode([]), lambda x: x.config):
            with pytest.raises(AttributeError):
                call(empty)


def test_signatures():
    for name in models.__all__:
        one = getattr(models, name)
        assert inspect.getdoc(one) or name == "CheckpointError"
        if name != "CheckpointError":
            inspect.signature(one)
        for function in vars(one).values():
            if inspect.isfunction(function):
                inspect.signature(function)
