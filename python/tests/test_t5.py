"""T5 beside transformers: logits, and the tokens of generate(), of random models in all shapes; text, and the program that translates."""

import json
import os
import subprocess
from pathlib import Path

import headlane
import numpy as np
import pytest

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

LITTLE = Path(__file__).parents[2] / "models/little/en-fr"
TINY = {"vocab_size": 199, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 3}
SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPES = {
    "tiny": TINY,
    "tiny, 1.1": {
        **TINY,
        **GATED,
        "d_kv": 16,
        "num_decoder_layers": 1,
        "relative_attention_max_distance": 30,
    },
    "small": SMALL,
    "small, 1.1": {**SMALL, **GATED, "d_ff": 1024, "num_heads": 6, "num_layers": 8},
    "base": BASE,
}


def random_model(seed=0, ends=(1,), family="T5", own_head=None, **config):
    """Weights so large that attention is not uniform, and not so large, in deep models, that rounding decides; the head of 1.1 and
    of mT5 is not the embedding, unless own_head says so."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(
        **{"decoder_start_token_id": 0, "eos_token_id": list(ends), "dropout_rate": 0.0, **config}
    )
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name:
                weight.uniform_(0.5, 1.5)
            elif "relative" in name:
                weight.normal_()
            elif "shared" in name:
                weight.normal_()
            else:
                scale = 1.2 if config.num_layers > 2 else 3 if ".q." in name else 2
                weight.normal_(0, scale * weight.shape[1] ** -0.5)
        if own_head is None:
            own_head = not getattr(config, "scale_decoder_outputs", False)
        if own_head:
            head = torch.randn_like(model.shared.weight) * 3 * config.d_model**-0.5
            model.lm_head.weight = torch.nn.Parameter(head)
            model.all_tied_weights_keys.pop("lm_head.weight", None)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    made = {}

    def get(name, **more):
        key = (name, *sorted(more.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("t5")
            model = random_model(**SHAPES[name], **more)
            model.save_pretrained(folder)
            made[key] = model, models.T5(folder)
        return made[key]

    return get


def inputs(vocabulary, lengths, seed=3):
    rng = np.random.default_rng(seed)
    return [[*rng.integers(2, vocabulary, n - 1).tolist(), 1] for n in lengths]


def wanted(model, ids, **options):
    """The tokens of transformers without the padding. It computes a batch padded on the right, with a mask."""
    width = max(map(len, ids))
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    outputs = model.generate(padded, attention_mask=mask, **options).tolist()
    ends = model.generation_config.eos_token_id
    result = []
    for row in outputs:
        places = [i for i, token in enumerate(row) if i > 0 and token in ends]
        result.append(row[: places[0] + 1] if places else row)
    return result


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_as_exact_as_those_of_transformers(saved, name, report):
    model, t5 = saved(name)
    error, theirs, worst, theirs_worst = 0.0, 0.0, 0.0, 0.0
    vocabulary = t5.config.vocab_size
    for seed in range(4 if name.startswith("tiny") else 1):
        ids = inputs(vocabulary, [40], seed)[0]
        output = [0, *inputs(vocabulary, [36], seed + 10)[0]]
        given = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([output])}
        with torch.no_grad():
            single = model.float()(**given).logits[0].numpy()
            exact = model.double()(**given).logits[0].numpy()
            model.float()
        got = t5.logits(ids, output)
        assert got.shape == exact.shape
        error += np.square(got - exact).sum()
        theirs += np.square(single - exact).sum()
        worst = max(worst, np.abs(got - exact).max())
        theirs_worst = max(theirs_worst, np.abs(single - exact).max())
    report(
        f"T5 {name}: logits' error / transformers': {(error / theirs) ** 0.5:.2f}, the largest {worst / theirs_worst:.2f}"
    )
    # Twice theirs, and for 24 layers of random weights, which amplify what single roundings happen to be, three times.
    times = 3 if name == "base" else 2
    assert error <= times**2 * theirs
    assert worst <= times * theirs_worst


# How the family's folders differ in what says whether the decoder's output is scaled: the model, then members of config.json
# as other versions of transformers write them (None: not at all).
VERSIONS_4 = {"tie_word_embeddings": False, "scale_decoder_outputs": None}
FOLDERS = {
    "T5": ({}, {}),
    "T5, version 4": ({}, {"tie_word_embeddings": None, "scale_decoder_outputs": None}),
    "T5 1.1": (GATED, {}),
    "T5 1.1, version 4": (GATED, VERSIONS_4),
    "T5 1.1, both said": (GATED, {"tie_word_embeddings": False, "scale_decoder_outputs": True}),
    "T5, null": ({}, {"tie_word_embeddings": None, "scale_decoder_outputs": False}),
    "T5, a large epsilon": ({"layer_norm_epsilon": 0.5}, {}),
    "mT5": ({"family": "MT5"}, {}),
    "mT5, tied": ({"family": "MT5", "own_head": False}, {}),
    "mT5, version 4": ({"family": "MT5"}, VERSIONS_4),
    "mT5, version 4, tied": ({"family": "MT5", "own_head": False}, {"scale_decoder_outputs": None}),
    "mT5, scaled in vain": ({"family": "MT5"}, {"scale_decoder_outputs": True}),
    "mT5, feed-forward not said": ({"family": "MT5"}, {"feed_forward_proj": None}),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_scaled_as_transformers_scales(tmp_path, name):
    made, members = FOLDERS[name]
    random_model(ends=range(1, 199, 10), **TINY, **made).save_pretrained(tmp_path)
    config = {**json.loads((tmp_path / "config.json").read_text()), **members}
    config = {key: value for key, value in config.items() if key not in members or value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    t5, ids = models.T5(tmp_path), inputs(199, [40, 3, 17, 8])
    output = [0, *inputs(199, [20])[0]]
    with torch.no_grad():
        given = {"input_ids": torch.tensor(ids[:1]), "decoder_input_ids": torch.tensor([output])}
        expected = model(**given).logits[0].numpy()
    assert np.abs(t5.logits(ids[0], output) - expected).max() < 1e-3 * np.abs(expected).max()
    for options in ({"num_beams": 1}, {"num_beams": 4}):
        assert t5.generate(ids, max_length=20, **options) == wanted(model, ids, max_length=20, **options)


def test_other_members_of_the_family_are_refused(tmp_path):
    """UMT5 has a relative bias in every layer."""
    random_model(family="UMT5", **TINY).save_pretrained(tmp_path)
    with pytest.raises(models.CheckpointError, match="'model_type' is 'umt5'"):
        models.T5(tmp_path)


def test_states_of_the_encoder(saved):
    model, t5 = saved("tiny")
    ids = inputs(199, [50])[0]
    with torch.no_grad():
        expected = model.encoder(torch.tensor([ids])).last_hidden_state[0].numpy()
    np.testing.assert_allclose(t5.encode(ids), expected, atol=1e-4)


OPTIONS = {
    "greedy": {},
    "greedy, no 2-gram twice": {"no_repeat_ngram_size": 2, "min_length": 9},
    "4 beams": {"num_beams": 4},
    "4 beams, all finished": {"num_beams": 4, "early_stopping": True},
    "3 beams, to the end": {"num_beams": 3, "early_stopping": "never"},
    "long": {"num_beams": 4, "length_penalty": 2.0, "early_stopping": "never"},
    "short": {"num_beams": 4, "length_penalty": -1.0},
    "no penalty": {"num_beams": 2, "length_penalty": 0.0},
    "5 beams, no token twice": {"num_beams": 5, "no_repeat_ngram_size": 1},
    "min length": {"num_beams": 4, "min_length": 12, "no_repeat_ngram_size": 3, "early_stopping": True},
}


@pytest.mark.parametrize("name", ["tiny", "tiny, 1.1"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_tokens_of_generate(saved, name, options):
    for seed in range(3):
        model, t5 = saved(name, ends=range(1, 199, 10), seed=seed)
        ids = inputs(199, [3, 17, 1, 30, 8], seed)
        expected = wanted(model, ids, max_length=24, **options)
        assert t5.generate(ids, max_length=24, **options) == expected
        assert [t5.generate([row], max_new_tokens=23, **options)[0] for row in ids] == expected


@pytest.mark.parametrize(("name", "length"), [("small", 24), ("small, 1.1", 24), ("base", 10)])
def test_tokens_of_large_models(saved, name, length):
    model, t5 = saved(name)
    ids = inputs(t5.config.vocab_size, [12, 25] if name != "base" else [12])
    # The one of 12 layers would say the same token again and again.
    more = {"no_repeat_ngram_size": 1} if name == "base" else {}
    for options in (more, {"num_beams": 4, **more}):
        expected = wanted(model, ids, max_length=length, **options)
        assert t5.generate(ids, max_length=length, **options) == expected
        assert len({token for row in expected for token in row}) > 2  # not always the same


def test_more_decoder_layers_than_encoder_layers(tmp_path):
    model = random_model(**TINY, num_decoder_layers=4)
    model.save_pretrained(tmp_path)
    ids = inputs(199, [9])
    # transformers' cache has as many layers as the encoder.
    expected = wanted(model, ids, max_length=15, num_beams=3, use_cache=False)
    assert models.T5(tmp_path).generate(ids, max_length=15, num_beams=3) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_in_several_files(tmp_path, dtype):
    model = random_model(**TINY, **GATED).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ids = inputs(199, [9, 4])
    assert models.T5(tmp_path).generate(ids, num_beams=2) == wanted(model.float(), ids, num_beams=2)


def test_the_defaults_are_those_of_generate(tmp_path):
    model = random_model(**TINY)
    model.generation_config.update(num_beams=3, max_new_tokens=11, length_penalty=0.7, early_stopping=True)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["task_specific_params"] = {
        "translation_a_to_b": {"prefix": "a b: ", "num_beams": 2, "max_length": 9}
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    t5, ids = models.T5(tmp_path), inputs(199, [9, 4])
    assert t5.generate(ids) == wanted(model, ids)
    assert t5.defaults()["max_length"] == 12
    assert t5.config.tasks == {"translation_a_to_b": "a b: "}
    expected = wanted(model, ids, num_beams=2, max_length=9, max_new_tokens=None)
    assert t5.generate(ids, task="translation_a_to_b") == expected


def test_the_same_tokens_everywhere(saved, restore):
    _, t5 = saved("tiny, 1.1")
    ids = inputs(199, [9, 4])
    expected, logits = t5.generate(ids, num_beams=4), t5.logits(ids[0], [0, 5, 9])
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        for threads in (1, 3):
            assert t5.generate(ids, num_beams=4, num_threads=threads) == expected
            assert t5.logits(ids[0], [0, 5, 9], num_threads=threads).tobytes() == logits.tobytes()


def test_errors(saved, tmp_path):
    _, t5 = saved("tiny")
    for ids, options, message in [
        ([[1], []], {}, "input 1 has no tokens"),
        ([[199]], {}, "token 199"),
        ([[1]], {"num_beams": 0}, "num_beams is 0"),
        ([[1]], {"max_length": 1}, "max_length is 1"),
        ([[1]], {"early_stopping": "maybe"}, "early_stopping"),
        ([[1]], {"max_length": 5, "max_new_tokens": 5}, "max_new_tokens"),
        ([[1]], {"num_threads": -1}, "num_threads"),
    ]:
        with pytest.raises(ValueError, match=message):
            t5.generate(ids, **options)
    with pytest.raises(TypeError, match="temperature"):
        t5.generate([[1]], temperature=2)
    with pytest.raises(TypeError, match="ids"):
        t5.generate("text")
    with pytest.raises(ValueError, match="no task"):
        t5.generate([[1]], task="translation_a_to_b")
    with pytest.raises(models.CheckpointError, match=r"config\.json"):
        models.T5(tmp_path)


# ---- Text

SENTENCES = ["the cat sits on the mat .", "a dog isn't a cat", "the mat sits on a dog", "cats and dogs sit"]


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    """A random model with a tokenizer of its own."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    folder = tmp_path_factory.mktemp("text")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES, "translate English to French: "] * 20), model_prefix=str(folder / "spiece"),
        vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    size = pieces.get_piece_size() + 7  # as T5 has more tokens than pieces
    model = random_model(ends=(1,), **{**TINY, "vocab_size": size})
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    prefix = "translate English to French: "
    config["task_specific_params"] = {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_fr": {"prefix": prefix, "num_beams": 2, "max_length": 12},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "words.txt").write_text("the\ncat\nisn\na\n")

    def expected(sentence, **options):
        options = {"num_beams": 2, "max_length": 12, **options}
        ids = wanted(model, [[*pieces.encode(prefix + sentence), 1]], **options)[0]
        return pieces.decode([i for i in ids if 2 < i < pieces.get_piece_size()])

    return folder, expected


def test_translator(text_model):
    folder, expected = text_model
    translator = models.Translator(folder)
    assert translator.task == "translation_en_to_fr"
    assert translator.translate(SENTENCES, batch_size=3) == [expected(s) for s in SENTENCES]
    assert translator.translate(SENTENCES[0], num_beams=1) == expected(SENTENCES[0], num_beams=1)
    with pytest.raises(ValueError, match="no task"):
        models.Translator(folder, task="translation_en_to_de")


def test_a_prefix_leaves_the_task_as_it_is(text_model, tmp_path):
    """As in C++: the prefix stands in place of the task's, whose options stay."""
    folder, expected = text_model
    prefix = "translate English to French: "
    long = [" ".join(SENTENCES)]
    named = models.Translator(folder, task="translation_en_to_fr", prefix=prefix)
    only = models.Translator(folder, prefix=prefix)  # there is one translation
    for translator in (named, only):
        assert (translator.task, translator.prefix) == ("translation_en_to_fr", prefix)
        assert translator.translate(long) == [expected(long[0])]
    assert models.Translator(folder, prefix="").tokenize(["a cat"]) != only.tokenize(["a cat"])
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    config["task_specific_params"]["translation_en_to_de"] = {"prefix": "x", "num_beams": 3}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    several = models.Translator(tmp_path, prefix=prefix)  # none of them is meant, as in C++
    assert several.task is None
    assert several.translate(long) == [expected(long[0], num_beams=1, max_length=21)]
    with pytest.raises(ValueError, match="translation_en_to_de, translation_en_to_fr"):
        models.Translator(tmp_path)


# White space, and characters that have no width; what the tokenizer leaves nothing of.
BLANKS = ["", " ", "\t\r\n ", *(chr(c) for c in (0xA0, 0x1680, *range(0x2000, 0x200D), 0x2028, 0x2029))]
BLANKS += [chr(c) for c in (0x202F, 0x205F, 0x3000, 0xFEFF)] + ["\u3000 \u200b\ufeff"]


def test_blank_texts(text_model):
    folder, expected = text_model
    for translator in (models.Translator(folder), models.Translator(folder, prefix="the ")):
        assert translator.translate(BLANKS) == [""] * len(BLANKS)
        assert [translator.translate(text) for text in BLANKS] == [""] * len(BLANKS)
    translator = models.Translator(folder)
    mixed = [*BLANKS[:3], SENTENCES[0], "\u3000", SENTENCES[1], "\u200b"]
    answers = ["", "", "", expected(SENTENCES[0]), "", expected(SENTENCES[1]), ""]
    for batch_size in (1, 2, 32):
        assert translator.translate(mixed, batch_size=batch_size) == answers
    assert translator.translate([]) == []


@pytest.mark.skipif("HEADLANE_TRANSLATE" not in os.environ, reason="HEADLANE_TRANSLATE names no program")
def test_program(text_model):
    folder, expected = text_model

    def run(*arguments, **more):
        command = [os.environ["HEADLANE_TRANSLATE"], *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)

    done = run(folder, *SENTENCES)
    assert (done.returncode, done.stdout.splitlines()) == (0, [expected(s) for s in SENTENCES])
    assert "tokens/s" in done.stderr
    lines = [SENTENCES[0], "", SENTENCES[1], "   ", "\u3000", "\u200b"]
    done = run(folder, "--batch", 3, "--quiet", "--beams", 1, input="\r\n".join(lines))
    assert done.stdout.splitlines() == [
        expected(s, num_beams=1) if s.strip(" \u3000\u200b") else "" for s in lines
    ]
    assert done.stderr == ""
    done = run(folder, "The quetzal isn't a cat, a ☃")
    assert "does not know: quetzal, " in done.stderr
    assert "☃" in done.stderr.split(";")[0]
    assert "isn" not in done.stderr.split(";")[0]
    assert run().returncode == 2
    assert run(folder, "--early-stopping", "maybe", "x").returncode == 2
    assert run(folder, "--task", "nothing", "x").returncode == 2
    assert run(folder / "nowhere", "x").returncode == 1
    assert run("--help").returncode == 0


@pytest.mark.skipif(not (LITTLE / "heldout.tsv").exists(), reason="the small translation model is not there")
def test_little_model():
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    pairs = [line.split("\t") for line in (LITTLE / "heldout.tsv").read_text("utf-8").splitlines()]
    translator = models.Translator(LITTLE)
    outputs = translator.translate([english for english, _ in pairs])
    assert sum(got == french for got, (_, french) in zip(outputs, pairs)) > 0.9 * len(pairs)
    model = transformers.T5ForConditionalGeneration.from_pretrained(LITTLE, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = [1]
    ids = translator.tokenize([english for english, _ in pairs[:40]])
    for options in ({"num_beams": 1}, {"num_beams": 4, "early_stopping": True}):
        assert translator.t5.generate(ids, max_length=64, **options) == wanted(
            model, ids, max_length=64, **options
        )
