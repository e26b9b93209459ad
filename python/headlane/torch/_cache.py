"""Caches of transformers that grow in place: DynamicCache copies all keys and values for each new token."""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_compiling
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, EncoderDecoderCache

_LEAST = 64  # positions that a buffer has to spare


def _of_each_position(x: torch.Tensor) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1])


class _Buffer:
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
            and self.used + count <= memory.shape[-2]
            and (torch.is_inference_mode_enabled() or not memory.is_inference())
        )

    def append(self, new: torch.Tensor) -> torch.Tensor:
        begin, self.used = self.used, self.used + new.shape[-2]
        self.memory[..., begin : self.used, :] = new
        return self.held()

    def held(self) -> torch.Tensor:
        return self.memory.narrow(-2, self.first, self.used - self.first)

    def last(self, most: int) -> torch.Tensor:
        """Holds at most so many from now on."""
        self.first = max(self.first, self.used - most)
        return self.held()


def _may_append(before: torch.Tensor, new: torch.Tensor) -> bool:
    return (
        before.dim() == 4
        and before.shape[-2] > 0
        and type(before) is type(new) is torch.Tensor
        and before.device.type == new.device.type == "cpu"
        and before.dtype == new.dtype
        and _of_each_position(before) == _of_each_position(new)
        and not (torch.is_grad_enabled() and (before.requires_grad or new.requires_grad))
    )


class _Growing(DynamicLayer):
    """A layer whose keys and values are parts of buffers: new ones are written behind them. Whoever has older
    ones, such as a copy of the cache, keeps them: what is not the end of a buffer gets another one.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self.keys, self.values
        if is_compiling() or keys is None or values is None or not self._grows():
            return super().update(key_states, value_states, *args, **kwargs)
        if not (_may_append(keys, key_states) and _may_append(values, value_states)):
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
        if (keys.first, keys.used) != (values.first, values.used):
            return None
        for buffer, before in ((keys, self.keys), (values, self.values)):
            is_plain = type(before) is torch.Tensor and not (before.requires_grad and torch.is_grad_enabled())
            if not is_plain or not buffer.fits(before, count):
                return None
        first, begin = keys.first, keys.used
        keys.used = values.used = begin + count
        of_keys, of_values = keys.memory, values.memory
        if first:
            of_keys, of_values = (x.narrow(-2, first, x.shape[-2] - first) for x in (of_keys, of_values))
        return of_keys, of_values, begin - first

    def take(self, count: int) -> None:
        """So many positions were appended to the buffers: they belong to the keys and values."""
        self.keys, self.values = self._headlane_keys.held(), self._headlane_values.held()

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
            buffer = self.__dict__[name] = _Buffer(before, new)
        return buffer.append(new)


class GrowingLayer(_Growing):
    """A DynamicLayer that grows in place."""


class GrowingSlidingLayer(_Growing, DynamicSlidingWindowLayer):
    """A DynamicSlidingWindowLayer that grows in place: older positions are left behind in the buffer."""

    def take(self, count: int) -> None:
        most = self.sliding_window - 1
        self.keys, self.values = self._headlane_keys.last(most), self._headlane_values.last(most)
        self.cumulative_length += count

    def _grows(self) -> bool:
        records = getattr(self, "record_past", False)  # all positions, until crop() is called
        return not records and self.sliding_window > 1


GROWING = {DynamicLayer: GrowingLayer, DynamicSlidingWindowLayer: GrowingSlidingLayer}


def grow(module: Any, arguments: Any, options: dict[str, Any]) -> None:
    """A hook in front of a model's forward function: the cache that it is given grows in place."""
    cache = options.get("past_key_values")
    if cache is None or is_compiling():
        return
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    if not isinstance(cache, Cache):
        return
    for layer in cache.layers:
        layer.__class__ = GROWING.get(type(layer), type(layer))
