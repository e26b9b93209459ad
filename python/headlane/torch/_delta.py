"""Linear attention and its convolution in the code of a module that is recorded, as Gated DeltaNet has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from ._nodes import Node, NotPlain, Recorded
from ._recurrent import ACTIVATIONS, EPS, LARGEST, have_others
from ._tables import Negative
from ._vectors import Repeated, Vector, WideVector

if TYPE_CHECKING:
    from ._gated_norms import GatedNorm
    from ._graph import Graph
    from ._values import Value


class LayerState:
    """What a cache has for a layer of linear attention: the last inputs of its convolution, and a state for each head.

    sizes: Of both, without the batch, once they are known.
    columns_first: Whether the state of a head is [value_dim, key_dim], as Mamba-2 has it.
    is_updated: Whether the code has given new inputs of the convolution to the cache.
    is_kept: Whether it has given the state of the heads.
    """

    def __init__(self, cache: Node, layer: int) -> None:
        self.cache = cache
        self.layer = layer
        self.sizes: list[tuple[int, ...]] = []
        self.columns_first = False
        self.is_updated = False
        self.is_kept = False

    def read(self, which: int, *sizes: int) -> LayerState:
        """First the convolution does, and then the attention, once each."""
        if len(self.sizes) != which:
            raise NotPlain
        self.sizes.append(sizes)
        return self


class State(Recorded):
    """One of the states of a layer: of the convolution (0), of the heads (1), or what these become (2)."""

    def __init__(self, of: LayerState, which: int) -> None:
        self.of = of
        self.which = which


class States:
    """Of the layers of a cache; the part of it that linear attention knows."""

    def __init__(self, cache: Node, states: list[LayerState]) -> None:
        self._cache = cache
        self._states = states

    def of(self, layer: Any, index: Any) -> LayerState:
        if type(layer) is not int or index != 0:
            raise NotPlain
        for one in self._states:
            if one.cache is self._cache and one.layer == layer:
                return one
        self._states.append(LayerState(self._cache, layer))
        return self._states[-1]


def is_filter(weight: torch.Tensor) -> bool:
    """Whether it is the weight of a depthwise convolution, [channels, 1, width]."""
    return weight.dim() == 3 and weight.shape[1] == 1 and weight.layout is torch.strided


def filter_of(module: nn.Module, graph: Graph) -> Filter:
    """What stands for the weight of a convolution."""
    weight: Any = module._parameters["weight"]
    if type(weight) not in (nn.Parameter, torch.Tensor) or not is_filter(weight) or not weight.is_cpu:
        raise NotPlain
    graph.vectors.append(weight)
    return Filter(module)


class Filter(Recorded):
    """The weight of a depthwise convolution, [channels, 1, width]; [channels, width] if it is squeezed."""

    def __init__(self, module: Any, is_squeezed: bool = False) -> None:
        self.module = module
        self.is_squeezed = is_squeezed

    def squeeze(self, axis: int) -> Filter:
        if axis != 1 or self.is_squeezed:
            raise NotPlain
        return Filter(self.module, True)


class Channels(Recorded):
    """A value with its last two axes exchanged: [batch, channels, length].

    before: The state that has the inputs before these, which the convolution reads first.
    width: How many the state has.
    is_longer: Whether the results of those are before these.
    """

    def __init__(
        self, value: Value, before: LayerState | None = None, width: Any = None, is_longer: bool = False
    ) -> None:
        self.value = value
        self.before = before
        self.width = width
        self.is_longer = is_longer

    def is_whole(self) -> bool:
        return self.before is None and not self.is_longer

    def transpose(self, one: int, two: int) -> Value:
        if not self.is_whole() or {one % 3, two % 3} != {1, 2}:
            raise NotPlain
        return self.value

    def expand(self, *sizes: Any) -> Repeated:
        """Numbers of heads, of sequences of one token."""
        if not self.is_whole() or not self.value.has_one_token() or len(sizes) != 3:
            raise NotPlain
        return Repeated(self.value, 1).expand(*sizes)

    def __getitem__(self, index: Any) -> Channels:
        """[:, :, -length:]"""
        is_last = type(index) is tuple and len(index) == 3 and index[:2] == (slice(None),) * 2
        last = index[2] if is_last else None
        is_cut = type(last) is slice and last.stop is None and last.step is None
        if not is_cut or type(last.start) is not Negative or last.start.size is not self.value.length:
            raise NotPlain
        if self.before is not None:
            raise NotPlain
        return Channels(self.value)


class Convolution(NamedTuple):
    """Of which module, with which activation, and the state, if there is one."""

    module: Any
    activation: str | None
    state: LayerState | None


class Delta(NamedTuple):
    """The gated delta rule: the first columns, the numbers and sizes of heads, the parameters of the gate, and the
    state, if there is one.
    """

    columns: tuple[int, int, int]
    heads: tuple[int, int, int, int]
    eps: float
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    state: LayerState | None


class Gate(Recorded):
    """value + dt_bias in float32; its softplus; and that times -exp(a_log), the decays of linear attention."""

    def __init__(
        self,
        value: Value,
        dt_bias: torch.Tensor | None = None,
        is_soft: bool = False,
        a_log: torch.Tensor | None = None,
    ) -> None:
        self.value = value
        self.dt_bias = dt_bias
        self.is_soft = is_soft
        self.a_log = a_log

    def __add__(self, other: Any) -> Gate:
        if self.dt_bias is not None or not isinstance(other, Vector):
            raise NotPlain
        return Gate(self.value, other.tensor)

    def __rmul__(self, other: Any) -> Gate:
        is_rate = isinstance(other, WideVector) and other.steps == 3
        if not is_rate or not self.is_soft or self.a_log is not None:
            raise NotPlain
        return Gate(self.value, self.dt_bias, True, other.tensor)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Gate:
        if func is not F.softplus or len(args) != 1 or kwargs or args[0].dt_bias is None or args[0].is_soft:
            raise NotPlain
        return Gate(args[0].value, args[0].dt_bias, True)


def _convolved(x: Channels, weight: Any, bias: Any, activation: Any, state: LayerState | None) -> Value:
    rows, graph = x.value, x.value.graph
    if not isinstance(weight, Filter) or not weight.is_squeezed or activation not in ACTIVATIONS:
        raise NotPlain
    module, filters = weight.module, weight.module._parameters["weight"]
    channels, _, width = filters.shape
    if bias is not None and not (isinstance(bias, Vector) and bias.tensor is module._parameters["bias"]):
        raise NotPlain
    if (bias is None) is not (module._parameters["bias"] is None) or rows.shape[2] != channels:
        raise NotPlain
    if x.before is not None and x.width != width:
        raise NotPlain
    if state is not None:
        state.read(0, channels, width)
    what = Convolution(module, ACTIVATIONS[activation], state)
    node = graph.add(Node("convolve", (rows.node,), what))
    node.sizes, node.width = rows.node.sizes, channels
    return type(rows)(graph, node)


def _convolution(x: Any, weight: Any, bias: Any = None, activation: Any = None, **others: Any) -> Channels:
    if not isinstance(x, Channels) or x.is_longer or have_others(others):
        raise NotPlain
    return Channels(_convolved(x, weight, bias, activation, x.before), is_longer=x.before is not None)


def _convolution_update(
    x: Any, conv_state: Any, weight: Any, bias: Any = None, activation: Any = None
) -> Channels:
    is_state = isinstance(conv_state, State) and conv_state.which == 0
    if not isinstance(x, Channels) or not x.is_whole() or not is_state or conv_state.of.is_updated:
        raise NotPlain
    return Channels(_convolved(x, weight, bias, activation, conv_state.of))


def _delta_rule(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    chunk_size: int = 64,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **others: Any,
) -> tuple[Value, State | None]:
    is_gate = isinstance(g, Gate) and g.a_log is not None
    if not is_gate or not use_qk_l2norm_in_kernel or have_others(others):
        raise NotPlain
    graph, gate = value.graph, g.value
    of_tokens = [x.of_tokens() for x in (query, key, value)]
    nodes, columns, dims = zip(*of_tokens)
    heads, key_heads, key_dim, value_dim = value.shape[2], query.shape[2], dims[0], dims[2]
    if max(key_dim, value_dim) > LARGEST:
        raise NotPlain
    if key.shape != query.shape or heads % key_heads or any(x.sizes is not nodes[0].sizes for x in nodes):
        raise NotPlain
    for one in (gate, beta):
        if one.shape != (*value.shape[:2], heads):
            raise NotPlain
    if initial_state is not None and not (isinstance(initial_state, State) and initial_state.which == 1):
        raise NotPlain
    state = None if initial_state is None else initial_state.of
    if output_final_state is not (state is not None):
        raise NotPlain
    if state is not None:
        state.read(1, heads, key_dim, value_dim)
    sizes = heads, key_heads, key_dim, value_dim
    what = Delta(columns, sizes, EPS, g.a_log, g.dt_bias, state)
    node = graph.add(Node("linear_attention", (*nodes, gate.node, beta.node), what))
    node.sizes, node.width = nodes[0].sizes, heads * value_dim
    return type(value)(graph, node, value_dim), None if state is None else State(state, 2)


def gated_norm(module: GatedNorm, arguments: tuple[Any, ...], options: dict[str, Any]) -> Value:
    """The norm of each head of a value, times an activation of those of another; or of all columns of both, which
    are multiplied first.
    """
    state = module._headlane
    if state is None or options or len(arguments) != 2 or not all(hasattr(x, "of_rows") for x in arguments):
        raise NotPlain
    x, gate = arguments
    graph, width = x.graph, len(state.weight(module))  # of a head, or of all columns
    node, of_gate = (one.of_rows(width) for one in (x, gate))
    if node.sizes is not of_gate.sizes or node.width != of_gate.width or x.is_flat is not gate.is_flat:
        raise NotPlain
    if x.head_dim != gate.head_dim and not x.is_flat:  # one would be repeated
        raise NotPlain
    graph.read_norm(module)
    made = graph.add(Node("gated_norm", (node, of_gate), module))
    made.sizes, made.width = node.sizes, node.width
    return type(x)(graph, made, x.head_dim, is_flat=x.is_flat)


RECORDED: dict[str, Any] = {
    "causal_conv1d_fn": _convolution,
    "causal_conv1d_update": _convolution_update,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "torch_recurrent_gated_delta_rule": _delta_rule,
}
