"""PyTorch models: cases, results, memory and calls; the contenders themselves: test_pytorch_routes.py."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ..cases import pytorch as cases
from ..contenders import pytorch as contenders
from ..measure import models as models_measure
from ..measure import operations as measure
from ..measure import pytorch as pytorch_measure
from ..routes.job import Job
from ..table import pytorch as table
from ..table import pytorch_targets as targets
from ..workers import operations as operations_worker
from ..workers import pytorch as worker
from ..workers.process import Failure

NAMES = [contender.name for contender in contenders.every()]


def test_cases():
    labels = [f"{case.op} {case.label}" for case in cases.ALL]
    assert len(set(labels)) == len(labels)
    wanted = {"encode BERT-base 8x128", "encode MiniLM 32x128", "encode ViT-B/16 8x197"}
    wanted |= {"encode Whisper-tiny's encoder 1x1500", "prefill GPT-2 8x512", "generate Llama 0.4B batch 1"}
    assert wanted <= set(labels)
    assert {case.op for case in cases.ALL if case.quick} == set(cases.OPS)


def test_work_is_that_of_the_products():
    bert = cases.SHAPES["bert-base"]
    assert bert.weights == 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert cases.encode("bert-base", 2, 16).flops == 2 * (2 * 16 * bert.weights + 12 * 4 * 768 * 16**2)
    llama = cases.SHAPES["llama"]
    assert llama.weights == 24 * (2 * 1024**2 + 2 * 1024 * 256 + 3 * 1024 * 3584)
    pairs, head = 512 * 513 / 2, 32000 * 1024
    assert cases.prefill("llama", 8).flops == 8 * (2 * 512 * llama.weights + 24 * 4 * 1024 * pairs + 2 * head)
    assert 0.38e9 < llama.weights + 2 * head < 0.42e9


def test_a_step_reads_weights_and_cache():
    case, llama = cases.generate("llama", 8), cases.SHAPES["llama"]
    keys = sum(512 + step for step in range(1, 65))
    assert case.shape["cached"] == 8 * keys * 24 * 2 * 4 * 64
    assert case.limit_bytes == 4 * (64 * (llama.weights + 32000 * 1024) + case.shape["cached"])
    assert case.limit == "read"


def test_inputs():
    ids = cases.inputs(cases.generate("gpt2", 2))
    assert (ids.shape, ids.dtype) == ((2, 512), np.int64)
    assert 1000 <= ids.min() < ids.max() < 50257
    assert cases.inputs(cases.encode("vit-base", 2)).shape == (2, 3, 224, 224)
    sound = cases.inputs(cases.encode("whisper-tiny", 1))
    assert (sound.shape, sound.dtype) == ((1, 80, 3000), np.float32)
    assert np.array_equal(sound, cases.inputs(cases.encode("whisper-tiny", 1)))


def test_who_takes_part():
    for contender in [*contenders.every(), *contenders.REFERENCE.values()]:
        assert contender.command[3] in worker.ROUTES
    assert [contender.name for contender in contenders.every() if "optimise" in contender.ops] == [
        name for name in NAMES if name.startswith("headlane")
    ]
    assert {contender.name for contender in contenders.every() if not contender.rounded} == {
        "headlane",
        "PyTorch",
        "PyTorch prepacked",
        "PyTorch frozen",
        "PyTorch compiled",
    }
    frozen = next(contender for contender in contenders.every() if contender.name == "PyTorch frozen")
    assert not frozen.takes(cases.generate("gpt2", 1), 1)


class Asked:
    """A worker process that answers what it is told to."""

    threads, alive, about = 1, True, {}

    def __init__(self, name: str, output: np.ndarray | None = None) -> None:
        self.contender = contenders.one(name, "eager")
        self.output = output

    def ask(self, command: str, **arguments) -> str:
        if command == "run":
            self.output.tofile(arguments["output"])
            return "0.5 0"
        return {"prepare": "seconds=2 stored=1000 cached=2", "call": "3e-6"}[command]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(pytorch_measure.PytorchBench, "folder_of", lambda self, model: tmp_path)
    made = pytorch_measure.PytorchBench(models_measure.QUICK, tmp_path)

    def loaded(case, reference):
        monkeypatch.setattr(made, "_truth", lambda: setattr(made, "reference", reference))
        made.load(case)
        return made

    return loaded


def tokens(*rows: list[int], width: int = 4) -> np.ndarray:
    """Logits whose largest is at each token, and the token behind them."""
    logits = np.full((len(rows), len(rows[0]), width + 1), 0.5, np.float32)
    for i, row in enumerate(rows):
        for j, token in enumerate(row):
            logits[i, j, token] = 2
            logits[i, j, -1] = token
    return logits.reshape(len(rows), -1)


def small(case, rows: int, width: int = 4):
    case.shape.update(rows=rows, width=width)
    return case


def test_logits_count_up_to_the_first_other_token(bench):
    reference, made = tokens([1, 2, 3, 1], [1, 1, 1, 1]), tokens([1, 3, 0, 0], [1, 1, 1, 1])
    case = small(cases.generate("gpt2", 2), rows=4)
    x, y = bench(case, reference)._vectors(made)
    assert len(x) == 2 + 4  # a first row that agrees, and the one where the token is another
    assert np.array_equal(x[0], y[0])
    assert not np.array_equal(x[1], y[1])
    assert bench(case, reference).other_tokens(made) == 3 / 8


def test_results_are_checked(bench):
    case = small(cases.prefill("gpt2", 2), rows=1)
    reference = np.ones((2, 4), np.float32)
    made = bench(case, reference)
    entry = made._checked(Asked("PyTorch", reference))
    assert (entry.error, entry.cosine, entry.more) == (0, None, {"prepared": 2.0})
    with pytest.raises(Failure, match="wrong: vectors are"):
        made._checked(Asked("PyTorch", reference * np.float32(1.01)))
    assert made._checked(Asked("PyTorch int8", reference * np.float32(1.01))).cosine == pytest.approx(1)
    with pytest.raises(Failure, match="wrong: a vector has the cosine"):
        made._checked(Asked("PyTorch int8", reference * np.array([1, 1, 1, -1], np.float32)))
    with pytest.raises(Failure, match="wrong: 5 numbers"):
        made._checked(Asked("PyTorch", np.ones((2, 5), np.float32)))


def test_each_contender_has_the_limit_of_its_own_weights(bench):
    reference = tokens([1, 2])
    made = bench(small(cases.generate("gpt2", 1), rows=2), reference)
    entry = made._checked(Asked("PyTorch bfloat16", reference))
    read = 64 * 1000 + 2 * made.case.shape["cached"]
    assert (entry.more["other"], entry.more["read"]) == (0, read)
    assert made._limit(entry, measure.Probe(None, ["avx512"])) == ("", read)
    entry.seconds = [1.0]
    assert made._row(entry, [0.5])["read"] == read
    bench(small(cases.prefill("gpt2", 1), rows=1), np.ones((1, 4), np.float32))
    assert made._limit(measure.Entry(entry.worker, 0), measure.Probe(None, ["avx512"])) == (
        "avx512",
        made.case.flops,
    )


def test_calls_are_timed_in_turns(bench):
    made = bench(cases.prefill("gpt2", 1), None)
    assert made.call_times([Asked("PyTorch")]) == [{"contender": "PyTorch", "threads": 1, "seconds": 3e-6}]


def test_a_job_may_time_itself():
    calls = []
    job = Job(lambda: calls.append(1), lambda made: made, seconds=lambda: 2.5)
    assert operations_worker.seconds_of(job, 1, 3) == 7.5
    assert len(calls) == 1


class Route:
    """Gives what it is given, and takes a model apart."""

    about = "version=1.5"

    def job(self, shape, folder, op, given, rows):
        return Job(lambda: given + rows, lambda made: made), {"seconds": 0.25, "stored": len(op)}


def test_worker(tmp_path):
    np.save(tmp_path / "input.npy", np.arange(3))
    made = worker.PytorchWorker(Route())
    asked = {"model": "gpt2", "folder": str(tmp_path), "op": "encode", "rows": "7"}
    answer = made.answer("prepare", asked | {"input": str(tmp_path / "input.npy")})
    assert pytorch_measure.numbers(answer) == {"seconds": 0.25, "stored": 6}
    made.answer("run", {"output": str(tmp_path / "output")})
    assert np.fromfile(tmp_path / "output", np.int64).tolist() == [7, 8, 9]


def row(op: str, case: str, contender: str, seconds: float, **more) -> dict:
    shape = {"batch": 1, "tokens": 64}
    times = {"seconds": seconds, "low": 0.9 * seconds, "high": 1.1 * seconds, "limit": {"seconds": 0.05}}
    about = {"op": op, "case": case, "threads": 1, "contender": contender, "shape": shape, "cosine": 0.999}
    return {**about, **times, "error": 30, "prepared": 0.0, **more}


def document() -> dict:
    encode, generate = "BERT-base 1x16", "GPT-2 batch 1"
    results = [
        row("encode", encode, "PyTorch", 0.2),
        row("encode", encode, "PyTorch compiled", 0.16, prepared=33.0),
        row("encode", encode, "headlane", 0.1),
        row("encode", encode, "headlane int8", 0.05),
        row("encode", encode, "PyTorch bfloat16", 0.08),
        row("encode", encode, "headlane model bfloat16", 0.1),
        row("generate", generate, "PyTorch", 0.128),
        row("generate", generate, "headlane", 0.064, other=0.5),
        row("generate", generate, "headlane weights int8", 0.064, other=0.5),
    ]
    failures = [
        {"contender": "PyTorch int8", "case": f"encode {encode}", "threads": 1, "reason": "wrong: a vector"},
        {"contender": "PyTorch frozen", "case": None, "threads": None, "reason": "cannot"},
    ]
    sizes = {"eager": 400 << 20, "eager_peak": 500 << 20, "optimised": 410 << 20, "peak": 450 << 20}
    optimise = {"contender": "headlane", "threads": 1, "model": "bert-base", "loaded": True, "seconds": 1.5}
    call = [{"contender": name, "threads": 1, "seconds": 4e-6} for name in ("PyTorch", "headlane")]
    return {"results": results, "failures": failures, "optimise": [{**optimise, **sizes}], "call": call}


def test_lines():
    line = table.lines(document(), "encode")["BERT-base 1x16", 1]
    assert line.best["contender"] == "PyTorch compiled"
    assert line.ratio("headlane") == pytest.approx(1.6)
    assert line.ratio("headlane int8", "PyTorch") == pytest.approx(4)
    assert line.ratio("headlane int8", "PyTorch int8") is None
    assert line.cell("headlane") == "100 ±10% 30ε 50 % 1.60x"
    assert line.cell("PyTorch bfloat16") == "80.0 ±10% cos 0.9990 62 % 2.00x"
    assert (line.cell("PyTorch int8"), line.cell("PyTorch frozen")) == ("wrong", "n/a")
    step = table.lines(document(), "generate")["GPT-2 batch 1", 1]
    assert step.cell("headlane") == "1000 ±10% 30ε (50.0 % other) 78 % 2.00x"
    assert "other" not in step.cell("headlane weights int8")


def test_tables(capsys, monkeypatch):
    monkeypatch.setattr(table.console, "file", sys.stdout)
    table.print_results(document())
    targets.print_targets(document())
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("wrong", "33.00", "1.500 400 500 410 450", "4.00", "Targets"):
        assert text in shown


def test_targets_name_what_misses_them():
    found = {outcome.title: outcome for outcome in targets.outcomes(document())}
    assert found["float32 / best of PyTorch"].missed == []
    assert found["float32 / best of PyTorch"].count == 1  # a step of one sequence has another target
    assert found["of the read bandwidth"].missed == ["generate GPT-2 batch 1, threads: 1: 78 %"]
    assert found["weights int8 / eager"].missed == ["generate GPT-2 batch 1, threads: 1: 2.00x"]
    assert found["model bfloat16 / PyTorch bfloat16"].missed == ["encode BERT-base 1x16, threads: 1: 0.80x"]
    assert found["int8 / eager"].missed == []
    assert "int8 / PyTorch int8" not in found  # that was not measured
    assert found["time to optimise BERT-base"].missed == [
        "BERT-base loaded, headlane, threads: 1: 1.50 s",
    ]
    assert found["peak memory while optimising"].missed == []
    assert found["memory afterwards"].missed == ["BERT-base loaded, headlane, threads: 1: 410 MiB, not 400"]
    assert found["a call of a small layer"].count == 1
