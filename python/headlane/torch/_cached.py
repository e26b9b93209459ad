"""Caches of keys and values in the code of a module: what it appends, and attends to."""

from __future__ import annotations

from typing import Any

from ._nodes import Node, NotPlain


class CacheValue:
    """A cache of keys and values, of class `kind`, that a module is given."""

    def __init__(self, node: Node, kind: type, updates: list[Update]) -> None:
        self._node = node
        self._kind = kind
        self._updates = updates

    __class__ = property(lambda self: self._kind)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise NotPlain

    def update(self, keys: Any, values: Any, *arguments: Any) -> tuple[Cached, Cached]:
        if any(type(x) is not int for x in arguments):
            raise NotPlain
        update = Update(self._node, keys, values, arguments)
        self._updates.append(update)
        return Cached(update, 0), Cached(update, 1)

    def __bool__(self) -> bool:
        raise NotPlain


class Update:
    """Keys and values that are appended to those of a cache, for the one attention that must follow."""

    def __init__(self, cache: Node, keys: Any, values: Any, arguments: tuple[int, ...]) -> None:
        self.cache = cache
        self.keys = keys
        self.values = values
        self.arguments = arguments
        self.is_attended = False


class Cached:
    """All keys of a cache after an update, or all values."""

    def __init__(self, update: Update, which: int) -> None:
        self._update = update
        self._which = which

    def attended_with(self, values: Any) -> Update:
        """For the attention by these keys."""
        update = self._update
        is_pair = isinstance(values, Cached) and values._update is update
        if not is_pair or (self._which, values._which) != (0, 1) or update.is_attended:
            raise NotPlain
        update.is_attended = True
        return update
