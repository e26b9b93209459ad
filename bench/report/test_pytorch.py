"""What `./dev peers torch` measured."""

import json

import pytest

from . import load, page
from .test_report import entry, run


def test_weights_of_fewer_bits_are_no_peers_of_float32(tmp_path):
    seconds = {"headlane": 0.5, "headlane weights int4": 0.1, "PyTorch": 1.0, "PyTorch bfloat16": 0.25}
    rows = [
        entry("generate", "GPT-2 batch 8", name, took, shape={"model": "gpt2", "batch": 8, "tokens": 64})
        for name, took in seconds.items()
    ]
    (tmp_path / "torch.json").write_text(json.dumps(run(rows)))
    report = load.load([tmp_path / "torch.json"])
    (comparison,) = report.comparisons("generate", 1)
    assert (comparison.ours.contender, comparison.best.contender) == ("headlane", "PyTorch")
    assert comparison.ours.speed == pytest.approx(8 * 64 / 0.5)
    assert "Decoders of PyTorch, new tokens" in page.html(report)
