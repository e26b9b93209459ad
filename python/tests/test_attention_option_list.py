"""The list of attention's options stands in C++; here it is compared with the signatures that spell
them out.
"""

import inspect
import re

import calls
import headlane
import pytest
from headlane import _core
from headlane._types import InnerOptions, MaskedScoreOptions, ScoreOptions

OPTIONS = set(_core.attention_options)


def parameters(function):
    return set(inspect.signature(function).parameters)


def test_the_list_has_no_duplicates():
    assert len(OPTIONS) == len(_core.attention_options)


def test_types_of_keywords():
    assert set(MaskedScoreOptions.__annotations__) == OPTIONS
    assert set(ScoreOptions.__annotations__) == OPTIONS - {"attn_mask"}
    explicit = parameters(headlane.scaled_dot_product_attention)
    assert set(InnerOptions.__annotations__) == OPTIONS - explicit


def test_documentation_describes_every_option():
    described = re.findall(r"^ {4}(\w+): ", inspect.getdoc(headlane.scaled_dot_product_attention), re.M)
    assert set(described) >= OPTIONS


def test_the_operator_of_pytorch_has_every_option():
    torch_ops = pytest.importorskip("headlane.torch_ops")
    schema = torch_ops.scaled_dot_product_attention._opoverload._schema
    of_operator = {argument.name for argument in schema.arguments}
    windows = {"window_left", "window_right"}
    operands = {"query", "key", "value", "enable_gqa"}
    assert of_operator == (OPTIONS - {"window"}) | windows | operands | {"causal_offsets"}


def test_a_right_call_with_every_option():
    """Other tests vary these calls; variable-length batches have tests of their own."""
    assert set(calls.SCORES) == OPTIONS - {"query_starts", "key_starts"}


@pytest.mark.parametrize(
    "call",
    [
        lambda **o: headlane.scaled_dot_product_attention(calls.Q, calls.Q, calls.Q, **o),
        lambda **o: headlane.attention_weights(calls.Q, calls.Q, **o),
        lambda **o: calls.attention().forward(calls.X, **o),
    ],
)
@pytest.mark.parametrize("name", ["causal", "mask", "lse", "workspace", "", "num_heads"])
def test_other_names_are_refused(call, name):
    with pytest.raises(TypeError, match=f"there is no option '{name}'"):
        call(**{name: 1})
