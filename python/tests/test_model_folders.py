"""Folders with settings that are ignored, which is said, and with files that cannot be read, which are named."""

import json
import shutil
import warnings

import pytest
from job_runs import LITTLE, models, run_here


@pytest.fixture
def little(tmp_path):
    """A copy of the small translation model."""
    return shutil.copytree(LITTLE, tmp_path / "little", ignore=shutil.ignore_patterns("*.tsv"))


def change(file, **members):
    file.write_text(json.dumps({**json.loads(file.read_text()), **members}))


def test_settings_of_generation_that_are_ignored(little, tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.Translator(little)
    change(little / "generation_config.json", repetition_penalty=5.0, bad_words_ids=[[124]])
    names = ("repetition_penalty", "bad_words_ids")
    for kind in (models.T5, models.Translator):
        with pytest.warns(UserWarning, match="is ignored") as warned:
            kind(little)
        assert [str(one.message) for one in warned] == [
            f"T5: the model's setting {name} is ignored" for name in names
        ]
    (tmp_path / "text").write_text("The cat is sleeping.\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_here("translate", little, tmp_path / "text", tmp_path / "out") == 0
    notices = [f"headlane-translate: notice: the model's setting {name} is ignored" for name in names]
    assert capsys.readouterr().err.splitlines()[:2] == notices


def test_pieces_that_cannot_be_read(little):
    """The file is named."""
    file = little / "spiece.model"
    whole = file.read_bytes()
    for data in (b"", whole[: len(whole) // 2], b"junk" * 100):
        file.write_bytes(data)
        with pytest.raises(models.CheckpointError, match="spiece.model: is not a model of SentencePiece: "):
            models.Translator(little)


def test_more_pieces_than_tokens(little, monkeypatch):
    import sentencepiece

    monkeypatch.setattr(sentencepiece.SentencePieceProcessor, "get_piece_size", lambda self: 99999)
    with pytest.raises(
        models.CheckpointError, match=r"spiece.model: has 99999 pieces, but 'vocab_size' is \d+"
    ):
        models.Translator(little)
