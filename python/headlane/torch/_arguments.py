"""The arguments of a module: tensors, caches, constants, and tuples of them, and what a plan knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._cached import CacheValue, FilledCache, Pair
from ._nodes import Mask, Node, NotPlain, Size
from ._rotary import WideMask
from ._state import is_plain
from ._values import Value

if TYPE_CHECKING:
    from ._graph import Graph

_CONSTANTS = (type(None), bool, int, float, str)


class Pairs(NamedTuple):
    """The class of an EncoderDecoderCache and of its first cache, and what it says of its layers."""

    kind: type
    own: type
    is_updated: tuple[tuple[Any, Any], ...]


class Input:
    """A tensor that a module is given, with so many axes; None if it has another type than the weights, "wide" if
    it is a table of float32 and these have 16 bits. Or a cache, of a class, or a pair of them.
    """

    __slots__ = ("what",)

    def __init__(self, what: int | type | Pairs | str | None) -> None:
        self.what = what

    def value(self, graph: Graph) -> Value | Mask | CacheValue | Pair:
        node = graph.add(Node("input"))
        if self.what is None:
            return Mask(node)
        if self.what == "wide":
            return WideMask(node)
        if isinstance(self.what, Pairs):
            own = CacheValue(node, self.what.own, graph.updates)
            encoders = FilledCache(graph.add(Node("input")))
            return Pair(self.what.kind, own, encoders, dict(self.what.is_updated))
        if isinstance(self.what, type):
            return CacheValue(node, self.what, graph.updates)
        node.sizes = tuple(Size() for _ in range(self.what - 1))
        return Value(graph, node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Input) and self.what == other.what

    def __hash__(self) -> int:
        return hash((Input, self.what))


def input_of(x: Any, dtype: torch.dtype) -> Any:
    """What a plan knows of an argument; NotPlain if there can be none."""
    if is_plain(x, dtype):
        return Input(x.dim())
    if type(x) is torch.Tensor and x.dtype is not dtype and is_plain(x, x.dtype):
        return Input("wide" if x.dtype is torch.float32 and x.dim() == 3 else None)
    if type(x) in _CONSTANTS:
        return x
    if type(x) is tuple:
        return tuple(input_of(one, dtype) for one in x)
    if type(x).__module__ == "transformers.cache_utils":
        if not _is_pair(x):
            return Input(type(x))
        return Input(Pairs(type(x), type(x.self_attention_cache), tuple(x.is_updated.items())))
    raise NotPlain


def _is_pair(cache: Any) -> bool:
    """Whether it is an EncoderDecoderCache."""
    return hasattr(cache, "cross_attention_cache")


def key_of(x: Any) -> Any:
    """1 and 1.0 are equal, and may not be the same to the code."""
    return tuple(map(key_of, x)) if type(x) is tuple else (type(x), x)


def _leaves(given: Iterable[Any]) -> Iterator[Any]:
    """Tensors and caches, those in tuples too."""
    for x in given:
        if type(x) is tuple:
            yield from _leaves(x)
        elif type(x) not in _CONSTANTS:
            yield x


def inputs_of(given: Iterable[Any]) -> list[Any]:
    """Tensors and caches: both of a pair of caches."""
    found: list[Any] = []
    for x in _leaves(given):
        is_one = isinstance(x, torch.Tensor) or not _is_pair(x)
        found += (x,) if is_one else (x.self_attention_cache, x.cross_attention_cache)
    return found


def places_of(inputs: list[Any]) -> tuple[int, ...]:
    """Which are the same object, as code may ask: the number of the first such, for each."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(x), number) for number, x in enumerate(inputs))


def caches_in(given: Iterable[Any]) -> list[Any]:
    return [x for x in _leaves(given) if not isinstance(x, torch.Tensor)]


def with_trials(x: Any, trials: dict[int, Any]) -> Any:
    """An argument with copies in place of caches, by their ids."""
    return tuple(with_trials(one, trials) for one in x) if type(x) is tuple else trials.get(id(x), x)


def recorded(x: Any, graph: Graph) -> Any:
    """What the code of a module is given for an argument."""
    if type(x) is tuple:
        return tuple(recorded(one, graph) for one in x)
    return x.value(graph) if isinstance(x, Input) else x
