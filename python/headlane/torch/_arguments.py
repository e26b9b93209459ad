"""The arguments of a module: tensors, caches, constants, and tuples of them, and what a plan knows of them."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._cached import CacheValue, FilledCache, Pair, SharedKeys
from ._complex import Angles
from ._nodes import Mask, Node, NotPlain
from ._other import OtherTensor
from ._state import AXES, is_taken
from ._tables import WideMask
from ._values import Value

if TYPE_CHECKING:
    from ._graph import Graph

_CONSTANTS = (type(None), bool, int, float, str)


class Pairs(NamedTuple):
    """The class of an EncoderDecoderCache and of its first cache, and what it says of its layers."""

    kind: type
    own: type
    is_updated: tuple[tuple[Any, Any], ...]


class Shared(NamedTuple):
    """The class of a dict of keys and values of layers, and the heads and sizes of those that are known."""

    kind: type
    sizes: tuple[tuple[str, tuple[int, int, int]], ...] | None


class Input(NamedTuple):
    """A tensor that a module is given, with so many axes; None if it has another type than the weights, "wide" if
    it is a table of float32 and these have 16 bits, "complex" if it is one of complex numbers. Or a cache, of a
    class, or a pair of them, or a dict of keys and values.
    """

    what: int | type | Pairs | Shared | str | None

    def value(self, graph: Graph) -> Value | Mask | CacheValue | Pair | SharedKeys:
        node = graph.add(Node("input"))
        if self.what is None:
            return OtherTensor(graph, node)
        if self.what == "wide":
            return WideMask(node)
        if self.what == "complex":
            return Angles(graph, node)
        if isinstance(self.what, Pairs):
            own = CacheValue(node, self.what.own, graph.updates, graph.states)
            encoders = FilledCache(graph.add(Node("input")))
            return Pair(self.what.kind, own, encoders, dict(self.what.is_updated))
        if isinstance(self.what, Shared):
            sizes = self.what.sizes
            return SharedKeys(node, self.what.kind, None if sizes is None else dict(sizes))
        if isinstance(self.what, type):
            return CacheValue(node, self.what, graph.updates, graph.states)
        node.sizes = graph.sizes_of_input(self.what)
        return Value(graph, node)


_TENSORS = tuple(map(Input, range(AXES + 1)))
_OTHER, _WIDE, _COMPLEX = Input(None), Input("wide"), Input("complex")


def input_of(x: Any, dtype: torch.dtype, found: list[Any]) -> Any:
    """What a plan knows of an argument; NotPlain if there can be none. Its tensors and caches, both of a pair of
    caches, are added to those that were found.
    """
    kind = type(x)
    if kind in _CONSTANTS:
        return x
    if kind is tuple:
        return tuple([input_of(one, dtype, found) for one in x])
    if is_taken(x, dtype):
        found.append(x)
        return _TENSORS[x.dim()]
    if kind is torch.Tensor and is_taken(x, x.dtype):
        found.append(x)
        kinds = {torch.float32: _WIDE, torch.complex64: _COMPLEX} if x.dim() == 3 else {}
        return kinds.get(x.dtype, _OTHER)
    if kind.__module__ != "transformers.cache_utils":
        raise NotPlain
    if isinstance(x, UserDict):
        found.append(x)
        return Input(Shared(kind, tuple(_shared(x, dtype))))
    if not hasattr(x, "cross_attention_cache"):
        found.append(x)
        return Input(kind)
    own = x.self_attention_cache
    found += own, x.cross_attention_cache
    return Input(Pairs(kind, type(own), tuple(x.is_updated.items())))


def _shared(given: UserDict[str, Any], dtype: torch.dtype) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """The names, heads and sizes of keys and values that attention takes, in a dict of them."""
    for name, pair in given.items():
        if type(name) is not str or type(pair) is not tuple or len(pair) != 2:
            continue
        keys, values = pair
        if all(is_taken(x, dtype) and x.dim() == 4 for x in pair) and keys.shape[:3] == values.shape[:3]:
            yield name, (keys.shape[1], keys.shape[3], values.shape[3])


def key_of(x: Any) -> Any:
    """1 and 1.0 are equal, and may not be the same to the code."""
    return tuple(map(key_of, x)) if type(x) is tuple else (type(x), x)


def places_of(inputs: list[Any]) -> tuple[int, ...]:
    """Which are the same object, as code may ask: the number of the first such, for each."""
    ids = list(map(id, inputs))
    return tuple(map(ids.index, ids))


def caches_in(given: Iterable[Any]) -> Iterator[Any]:
    """Caches, pairs of them, and dicts of keys and values, among arguments and in tuples."""
    for x in given:
        if type(x) is tuple:
            yield from caches_in(x)
        elif type(x) not in _CONSTANTS and not isinstance(x, torch.Tensor):
            yield x


def with_trials(x: Any, trials: dict[int, Any]) -> Any:
    """An argument with copies in place of caches, by their ids."""
    return tuple(with_trials(one, trials) for one in x) if type(x) is tuple else trials.get(id(x), x)


def recorded(x: Any, graph: Graph) -> Any:
    """What the code of a module is given for an argument."""
    if type(x) is tuple:
        return tuple(recorded(one, graph) for one in x)
    return x.value(graph) if isinstance(x, Input) else x
