"""Linear attention and its convolution among operations on rows, and what a cache has for them."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._attended import layer_of
from ._delta import LayerState
from ._nodes import Node
from ._recurrent import new_state
from ._state import is_taken

if TYPE_CHECKING:
    from ._operations import Rows


class HeldState(NamedTuple):
    """The state of a convolution (0) or of the heads (1) of a layer; no layer if there is no cache."""

    of: LayerState | None
    which: int

    @property
    def changes_cache(self) -> bool:
        return self.of is not None

    def given(self, values: list[Any], at: dict[Node, int], x: torch.Tensor) -> Any:
        """What a run reads and writes, for the sequences of x: the memory of the cache, which is made first if it
        has none. NotImplemented if it is none that the kernels take.
        """
        if self.of is None:
            return None
        cache = values[at[self.of.cache]]
        layer = layer_of(cache, self.of.layer)
        if not _is_known(layer):
            return NotImplemented
        if not layer.has_previous_state[0]:
            of_inputs, of_heads = ((len(x), *sizes) for sizes in self.of.sizes)
            cache.update_conv_state(x.new_zeros(of_inputs), self.of.layer)
            cache.update_recurrent_state(new_state(of_heads, self.of.columns_first), self.of.layer)
        held = (layer.recurrent_states if self.which else layer.conv_states)[0]
        return held if is_taken(held, torch.float32 if self.which else x.dtype) else NotImplemented


def has_state(cache: Any, number: int) -> bool:
    """Whether a layer of a cache has states of tokens before, as code asks; of others than that it does not ask."""
    layers = getattr(cache, "layers", ())
    before = getattr(layers[number], "has_previous_state", None) if number < len(layers) else None
    return not isinstance(before, dict) or bool(before[0])


def _is_known(layer: Any) -> bool:
    """Whether a layer of a cache has states that are written in place, and does not keep those before."""
    known = getattr(sys.modules.get("transformers.cache_utils"), "LinearAttentionLayer", None)
    return type(layer) is known and not layer.record_past and isinstance(layer.has_previous_state, dict)


class _OfNode(NamedTuple):
    """An operation that reads what its node does."""

    result: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.result.inputs


class Convolved(_OfNode):
    """A depthwise convolution over the positions of each sequence."""

    def add_to(self, rows: Rows) -> int:
        what, (x,) = self.result.what, self.inputs
        parameters = what.module._parameters
        weight = rows.vector(lambda: parameters["weight"].squeeze(1))
        rows.states.append(HeldState(what.state, 0))
        return rows.program.convolve(rows.at[x], weight, rows.bias(what.module), what.activation)


class AttendedLinearly(_OfNode):
    """The gated delta rule."""

    def add_to(self, rows: Rows) -> int:
        what = self.result.what
        query, key, value, decay, beta = (rows.at[x] for x in self.inputs)
        vectors = rows.vector(lambda: what.a_log), rows.vector(lambda: what.dt_bias)
        rows.states.append(HeldState(what.state, 1))
        inputs = (query, key, value), what.columns, (decay, beta), vectors
        return rows.program.linear_attention(*inputs, what.eps, *what.heads)


class Scanned(_OfNode):
    """Mamba-2."""

    def add_to(self, rows: Rows) -> int:
        what = self.result.what
        c, b, x, dt = (rows.at[one] for one in self.inputs)
        vectors = rows.vector(lambda: what.a_log), rows.vector(lambda: what.dt_bias)
        skip = -1 if what.skip is None else rows.vector(lambda: what.skip)
        rows.states.append(HeldState(what.state, 1))
        return rows.program.scan((c, b, x), what.columns, dt, (*vectors, skip), what.limits, *what.heads)


class GatedNorm(_OfNode):
    """The RMS norm of each head, times an activation of another value, or of their product."""

    def add_to(self, rows: Rows) -> int:
        module = self.result.what
        state = module._headlane
        weight = rows.vector(partial(state.weight, module))
        x, gate = (rows.at[x] for x in self.inputs)
        of_state = state.eps_of(module), state.activation, state.width, state.gate_first
        return rows.program.gated_norm(x, gate, weight, *of_state)


KINDS = {
    "convolve": Convolved,
    "linear_attention": AttendedLinearly,
    "scan": Scanned,
    "gated_norm": GatedNorm,
}
