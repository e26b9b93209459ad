"""Translator, and the program headlane-translate, beside transformers and sentencepiece."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from random_t5 import TINY, random_model, torch, transformers, wanted

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")

LITTLE = Path(__file__).parents[2] / "models/little/en-fr"
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


# White space and characters without width: texts without tokens.
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
