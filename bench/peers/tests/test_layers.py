"""Norms and layers: cases, inputs, truth, and what is added to the graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ..cases import layers as cases_layers
from ..cases import operations as cases
from ..contenders import operations as contenders
from ..routes import graph_onnx
from ..routes import layers as routes_layers
from ..routes.job import Job
from ..truth import layers as truth_layers
from ..truth import operations as truth
from ..workers import operations as worker

SMALL = [
    *(cases_layers.norm(kind, 3, 8) for kind in cases_layers.NAMES),
    cases_layers.layer("attention", 5, batch=2, heads=2, d_model=8),
    cases_layers.layer("encoder", 5, batch=2, heads=2, d_model=8, d_ff=16),
]


def test_work_of_a_call():
    norm = cases_layers.norm("layer_norm", 2, 8)
    assert (norm.op, norm.bytes, norm.limit, norm.limit_bytes) == ("norms", 128, "copy", 64)
    attention = cases_layers.layer("attention", 5, batch=2, heads=2, d_model=8)
    assert attention.flops == 2 * 5 * (2 * 4 * 64 + 4 * 8 * 5)
    encoder = cases_layers.layer("encoder", 5, batch=2, heads=2, d_model=8, d_ff=16)
    assert encoder.flops - attention.flops == 2 * 5 * 2 * 2 * 8 * 16
    assert {case.label for case in cases.ALL["layers"]} >= {
        "layer norm 2048x512",
        "GELU 2048x512",
        "attention L=2048",
        "encoder 16xL=128",
    }


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.label)
def test_truth_agrees_with_float32_and_sees_a_wrong_element(case):
    given = truth.inputs(case)
    exact = truth.Truth(case, given)
    result = np.asarray(exact.result, np.float32)
    assert result.shape == truth.output_shape(case)
    assert exact.error(result) <= 4  # rounding alone, of elements above their row's root mean square too
    index = tuple(size - 1 for size in result.shape)
    for wrong in (result[index] + 0.01, np.nan):
        broken = result.copy()
        broken[index] = wrong
        assert not exact.error(broken) <= case.tolerance


def test_truth_of_norms():
    case = cases_layers.norm("rms_norm", 1, 4)
    given = {"x": np.array([[3, 4, 0, 0]], np.float32), "weight": np.ones(4), "bias": np.ones(4)}
    assert np.allclose(truth.Truth(case, given).result, [[1.2, 1.6, 0, 0]], atol=1e-5)
    layer = cases_layers.norm("layer_norm", 1, 4)
    given["x"] = np.array([[1, 1, 3, 3]], np.float32)
    assert np.allclose(truth.Truth(layer, given).result, [[0, 0, 2, 2]], atol=1e-4)


def test_gelu_of_large_numbers_is_the_number_or_nothing():
    assert np.allclose(truth_layers.gelu(np.array([-20.0, 0.0, 20.0])), [0, 0, 20])


def test_attention_to_one_position_is_two_products():
    case = cases_layers.layer("attention", 1, heads=2, d_model=4)
    given = truth.inputs(case)
    values = given["x"][0] @ given["self_attn.in_proj_weight"][8:].T + given["self_attn.in_proj_bias"][8:]
    wanted = values @ given["self_attn.out_proj.weight"].T + given["self_attn.out_proj.bias"]
    assert np.allclose(truth.Truth(case, given).result[0], wanted, atol=1e-5)


class Listening:
    """A contender that notes what it is asked for."""

    about = "version=1"

    def norm(self, kind, x, weight, bias, out):
        self.given = (kind, x, weight, bias, out)
        return Job(lambda: out, lambda made: made)

    def layer(self, kind, x, weights, heads, out):
        self.given = (kind, x, weights, heads, out)
        return Job(lambda: out, lambda made: made)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.label)
def test_workers_read_what_was_written(case, tmp_path):
    given = truth.inputs(case)
    truth.write(given, tmp_path)
    route = Listening()
    words = {key: str(value) for key, value in case.shape.items()}
    worker.prepare(route, {"op": case.worker_op, "folder": str(tmp_path), **words})
    kind, x, third, fourth, out = route.given
    assert kind == case.shape["kind"]
    assert np.array_equal(x, given["x"])
    assert out.shape == truth.output_shape(case)
    assert np.isnan(out).all()
    if case.op == "layers":
        assert fourth == case.shape["heads"]
        assert third.keys() | {"x"} == given.keys()
        assert all(np.array_equal(array, given[name]) for name, array in third.items())
    elif kind not in cases_layers.ACTIVATIONS:
        assert np.array_equal(third, given["weight"])
        assert np.array_equal(fourth, given["bias"])


def test_attention_layers_are_given_their_own_tensors():
    given = truth.inputs(SMALL[-1])
    assert set(routes_layers.without_prefix(given)) == {
        "in_proj_weight",
        "in_proj_bias",
        "out_proj.weight",
        "out_proj.bias",
    }


@pytest.mark.parametrize("unpacked", [False, True])
def test_every_name_in_the_graph_is_made_once_and_before_its_use(unpacked):
    given = truth.inputs(SMALL[-1])
    nodes = []

    def make_node(kind, inputs, outputs, **more):
        nodes.append((kind, inputs, outputs))

    graph = graph_onnx.Graph(make_node, 2, 1e-5, unpacked)
    given = {f"0.{name}": array for name, array in given.items()}
    assert graph.encoder_layer("x", given, "out", "0.") == "out"
    known = {"x", *graph.constants}
    for _, inputs, outputs in nodes:
        assert set(inputs) <= known
        assert not set(outputs) & known
        known |= set(outputs)
    assert ("MultiHeadAttention" if unpacked else "Attention") in {kind for kind, _, _ in nodes}
    assert "out" in known
    assert all(
        any(array.size == c.size for c in graph.constants.values())
        for array in given.values()
        if array.ndim == 1
    )


def test_who_takes_layers():
    everyone = contenders.every(Path("/nowhere"), ["avx512", "avx2", "scalar", "portable"])
    layer, norm = cases_layers.layer("encoder", 16), cases_layers.norm("gelu", 4, 4)
    takers = [contender.title for contender in everyone if contender.takes(layer, 1)]
    assert len(takers) == len(set(takers))
    assert set(takers) >= {"headlane", "headlane (Python)", "PyTorch nn", "PyTorch compiled", "OpenVINO"}
    only_layers = {"PyTorch functions", "ONNX Runtime MHA"}
    assert set(takers) - {c.title for c in everyone if c.takes(norm, 1)} == only_layers
    assert set(contenders.PLAIN_OPS) == {"gemm", "softmax", "attention"}
