"""Many ranks beside many threads: the corpus of headlane-embed, and what becomes of results."""

from __future__ import annotations

from types import SimpleNamespace

from .. import session_mpi
from ..cases.models import sentence_lengths
from ..routes import embed_job


def test_a_corpus_has_sentences_of_natural_lengths(tmp_path):
    words = [f"##{i}" if i % 2 else "a" * (i // 2 + 1) for i in range(40)]
    (tmp_path / "vocab.txt").write_text("\n".join(["[CLS]"] * 1000 + words))
    embed_job.write_corpus(tmp_path, tmp_path, 50)
    lines = (tmp_path / "corpus-50").read_text().splitlines()
    assert [len(line.split()) + 2 for line in lines] == sentence_lengths(50).tolist()
    assert {word for line in lines for word in line.split()} <= set(words[::2])


def test_every_case_is_measured(monkeypatch, tmp_path, capsys):
    """With alternating layouts; embeddings of other bits are a failure."""
    failures, runs = [], []

    def mpirun(ranks, threads, command):
        runs.append((ranks, threads, command[-3]))
        return {"median": 4.0 / ranks, "whole": 5.0, "bits": str(ranks)}

    monkeypatch.setattr(session_mpi, "mpirun", mpirun)
    monkeypatch.setattr(session_mpi, "minilm_folder", lambda: tmp_path)
    monkeypatch.setattr(session_mpi, "write_corpus", lambda *given: None)
    session = SimpleNamespace(
        options=SimpleNamespace(quick=False, threads=[1, 2], programs=tmp_path / "bench/peers"),
        bench=SimpleNamespace(folder=tmp_path, fail=lambda *given: failures.append(given)),
        progress=SimpleNamespace(step=lambda text: None),
    )
    row = session_mpi.measure_case(session, "embed")
    assert runs == [(1, 2, "embed"), (2, 1, "embed"), (2, 1, "embed"), (1, 2, "embed")] * 2 + [
        (1, 2, "embed"),
        (2, 1, "embed"),
    ]
    assert row["seconds"] == {"headlane": {"1 × 2": 4.0, "2 × 1": 2.0}}
    assert failures == [
        ("headlane", "headlane-embed, 8192 sentences: other bits with another number of ranks")
    ]
    session_mpi.print_rows([row])
    assert "1 × 2: 4.0000   2 × 1: 2.0000   ratio 2.000 (to reach 0.98)" in capsys.readouterr().out
    assert set(session_mpi.CASES) == set(session_mpi.TITLES) == set(session_mpi.TO_REACH)
