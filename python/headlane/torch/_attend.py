"""A call of transformers' attention in the code of a module that is recorded."""

from __future__ import annotations

from typing import Any

from ._cached import Cached
from ._from_cache import entries_of
from ._nodes import Attention, Mask, Node, NotPlain, Read, Recorded
from ._values import Value
from ._vectors import Vector


def attend(
    query: Value, ours: Any, module: Any, key: Any, value: Any, mask: Any, arguments: Any, options: Any
) -> Value:
    """The result, [batch, length, heads, head_dim]."""
    entries, sources = None, None
    if isinstance(key, Cached):
        entries = key.entries_with(value)
        entries.attend()
        key, value = entries.keys, entries.values
    elif not isinstance(key, Value):
        entries, key, value = entries_of(key, value)
        if entries is not None:
            sources = entries.keys.for_attention(), entries.values.for_attention()
    is_filled = entries is not None and key is None
    if not is_filled and not all(isinstance(x, Value) for x in (key, value)):
        raise NotPlain
    given = [x.for_attention() for x in ((query,) * 3 if is_filled else (query, key, value))]
    options = {name: x for name, x in options.items() if name not in ours.IGNORED}
    bias = options.pop("position_bias", None)
    sinks = options.get("s_aux")
    if isinstance(sinks, Vector):
        options["s_aux"] = sinks.tensor
    if _has_recorded((*arguments, *options.values())):
        raise NotPlain
    if not all(x is None or isinstance(x, (Value, Mask)) for x in (mask, bias)):
        raise NotPlain
    (of_query, of_key, of_value), heads = zip(*given)
    if entries is not None and entries.sizes is not None:
        count, *dims = entries.sizes
        heads = (heads[0], *(((0, count * dim), dim) for dim in dims))
    read = Read(
        of_query,
        None if is_filled else of_key,
        None if is_filled else of_value,
        entries and entries.cache,
        None if mask is None else mask.node,
        None if bias is None else bias.node,
        *([x for x, _ in sources] if sources else []),
    )
    given_to = entries.given if entries is not None else None
    if given_to is not None:
        if sources:
            raise NotPlain
        read = read._replace(shared=given_to[0])
    graph = query.graph
    what = Attention(
        ours,
        graph.module_of(module),
        read.there(),
        heads,
        entries and entries.arguments,
        arguments,
        options,
        sources and [x for _, x in sources],
        given_to and given_to[1],
    )
    node = graph.add(Node("attention", tuple(read.there().values()), what))
    *_, (_, value_dim) = heads
    node.sizes, node.width = of_query.sizes, query.shape[1] * value_dim
    return Value(graph, node, value_dim)


def _has_recorded(x: Any) -> bool:
    """Whether it is what stands for a tensor, or has some inside."""
    if isinstance(x, dict):
        x = tuple(x.values())
    return isinstance(x, Recorded) or (isinstance(x, (tuple, list)) and any(map(_has_recorded, x)))
