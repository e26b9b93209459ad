"""Options of jobs that are refused: by one line, with a status of 2 where they are no values of their kind."""

import pytest
from job_runs import LITTLE, run_here


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--early-stopping", "maybe"], "--early-stopping: invalid true, false or never value: 'maybe'"),
        (["--piece-lines", str(1 << 63)], f"--piece-lines: {1 << 63}, the maximum is {(1 << 63) - 1}"),
    ],
)
def test_wrong_values(tmp_path, capsys, options, message):
    (tmp_path / "text").write_text("a cat\n")
    assert run_here("translate", LITTLE, tmp_path / "text", tmp_path / "out", *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_largest_piece(tmp_path):
    (tmp_path / "text").write_text("The cat is sleeping.\n" * 3)
    for options in ([], ["--overwrite", "--piece-lines", (1 << 63) - 1]):
        assert run_here("translate", LITTLE, tmp_path / "text", tmp_path / "out", *options) == 0
        assert (tmp_path / "out").read_text() == "Le chat dort.\n" * 3


def test_a_minimum_above_the_maximum(tmp_path, capsys):
    """As in the C++ program."""
    (tmp_path / "text").write_text("a cat\n")
    given = ["--min-length", 10, "--max-new-tokens", 5]
    assert run_here("translate", LITTLE, tmp_path / "text", tmp_path / "out", *given) == 1
    assert "min_length is 10, above max_length, 6; both count the start token" in capsys.readouterr().err
    assert run_here("translate", LITTLE, tmp_path / "text", tmp_path / "out", *given[:2]) == 0
