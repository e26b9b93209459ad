"""Whole models: cases, files, results, tables, and the worker with a made-up library."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from ..cases import models as models_cases
from ..contenders import models as models_contenders
from ..measure import models as models_measure
from ..routes import checkpoint
from ..routes import models as models_routes
from ..routes import sentences as sentences_routes
from ..routes.job import Job
from ..table import models as models_table
from ..workers import models as models_worker


def save(folder, tensors: dict[str, np.ndarray]) -> None:
    """model.safetensors, with float32 tensors."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        begin = len(data)
        data += array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    checkpoint.file_of(folder).write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_weights_are_read(tmp_path):
    wanted = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7], np.float32)}
    save(tmp_path, wanted)
    made = checkpoint.read(tmp_path)
    assert made.keys() == wanted.keys()
    assert all(np.array_equal(made[name], array) for name, array in wanted.items())
    assert models_worker.read_file(checkpoint.file_of(tmp_path)) > 0


def test_matrices_are_those_that_are_packed():
    tensors = {"w": np.zeros((64, 128)), "bias": np.zeros((32, 8)), "norm": np.zeros(512)}
    assert [matrix.shape for matrix in checkpoint.matrices(tensors)] == [(64, 128)]


def test_bert_by_the_names_of_pytorch():
    tensors = {}
    for number, name in enumerate(
        ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
        + ["attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]
    ):
        for kind in ("weight", "bias"):
            tensors[f"encoder.layer.0.{name}.{kind}"] = np.full((2, 2) if kind == "weight" else 2, number)
    made = checkpoint.bert_layers(tensors)
    assert made["0.self_attn.in_proj_weight"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert made["0.self_attn.in_proj_bias"].tolist() == [0, 0, 1, 1, 2, 2]
    found = [
        made[f"0.{name}.weight"][0, 0]
        for name in ("self_attn.out_proj", "norm1", "linear1", "linear2", "norm2")
    ]
    assert found == [3, 4, 5, 6, 7]
    assert models_routes.layers_of(tensors) == 1


def test_cases():
    labels = [(case.op, case.label) for case in models_cases.ALL]
    assert len(set(labels)) == len(labels)
    assert ("t5", "t5-base, batch 16") in labels
    assert ("minilm", "32x128") in labels
    assert {case.op for case in models_cases.ALL if case.quick} == {"t5", "minilm", "sentences"}


def test_bytes_that_a_step_reads():
    small = models_cases.T5_SHAPES["t5-small"]
    layer = (
        4 * 512 * 512 + 2 * 512 * 512 + 2 * 512 * 2048
    )  # self-attention; q and o of the cross-attention; feed-forward
    assert small.decoder_weights == 6 * layer + 32128 * 512
    case = models_cases.t5("t5-small", 16)
    assert case.limit_bytes == 64 * 4 * small.decoder_weights
    assert case.limit == "read"


def test_token_ids_are_ordinary_and_end():
    case = models_cases.t5("t5-small", 3)
    ids = models_cases.token_ids(case)
    assert ids.shape == (3, 16)
    assert (ids[:, -1] == 1).all()
    assert ids[:, :-1].min() > 2
    assert np.array_equal(ids, models_cases.token_ids(case))
    assert models_cases.token_ids(models_cases.minilm(2, 5)).shape == (2, 5)


def test_lengths_of_sentences_are_natural():
    lengths = models_cases.sentence_lengths(1000)
    assert np.array_equal(lengths, models_cases.sentence_lengths(1000))
    assert np.array_equal(lengths[:64], models_cases.sentence_lengths(64))
    assert lengths.mean() == pytest.approx(models_cases.WORDS + 2, rel=0.05)
    assert 3 <= lengths.min() < 8
    assert 60 < lengths.max() <= 128


def test_work_on_sentences_is_that_on_their_tokens(monkeypatch):
    monkeypatch.setattr(models_cases, "sentence_lengths", lambda batch: np.array([3, 5]))
    case = models_cases.sentences(2)
    a_token = 4 * 384 * 384 + 2 * 384 * 1536  # q, k, v and o; feed-forward
    pairs = 2 * 384 * (3 * 3 + 5 * 5)  # scores, and their products with v
    assert case.flops == 6 * 2 * (8 * a_token + pairs)
    assert case.shape["all_tokens"] == 8
    ids = models_cases.token_ids(case)
    assert ids[[0, 2, 3, 7]].tolist() == [101, 102, 101, 102]
    assert ids[[1, 4, 5, 6]].min() >= 1000


@pytest.mark.parametrize(("size", "wanted"), [(2, [[2, 4], [2, 3]]), (0, [[1, 4], [2, 3], [1, 1]])])
def test_batches(size, wanted):
    sentences = [np.arange(1, 1 + length) for length in (3, 1, 4, 3)]
    parts, order = sentences_routes.batches(sentences, size)
    assert [list(part.ids.shape) for part in parts] == wanted
    assert order.tolist() == [2, 0, 3, 1]
    last = parts[-1]
    if size:
        assert last.ids.tolist() == [[1, 2, 3], [1, 0, 0]]
        assert last.mask.tolist() == [[True] * 3, [True, False, False]]
    else:
        assert all(part.mask is None for part in parts)
    sums = [row.sum() for part in parts for row in part.ids]
    assert sentences_routes.in_order(np.array(sums), order).tolist() == [6, 1, 10, 6]
    out = np.zeros((4, 2))
    for part, rows in zip(parts, sentences_routes.parts_of(out, parts)):
        assert len(rows) == len(part.ids)
        rows += 1
    assert (out == 1).all()


def test_the_start_token_does_not_count():
    row = list(range(1, 65))
    assert models_routes.new_tokens([[0, *row], row]).tolist() == [row, row]


class Library:
    """Gives back what it is given."""

    about = "version=1.5"

    def load(self, folder):
        return folder

    def job(self, folder, ids):
        return Job(lambda: ids + 1, lambda made: made)


class Packing(Library):
    def pack(self, matrices):
        self.packed = matrices


def test_worker(tmp_path):
    np.arange(6).tofile(tmp_path / "ids")
    made = models_worker.ModelWorker(Library())
    asked = {"folder": str(tmp_path), "ids": str(tmp_path / "ids"), "batch": "2"}
    assert made.answer("about", {}) == "version=1.5"
    assert made.answer("prepare", asked) == ""
    made.answer("run", {"output": str(tmp_path / "output")})
    assert np.fromfile(tmp_path / "output", np.int64).tolist() == [1, 2, 3, 4, 5, 6]
    assert float(made.answer("time", {"warm": "0", "calls": "2"})) > 0
    assert len(made.answer("load", asked).split()) == 1


def test_sentences_keep_their_lengths(tmp_path, monkeypatch):
    case = models_cases.sentences(64)
    made = models_measure.ModelBench(models_measure.QUICK, tmp_path)
    monkeypatch.setattr(made, "folder_of", lambda model: tmp_path / model)
    monkeypatch.setattr(made, "_truth", lambda: None)
    made.load(case)
    sentences = models_worker.inputs({name: str(path) for name, path in made.inputs.items()})
    assert [len(ids) for ids in sentences] == models_cases.sentence_lengths(64).tolist()
    assert np.array_equal(np.concatenate(sentences), models_cases.token_ids(case))


def test_loading_stands_beside_reading_and_packing(tmp_path):
    (tmp_path / "huggingface").mkdir()
    save(tmp_path / "huggingface", {"w": np.ones((64, 64)), "v": np.ones(3)})
    made = models_worker.ModelWorker(Packing())
    assert all(float(word) > 0 for word in made.answer("load", {"folder": str(tmp_path)}).split())
    assert [matrix.shape for matrix in made.route.packed] == [(64, 64)]


def bench(case, tmp_path, reference):
    made = models_measure.ModelBench(models_measure.QUICK, tmp_path)
    made.case, made.reference = case, reference
    return made


def test_error_is_the_share_of_other_tokens(tmp_path):
    made = bench(models_cases.t5("t5-small", 2), tmp_path, np.zeros((2, 64), np.int64))
    other = np.zeros((2, 64), np.int64)
    other[1, 32:] = 5
    assert made.error(other) == 0.25


def test_error_of_states_is_that_of_the_worst_row(tmp_path):
    case = models_cases.minilm(1, 2)
    exact = np.ones((1, 2 * 384))
    exact[:, 384:] = 4
    off = exact.copy()
    off[0, -1] += 4 * 3 * 2.0**-24
    assert bench(case, tmp_path, exact).error(off) == pytest.approx(3)
    off[0, 0] = np.nan
    assert not bench(case, tmp_path, exact).error(off) <= models_measure.TOLERANCE


def test_vectors_from_rounded_weights_have_a_cosine(tmp_path):
    case = models_cases.minilm(1, 2)
    exact = np.ones((1, 2 * 384))
    made = bench(case, tmp_path, exact)
    off = 3 * exact
    assert made.cosine(off) == pytest.approx(1)
    off[0, 384:576] = 0  # half of the second row
    assert made.cosine(off) == pytest.approx(0.5**0.5)
    off[0, 0] = np.nan
    assert not made.cosine(off) >= models_measure.LEAST_COSINE


def row(contender: str, seconds: float, error: float = 0, op: str = "t5", **shape) -> dict:
    shape = {"batch": 1, "tokens": 64, **shape}
    times = {"seconds": seconds, "low": 0.9 * seconds, "high": 1.1 * seconds, "limit": {"seconds": 0.5}}
    return {"op": op, "case": "a case", "threads": 1, "contender": contender, "error": error} | {
        "shape": shape,
        "against": "transformers",
        **times,
    }


def test_tables(capsys, monkeypatch):
    monkeypatch.setattr(models_table.console, "file", sys.stdout)
    t5 = [
        row("headlane", 1),
        row("transformers", 3),
        row("CTranslate2", 1.5),
        row("CTranslate2 int8", 0.8, 0.5),
        row("headlane weights int8", 0.7, 0.25),
        row("headlane int8", 0.4, 0.75),
    ]
    line = models_table.Line(t5)
    assert line.ratio() == 1.5
    assert line.ratio(rounded=True) == 2.0
    assert models_table.Line(t5[:4]).ratio(rounded=True) is None
    loading = [
        {"contender": "headlane", "threads": 1, "model": "t5-base", "seconds": 0.6, "read": 0.1, "pack": 0.3}
    ]
    loading.append({"contender": "transformers", "threads": 1, "model": "t5-base", "seconds": 2.0})
    minilm = [row("headlane", 0.002, 30, "minilm"), row("OpenVINO", 0.003, 40, "minilm")]
    minilm.append({**row("headlane int8", 0.001, 9e5, "minilm"), "cosine": 0.99})
    sentences = [row("headlane", 0.5, 30, "sentences", batch=64)]
    sentences += [row("OpenVINO by length", 1.0, 40, "sentences", batch=64)]
    models_table.print_results({"results": t5 + minilm + sentences, "loading": loading})
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "64.0 ±10%",
        "50 %",
        "1.50x",
        "2.00x",
        "75.0 % other",
        "50.0 % other",
        "all float32 contenders gave the tokens of transformers",
        "2.00 ±10% 30ε",
        "1.00 ±10% cos 0.9900",
        "128 ±10% 30ε",
        "100 % 64.0 ±10% 40ε 2.00x",
        "600",
    ):
        assert text in shown
    assert "NOT" not in shown


def test_tokens_are_held_against_those_of_transformers():
    names = [contender.name for contender in models_contenders.every() if "t5" in contender.ops]
    assert names[0] == "transformers"
    assert [name for name in names if name.endswith("int8")] == [
        "headlane weights int8",
        "headlane int8",
        "CTranslate2 int8",
    ]
    for contender in [*models_contenders.every(), *models_contenders.TRUTH.values()]:
        assert contender.command[3] in models_worker.ROUTES


def test_other_tokens_are_told():
    said = models_table._tokens({1: models_table.Line([row("headlane", 1, 0.1), row("transformers", 1)])})
    assert said.startswith("NOT all")
    assert "headlane" in said
