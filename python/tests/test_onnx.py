"""ONNX's own backend tests for the operators that headlane has, and for those near to them; skipped
ones with the reason.
"""

import re
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the suite computes its own cases, overflows included
    from onnx import helper
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.runner import Runner
    from onnx_backend import ABSENT, OPERATORS, HeadlaneBackend

    CASES = {
        case.name: case
        for case in collect_testcases(None)
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in {*ABSENT, *OPERATORS}
    }

# The suite has each case again with the operator expanded into primitive ones: those do not test an
# operator of ours.
EXPECTED = {"passed": 132, "skipped": 44}
COUNTS = dict.fromkeys(EXPECTED, 0)


def reason_to_skip(case):
    """None for a case that must pass."""
    (node,) = case.model.graph.node
    if node.op_type in ABSENT:
        return ABSENT[node.op_type]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    # Mode 3: the probabilities; 0 to 2: the scores before and after softcap and bias.
    if len(node.output) > 3 and attributes.get("qk_matmul_output_mode", 0) != 3:
        return "headlane never stores the scores: no qk_matmul_output before softmax"
    return None


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    case = CASES[name]
    reason = reason_to_skip(case)
    if reason:
        COUNTS["skipped"] += 1
        pytest.skip(reason)
    prepared = HeadlaneBackend.prepare(case.model)
    for inputs, outputs in case.data_sets:
        Runner.assert_similar_outputs(outputs, prepared.run(inputs), case.rtol, case.atol)
    COUNTS["passed"] += 1


def test_counts(report):
    """A case that is new, or passes or is skipped unexpectedly, shows here."""
    if sum(COUNTS.values()) < len(CASES):
        pytest.skip("only some cases were run")
    attention = sum(bool(re.match("test_attention", name)) for name in CASES)
    report(
        f"ONNX backend tests: {COUNTS['passed']} passed, {COUNTS['skipped']} skipped (Attention: {attention} cases)"
    )
    assert COUNTS == EXPECTED
