"""The roofline: what a call takes at least, its exponentials and its memory included."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from ..cases import layers, models
from ..cases import operations as cases
from ..cases.case import STEPS, Phase
from ..measure import operations as measure
from ..table import models as models_table
from ..table import operations as table
from .test_table import row

KERNELS = Path(__file__).parents[3] / "src/kernels"


def only(case: cases.Case) -> Phase:
    (phase,) = case.phases
    return phase


def test_operands_are_read_and_written_once():
    assert only(cases.gemm(2, 3, 4)) == Phase(48, 0, 4 * (8 + 12), 4 * 6)
    assert only(cases.softmax(2, 8)) == Phase(0, 16 * STEPS["softmax"], 64, 64)
    assert only(layers.norm("rms_norm", 2, 8)) == Phase(0, 16 * STEPS["rms_norm"], 64, 64)
    assert only(layers.norm("gelu", 2, 8)).steps == 16 * STEPS["gelu"]
    for case in (*cases.GEMM, *cases.SOFTMAX, *cases.ATTENTION, *layers.LAYERS):
        assert only(case).read + only(case).written == case.bytes, case.label


def test_each_visible_pair_has_an_exponential():
    assert only(cases.attention(4, batch=3)).steps == 3 * 8 * 16 * STEPS["exponential"]
    assert only(cases.attention(4, causal=True)).steps == 8 * 10 * STEPS["exponential"]
    assert only(cases.attention(4)).written == 8 * 4 * 64 * 4
    assert only(cases.attention(4, kv_heads=2)).written == 8 * 4 * 64 * 4
    ragged = cases.attention(60, batch=2, mask="ragged")
    assert only(ragged).written == 4 * 8 * 64 * sum(cases.ragged_lengths(2, 60))
    assert only(cases.attention(1, 512, stored="int8")).written == 8 * 64 * 4


def test_a_layer_has_steps_beside_its_products():
    attention, encoder = (layers.layer(kind, 4, batch=3) for kind in ("attention", "encoder"))
    assert only(attention).steps == 3 * 8 * 16 * STEPS["exponential"]
    beside = 12 * (2048 * STEPS["gelu"] + 2 * 512 * STEPS["layer_norm"])
    assert only(encoder).steps == only(attention).steps + beside
    assert only(models.minilm(2, 4)).steps == 2 * models.MiniLM().steps(4)


def test_a_decoder_reads_its_weights_in_each_step():
    encoder, steps = models.t5("t5-small", 16).phases
    small = models.T5_SHAPES["t5-small"]
    assert encoder.read == 4 * small.encoder_weights
    assert steps.buffer == 4 * small.decoder_weights
    keys = sum(step + 1 + models.INPUT_TOKENS for step in range(models.NEW_TOKENS))
    assert steps.read == 64 * steps.buffer + 16 * keys * 2 * 4 * 6 * 512


def test_steps_are_those_of_the_kernels():
    """Each fma and product in the functions of the kernels, by the text of their sources."""
    exponential = (KERNELS / "simd/exp.hpp").read_text()
    parts = exponential.split("HEADLANE_INLINE void exp_parts")[1].split("\n}\n")[0]
    parts = "\n".join(line.split("//")[0] for line in parts.splitlines())
    rest = exponential.split("HEADLANE_INLINE void exp_nonpositive_registers")[1].split("\n}\n")[0]
    assert (
        sum(text.count("R::fma(") for text in (parts, rest)) + parts.count("x[i] * r[i]")
        == STEPS["exponential"]
    )
    activations = (KERNELS / "simd/activation.hpp").read_text()
    gelu = activations.split("struct Gelu {")[1].split("\n};\n")[0]
    degree = (KERNELS / "simd/pieces.hpp").read_text().split("> gelu_pieces")[0].rpartition("<")[2]
    assert gelu.count("R::fma(") + int(degree) == STEPS["gelu"]


class Rates:
    """A machine of 1000 operations a second, which reads 100 bytes a second and copies 50."""

    def rate(self, kind: str, isa: str = "", size: int = 0) -> float:
        assert kind == "fma" or 0 < size <= measure.LARGEST
        return {"fma": 1000.0, "read": 100.0, "copy": 50.0}[kind]


@pytest.fixture
def probe(monkeypatch):
    made = measure.Probe(None, ["avx512"])
    monkeypatch.setattr(made, "rate", Rates().rate)
    return made


def test_a_phase_takes_the_longer_of_operations_and_memory(probe):
    assert probe.roofline((Phase(1000, 500),), "avx512") == (2, 0)
    assert probe.roofline((Phase(1000, 500, read=300),), "avx512") == (3, 3)
    assert probe.roofline((Phase(1000, read=300, written=100),), "avx512") == (4, 4)  # copies 100, reads 200
    assert probe.roofline((Phase(0, written=100),), "avx512") == (2, 2)
    phases = (Phase(1000, 500), Phase(0, read=1000, buffer=10))
    assert probe.roofline(phases, "avx512") == (12, 10)


def test_the_median_tells_what_most_of_it_is():
    assert measure.median_roofline([(2, 0), (4, 3), (3, 3)]) == {"kind": "memory", "seconds": 3}
    assert measure.median_roofline([(2, 1)])["kind"] == "fma"


def test_tables_have_a_column_of_it(capsys, monkeypatch):
    monkeypatch.setattr(table.console, "file", sys.stdout)
    ours = {**row("headlane", 1, "avx512"), "roofline": {"kind": "fma", "seconds": 0.75}}
    assert math.isclose(table.roofline_share(ours), 0.75)
    assert table.roofline_share({**ours, "roofline": None}) is None
    assert table.roofline_share(None) is None
    made = {
        "machine": {"limits": [{"isa": "avx512"}]},
        "contenders": [{"name": "headlane", "isa": "avx512", "route": "C++", "prepacked": False}],
        "results": [ours],
    }
    table.print_results(made, "gemm")
    sentences = models.sentences(64)
    times = {"op": sentences.op, "case": sentences.label, "shape": sentences.shape, "against": "PyTorch"}
    models_table.print_results({"results": [{**ours, **times}], "loading": []})
    shown = capsys.readouterr().out
    assert shown.count("of the roofline") == 2
    assert shown.count("75 %") == 2
