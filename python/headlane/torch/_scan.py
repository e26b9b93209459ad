"""Mamba-2 in the code of a module that is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._delta import LayerState, State
from ._nodes import Node, NotPlain, Recorded
from ._recurrent import LARGEST, have_others
from ._vectors import Repeated, Vector, WideVector

if TYPE_CHECKING:
    from ._values import Value


NO_LIMITS = (0.0, float("inf"))


class Scan(NamedTuple):
    """The first columns of C, B and x, the numbers and sizes of heads, A_log, dt_bias and D, the least step and the
    largest one, and the state, if there is one.
    """

    columns: tuple[int, int, int]
    heads: tuple[int, int, int, int]
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    skip: torch.Tensor | None
    limits: tuple[float, float]
    state: LayerState | None


class OneToken(Recorded):
    """The heads of sequences of one token, [batch, heads, head_dim]."""

    def __init__(self, heads: Value) -> None:
        self.heads = heads

    def view(self, *sizes: Any) -> Value:
        """[batch, 1, width]"""
        batch, length = self.heads.shape[:2]
        if len(sizes) != 3 or sizes[0] is not batch or type(sizes[1]) is not int or sizes[1] != 1:
            raise NotPlain
        made: Value = self.heads.view(batch, length, sizes[2])
        return made


def _scanned(
    x: Value,
    dt: Value,
    rates: Any,
    B: Value,  # noqa: N803
    C: Value,  # noqa: N803
    skip: Any,
    dt_bias: Any,
    state: LayerState | None,
    limits: tuple[float, float] = NO_LIMITS,
) -> Value:
    """x, B and C: [batch, length, heads, head_dim]."""
    is_rate = isinstance(rates, WideVector) and rates.steps == 3
    if not is_rate or not isinstance(dt_bias, Vector) or not (skip is None or isinstance(skip, Vector)):
        raise NotPlain
    graph = x.graph
    nodes, columns, dims = zip(*(one.of_tokens() for one in (C, B, x)))
    heads, groups, state_size, head_dim = x.shape[2], B.shape[2], dims[1], dims[2]
    if max(state_size, head_dim) > LARGEST or B.shape != C.shape or heads % groups:
        raise NotPlain
    if any(one.sizes is not nodes[0].sizes for one in nodes) or dt.shape != (*x.shape[:2], heads):
        raise NotPlain
    if state is not None:
        state.read(1, heads, head_dim, state_size)
        state.columns_first = True
    sizes = heads, groups, state_size, head_dim
    of_skip = None if skip is None else skip.tensor
    what = Scan(columns, sizes, rates.tensor, dt_bias.tensor, of_skip, limits, state)
    node = graph.add(Node("scan", (*nodes, dt.node), what))
    node.sizes, node.width = nodes[0].sizes, heads * head_dim
    return type(x)(graph, node, head_dim)


def _scan(
    hidden_states: Any,
    dt: Any,
    A: Any,  # noqa: N803
    B: Any,  # noqa: N803
    C: Any,  # noqa: N803
    chunk_size: int,
    D: Any = None,  # noqa: N803
    dt_bias: Any = None,
    initial_states: Any = None,
    dt_softplus: bool = False,
    dt_limit: Any = NO_LIMITS,
    return_final_states: bool = False,
    **others: Any,
) -> Any:
    is_state = isinstance(initial_states, State) and initial_states.which == 1
    state = initial_states.of if is_state else None
    if not (is_state or initial_states is None) or return_final_states is not is_state:
        raise NotPlain
    if dt_softplus is not True or have_others(others):
        raise NotPlain
    least, most = dt_limit
    if not (type(least) is type(most) is float and 0 <= least <= most and least < float("inf")):
        raise NotPlain
    made = _scanned(hidden_states, dt, A, B, C, D, dt_bias, state, (least, most))
    return (made, State(state, 2)) if state is not None else made


def _scan_update(
    state: State,
    hidden_states: Any,
    dt: Any,
    A: Any,  # noqa: N803
    B: Any,  # noqa: N803
    C: Any,  # noqa: N803
    D: Any = None,  # noqa: N803
    dt_bias: Any = None,
    dt_softplus: bool = False,
    z: Any = None,
    **others: Any,
) -> OneToken:
    """The state is written in place."""
    of_token = hidden_states, B, C
    if state.which != 1 or not all(isinstance(x, OneToken) for x in of_token):
        raise NotPlain
    if dt_softplus is not True or z is not None or have_others(others):
        raise NotPlain
    x, b, c = (one.heads for one in of_token)

    def of_heads(numbers: Any, *sizes: int) -> Any:
        if not isinstance(numbers, Repeated) or numbers.sizes != sizes:
            raise NotPlain
        return numbers.of_heads

    dim = x.head_dim
    steps, rates, bias = of_heads(dt, dim), of_heads(A, dim, b.head_dim), of_heads(dt_bias, dim)
    made = _scanned(x, steps, rates, b, c, None if D is None else of_heads(D, dim), bias, state.of)
    state.of.is_kept = True
    return OneToken(made)


RECORDED: dict[str, Any] = {"mamba2_chunk_scan": _scan, "mamba2_selective_state_update": _scan_update}
