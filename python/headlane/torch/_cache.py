"""Caches of transformers that grow in place: DynamicCache copies all keys and values for each new token."""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_compiling
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, EncoderDecoderCache

_LEAST = 64  # positions that a buffer has to spare
ARGUMENTS = ("cache", "past_key_values")  # by which models are given one: since transformers 5.24, and before


def _of_each_position(x: torch.Tensor) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1])


class Buffer:
    """Keys or values, and room for more. Those before `first` and behind `used` belong to nobody."""

    __slots__ = ("first", "memory", "used")

    def __init__(self, before: torch.Tensor, new: torch.Tensor) -> None:
        self.first = 0
        self.used = before.shape[-2]
        room = self.used + new.shape[-2]
        *batch, _, width = before.shape
        self.memory = before.new_empty((*batch, room + max(room // 2, _LEAST), width))
        self.memory[..., : self.used, :] = before

    def fits(self, before: torch.Tensor, count: int) -> bool:
        """Whether `before` is what this buffer holds, and nothing else, and so many positions may be written
        behind it.
        """
        memory = self.memory
        return (
            before.data_ptr() == memory.data_ptr() + self.first * memory.stride(-2) * memory.itemsize
            and before.shape[-2] == self.used - self.first
            and before.stride() == memory.stride()
            and _of_each_position(before) == _of_each_position(memory)
            and self.has_room(count)
        )

    def has_room(self, count: int) -> bool:
        memory = self.memory
        can_write = torch.is_inference_mode_enabled() or not memory.is_inference()
        return can_write and self.used + count <= memory.shape[-2]

    def append(self, new: torch.Tensor) -> torch.Tensor:
        begin, self.used = self.used, self.used + new.shape[-2]
        self.memory[..., begin : self.used, :] = new
        return self.held()

    def held(self) -> torch.Tensor:
        return self.memory.narrow(-2, self.first, self.used - self.first)


def may_append(before: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether new positions are like those before them, and no gradients are wanted."""
    return (
        before.dim() == 4
        and before.shape[-2] > 0
        and type(before) is type(new) is torch.Tensor
        and before.device.type == new.device.type == "cpu"
        and before.dtype == new.dtype
        and _of_each_position(before) == _of_each_position(new)
        and not (torch.is_grad_enabled() and (before.requires_grad or new.requires_grad))
    )


def _is_plain(x: Any) -> bool:
    return type(x) is torch.Tensor and not (x.requires_grad and torch.is_grad_enabled())


def _entries(name: str) -> Any:
    """Keys or values of a layer: the tensors are made of what it holds when one of them is read or assigned."""

    def get(layer: Any) -> Any:
        layer.settle()
        return layer.__dict__[name]

    def set_to(layer: Any, x: Any) -> None:
        layer.settle()
        layer.__dict__[name] = x

    return property(get, set_to)


class _Growing(DynamicLayer):
    """A layer whose keys and values are parts of buffers: new ones are written behind them. Whoever has older
    ones, such as a copy of the cache, keeps them: what is not the end of a buffer gets another one. What it holds
    of its buffers, their `first` and `used`, is in `_headlane_held` until somebody wants the tensors.
    """

    keys, values = _entries("keys"), _entries("values")

    def settle(self) -> None:
        mine = self.__dict__
        held = mine.pop("_headlane_held", None)
        if held is not None:
            for name, (first, used) in zip(("keys", "values"), held):
                mine[name] = mine[f"_headlane_{name}"].memory.narrow(-2, first, used - first)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self.keys, self.values
        if is_compiling() or keys is None or values is None or not self._grows():
            return super().update(key_states, value_states, *args, **kwargs)
        if not (may_append(keys, key_states) and may_append(values, value_states)):
            return super().update(key_states, value_states, *args, **kwargs)
        all_keys = self._appended("_headlane_keys", keys, key_states)
        all_values = self._appended("_headlane_values", values, value_states)
        self.take(key_states.shape[-2])
        return all_keys, all_values

    def claim(self, count: int) -> tuple[torch.Tensor, torch.Tensor, int] | None:
        """The memory of keys and values, and how many positions they have, if there is room for so many more:
        nobody else gets it. Then take() or release() follows, or other memory will be used.
        """
        mine = self.__dict__
        keys, values = mine.get("_headlane_keys"), mine.get("_headlane_values")
        if keys is None or values is None or is_compiling() or not self._grows():
            return None
        first, begin = place = keys.first, keys.used
        if place != (values.first, values.used):
            return None
        held = mine.get("_headlane_held")
        if held is None:
            fits = all(
                _is_plain(x) and buffer.fits(x, count)
                for buffer, x in ((keys, self.keys), (values, self.values))
            )
        else:
            fits = held == (place, place) and keys.has_room(count) and values.has_room(count)
        if not fits:
            return None
        keys.used = values.used = begin + count
        of_keys, of_values = keys.memory, values.memory
        if first:
            of_keys, of_values = (x.narrow(-2, first, x.shape[-2] - first) for x in (of_keys, of_values))
        return of_keys, of_values, begin - first

    def claimed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All positions, those that were claimed too."""
        return self._headlane_keys.held(), self._headlane_values.held()

    def take(self, count: int) -> None:
        """So many positions were appended to the buffers: they belong to the keys and values."""
        mine, keys, values = self.__dict__, self._headlane_keys, self._headlane_values
        mine["_headlane_held"] = (keys.first, keys.used), (values.first, values.used)
        mine["keys"] = mine["values"] = None

    def release(self, count: int) -> None:
        """So many positions that were claimed were not written."""
        for buffer in (self._headlane_keys, self._headlane_values):
            buffer.used -= count

    def __copy__(self) -> _Growing:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A layer of transformers' class, without the memory that is not its own."""
        kind = next(kind for kind, growing in GROWING.items() if growing is type(self))
        self.settle()
        own = vars(self).copy()
        for name in ("keys", "values"):
            if own.pop(f"_headlane_{name}", None) is not None and own[name] is not None:
                own[name] = own[name].clone()
        return object.__new__, (kind,), own

    def _grows(self) -> bool:
        return True

    def _appended(self, name: str, before: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        buffer = self.__dict__.get(name)
        if buffer is None or not buffer.fits(before, new.shape[-2]):
            buffer = self.__dict__[name] = Buffer(before, new)
        return buffer.append(new)


class GrowingLayer(_Growing):
    """A DynamicLayer that grows in place."""


class GrowingSlidingLayer(_Growing, DynamicSlidingWindowLayer):
    """A DynamicSlidingWindowLayer that grows in place: older positions are left behind in the buffer."""

    def take(self, count: int) -> None:
        for buffer in (self._headlane_keys, self._headlane_values):
            buffer.first = max(buffer.first, buffer.used - (self.sliding_window - 1))
        self.cumulative_length += count
        super().take(count)

    def _grows(self) -> bool:
        records = getattr(self, "record_past", False)  # all positions, until crop() is called
        return not records and self.sliding_window > 1


ALL_POSITIONS = (DynamicLayer, GrowingLayer)  # what keeps all of them
GROWING = {DynamicLayer: GrowingLayer, DynamicSlidingWindowLayer: GrowingSlidingLayer}


def grow(module: Any, arguments: Any, options: dict[str, Any]) -> None:
    """A hook in front of a model's forward function: the cache that it is given grows in place."""
    cache = next((options[name] for name in ARGUMENTS if options.get(name) is not None), None)
    if cache is None or is_compiling():
        return
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if not isinstance(cache, Cache):
        return
    for layer in cache.layers:
        layer.__class__ = GROWING.get(type(layer), type(layer))
