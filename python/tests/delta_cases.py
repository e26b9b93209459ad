"""What tests of the code of linear attention in headlane.torch are given."""

import pytest
import torch
import torch.nn.functional as F
from headlane.torch._arguments import Input
from headlane.torch._delta import RECORDED
from headlane.torch._graph import Graph
from headlane.torch._nodes import Node, NotPlain
from headlane.torch._values import Value

HEADS, KEY_HEADS, DIM, VALUE_DIM = 4, 2, 8, 6
CHANNELS = 2 * KEY_HEADS * DIM + HEADS * VALUE_DIM
KINDS = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
_OWN = object()


class DeltaGiven:
    """What a layer with Gated DeltaNet has: tensors, parameters and a cache; and what its code does with them."""

    def __init__(self, dtype=torch.float32, bias=True, is_single=False):
        self.graph = Graph(dtype, is_single)
        self.sizes = Input(3).value(self.graph).shape[:2]
        self.length = self.sizes[1]
        self.mixed, self.decay, self.beta = map(self.value, (CHANNELS, HEADS, HEADS))
        self.query, self.key = (self.heads(KEY_HEADS, DIM) for _ in range(2))
        self.values = self.heads(HEADS, VALUE_DIM)
        self.cache = Input(object).value(self.graph)
        self.cache_node = self.graph.nodes[-1]
        self.conv = torch.nn.Conv1d(CHANNELS, CHANNELS, 4, groups=CHANNELS, bias=bias, dtype=dtype)
        self.stand_in = self.graph.stand_in(self.conv)
        self.a_log, self.dt_bias = (torch.nn.Parameter(torch.ones(HEADS, dtype=dtype)) for _ in range(2))

    @property
    def channels(self):
        return self.mixed.transpose(1, 2)

    @property
    def vectors(self):
        return {name: self.graph.vector(getattr(self, name)) for name in ("a_log", "dt_bias")}

    def value(self, width):
        node = self.graph.add(Node("input"))
        node.sizes, node.width = self.sizes, width
        return Value(self.graph, node)

    def heads(self, heads, dim):
        return self.value(heads * dim).view(*self.sizes, heads, dim)

    def convolved(self, x, weight=None, bias=_OWN, activation="silu", **others):
        weight = self.stand_in.weight.squeeze(1) if weight is None else weight
        bias = self.stand_in.bias if bias is _OWN else bias
        return RECORDED["causal_conv1d_fn"](x, weight, bias, activation=activation, **others)

    def before(self, x, layer=0, kernel=4):
        """x, after what the cache has."""
        return self.cache.update_conv_state(x, layer, conv_kernel_size=kernel)

    def continued(self, layer=0):
        x = self.convolved(self.before(self.channels, layer))
        return x[:, :, -self.length :].transpose(1, 2)

    def updated(self, x=None, state=_OWN, layer=0):
        x = self.channels if x is None else x
        state = self.cache.get_conv_state(layer) if state is _OWN else state
        given = x, state, self.stand_in.weight.squeeze(1), self.stand_in.bias, "silu"
        return RECORDED["causal_conv1d_update"](*given).transpose(1, 2)

    def gate(self, x=None):
        vectors, x = self.vectors, self.decay if x is None else x
        return -vectors["a_log"].float().exp() * F.softplus(x.float() + vectors["dt_bias"])

    def heads_of(self, mixed):
        """Queries, keys and values."""
        sizes = KEY_HEADS * DIM, KEY_HEADS * DIM, HEADS * VALUE_DIM
        parts = torch.split(mixed, sizes, dim=-1)
        return [x.reshape(*x.shape[:2], -1, dim) for x, dim in zip(parts, (DIM, DIM, VALUE_DIM))]

    def state(self, layer=0):
        return self.cache.get_recurrent_state(layer)

    def states_of(self, layer):
        return {"initial_state": self.state(layer), "output_final_state": True}

    def attended(self, query, key, value, g, beta, kind=KINDS[0], **options):
        options = {"use_qk_l2norm_in_kernel": True, **options}
        return RECORDED[kind](query, key, value, g=g, beta=beta, **options)

    def attended_with(self, layer):
        """Attention with the state of a layer, and what this becomes."""
        if not any(x.layer == layer and x.sizes for x in self.graph.states):
            self.continued(layer)
        given = self.query, self.key, self.values, self.gate(), self.beta
        return self.attended(*given, **self.states_of(layer))


def refused(code, given):
    """The code is not plain; which operations it had before that."""
    before = len(given.graph.nodes)
    with pytest.raises(NotPlain):
        code(given)
    return [x.kind for x in given.graph.nodes[before:]]
