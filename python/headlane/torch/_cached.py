"""Caches of keys and values in the code of a module: what it appends, and attends to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ._delta import Channels, LayerState, State, States
from ._from_cache import FromCache
from ._nodes import Node, NotPlain, Recorded, Size


class CacheValue:
    """A cache of keys and values, of class `kind`, that a module is given."""

    def __init__(self, node: Node, kind: type, updates: list[Entries], states: list[LayerState]) -> None:
        self._node = node
        self._kind = kind
        self._updates = updates
        self._states = States(node, states)

    __class__ = property(lambda self: self._kind)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise NotPlain

    def update(self, keys: Any, values: Any, *arguments: Any, kwargs: Any = None) -> tuple[Cached, Cached]:
        """kwargs: Those of the attention, since transformers 5.24; a DynamicCache does not use them."""
        if any(type(x) is not int for x in arguments):
            raise NotPlain
        entries = Entries(self._node, arguments, keys, values)
        self._updates.append(entries)
        return Cached(entries, 0), Cached(entries, 1)

    def get_seq_length(self, layer: int) -> Size:
        return Size()

    # Of linear attention: a plan runs as if there was a state, which is 0 before the first call.

    def get_conv_state(self, layer_idx: Any, state_idx: Any = 0) -> State:
        return State(self._states.of(layer_idx, state_idx), 0)

    def get_recurrent_state(self, layer_idx: Any, state_idx: Any = 0) -> State:
        return State(self._states.of(layer_idx, state_idx), 1)

    def update_conv_state(
        self, x: Any, layer_idx: Any, state_idx: Any = 0, conv_kernel_size: Any = None
    ) -> Channels:
        of = self._states.of(layer_idx, state_idx)
        if not isinstance(x, Channels) or not x.is_whole() or of.is_updated or of.sizes:
            raise NotPlain
        of.is_updated = True
        return Channels(x.value, of, conv_kernel_size)

    def update_recurrent_state(self, state: Any, layer_idx: Any, state_idx: Any = 0) -> None:
        of = self._states.of(layer_idx, state_idx)
        if not isinstance(state, State) or state.which != 2 or state.of is not of or of.is_kept:
            raise NotPlain
        of.is_kept = True

    def is_recording_past(self, layer_idx: Any) -> bool:
        return False  # or the plan does not run

    def __bool__(self) -> bool:
        raise NotPlain


class FilledCache:
    """A cache whose keys and values a module attends to as they are: those of an encoder's result."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._layers: dict[int, SimpleNamespace] = {}

    layers = property(lambda self: self)

    def __getitem__(self, layer: Any) -> SimpleNamespace:
        if type(layer) is not int or layer < 0:
            raise NotPlain
        if layer not in self._layers:
            entries = Entries(self._node, (layer,))
            self._layers[layer] = SimpleNamespace(keys=Cached(entries, 0), values=Cached(entries, 1))
        return self._layers[layer]


class SharedKeys:
    """A dict of keys and values of layers, of class `kind`, of which a module attends to some as they are, and to
    which it gives all of a layer of its cache.

    sizes: Of each layer type that is known: the number of heads, and their sizes in keys and in values; None if
        it is not known which there are, before the first call.
    """

    def __init__(self, node: Node, kind: type, sizes: dict[str, tuple[int, int, int]] | None) -> None:
        self._node = node
        self._kind = kind
        self._sizes = sizes
        self._given: set[str] = set()

    __class__ = property(lambda self: self._kind)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise NotPlain

    def __setitem__(self, name: Any, pair: Any) -> None:
        if type(name) is not str or name in self._given or type(pair) is not tuple or len(pair) != 2:
            raise NotPlain
        self._given.add(name)
        keys, values = pair
        if isinstance(keys, Cached):
            keys.entries_with(values).give(self._node, name)
        elif self._sizes is not None:  # the code will have a cache
            raise NotPlain

    def __getitem__(self, name: Any) -> tuple[Cached, Cached]:
        is_there = self._sizes is None or name in self._sizes
        if type(name) is not str or name in self._given or not is_there:
            raise NotPlain
        entries = Entries(self._node, (name,), sizes=None if self._sizes is None else self._sizes[name])
        return Cached(entries, 0), Cached(entries, 1)

    def _refuse(self, *arguments: Any) -> Any:
        raise NotPlain

    __bool__ = __contains__ = __eq__ = __iter__ = __len__ = __ne__ = _refuse  # type: ignore[assignment]
    __hash__ = object.__hash__


class Pair:
    """An EncoderDecoderCache that a module is given.

    is_updated: What it says of its layers: whether the cache of the encoder's keys and values is filled.
    """

    def __init__(
        self, kind: type, own: CacheValue, encoders: FilledCache, is_updated: dict[Any, Any]
    ) -> None:
        self._kind = kind
        self.self_attention_cache = own
        self.cross_attention_cache = encoders
        self.is_updated = _Filled(is_updated)

    __class__ = property(lambda self: self._kind)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise NotPlain

    def get_seq_length(self, layer: int) -> Size:
        return Size()

    def __bool__(self) -> bool:
        raise NotPlain


class _Filled(dict):  # type: ignore[type-arg]
    """Which layers are filled, and remain it."""

    def __setitem__(self, layer: Any, value: Any) -> None:
        if value is not True or self.get(layer) is not True:
            raise NotPlain


class Entries:
    """Keys and values of a layer of a cache, for the one attention that must follow.

    arguments: The layer; those of the cache's update() if keys and values are first appended.
    sizes: The number of heads, and their sizes in keys and in values, of keys that are shared.
    given: The dict to which they are given, and the name there.
    """

    def __init__(
        self,
        cache: Node,
        arguments: tuple[Any, ...],
        keys: Any = None,
        values: Any = None,
        sizes: tuple[int, int, int] | None = None,
    ) -> None:
        self.cache = cache
        self.keys = keys
        self.values = values
        self.arguments = arguments
        self.sizes = sizes
        self.given: tuple[Node, str] | None = None
        self.is_attended = False
        self.length = Size()  # of all keys

    def give(self, shared: Node, name: str) -> None:
        """Before the attention."""
        if self.keys is None or self.given is not None or self.is_attended:
            raise NotPlain
        self.given = shared, name

    def attend(self) -> None:
        if self.is_attended:
            raise NotPlain
        self.is_attended = True


class Cached(Recorded):
    """All keys of a layer, after an update if there is one, or all values."""

    def __init__(self, entries: Entries, which: int) -> None:
        self._entries = entries
        self._which = which

    def entries_with(self, values: Any) -> Entries:
        """Those of which these are the keys, and the others the values."""
        is_pair = isinstance(values, Cached) and values._entries is self._entries
        if not is_pair or (self._which, values._which) != (0, 1):
            raise NotPlain
        return self._entries

    def as_source(self) -> FromCache:
        """What others are computed from, of each position."""
        new = self._entries.values if self._which else self._entries.keys
        if new is None:
            raise NotPlain
        return FromCache(self._entries, new)

    @property
    def shape(self) -> Any:
        return self.as_source().shape

    def expand(self, *sizes: Any) -> FromCache:
        return self.as_source().expand(*sizes)
