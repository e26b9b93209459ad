"""What the code of a module and a plan both change in a first call, of which one may be wrong: caches, and what
modules inside know of their calls.
"""

from __future__ import annotations

import copy
import random
import sys
from collections import UserDict
from typing import Any

import torch
from torch import nn


class RandomState:
    """Of PyTorch and of Python, from which code may draw."""

    def __init__(self) -> None:
        self.theirs, self.own = torch.get_rng_state(), random.getstate()

    def is_current(self) -> bool:
        return self.own == random.getstate() and self.theirs.equal(torch.get_rng_state())

    def restore(self) -> None:
        torch.set_rng_state(self.theirs)
        random.setstate(self.own)


class Repeated:
    """The second of two equal runs of modules that have only constants: of random numbers it has the same, and it
    leaves what the first one has left.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self.modules = modules
        self.random = RandomState()

    def __enter__(self) -> None:
        self.after = [dict(vars(x)) for x in self.modules]
        if self.modules:
            first, self.random = self.random, RandomState()
            first.restore()

    def __exit__(self, *error: object) -> None:
        if self.modules:
            self.random.restore()
        for module, after in zip(self.modules, self.after):
            own = vars(module)
            for name in own.keys() - after.keys():
                del own[name]
            own.update(after)


class Seen:
    """What modules that a plan calls as they are have inside. Their code may change it in a call, such as counts and
    biases that balance loads, and a second call in the first one's place would change it again.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self._modules = [x for one in modules for x in one.modules()]
        self._random = RandomState()
        self._before = [_state_of(x) for x in self._modules]
        self._numbers = [[(x, x.clone()) for x in _tensors_of(one)] for one in self._modules]

    def is_unchanged(self) -> bool:
        """Whether nothing was changed, no random numbers were drawn, and no hooks saw the call."""
        if self._modules and not self._random.is_current():
            return False
        for module, before, numbers in zip(self._modules, self._before, self._numbers):
            now = _state_of(module)
            if now.keys() != before.keys() or module._forward_hooks or module._forward_pre_hooks:
                return False
            if not all(
                x is y or (type(x) is type(y) is int and x == y)
                for x, y in zip(now.values(), before.values())
            ):
                return False
            if not all(x.equal(copied) for x, copied in numbers):
                return False
        return True


def _state_of(module: nn.Module) -> dict[Any, Any]:
    """Attributes, parameters and buffers of a module, and how much those hold that may."""
    own = {**vars(module), **module._parameters, **module._buffers}
    sizes = {(name, "size"): len(x) for name, x in own.items() if isinstance(x, (dict, list, set))}
    return {**own, **sizes}


def _tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """Those that code may change in place: parameters are trained instead."""
    there = (*vars(module).values(), *module._buffers.values())
    return [x for x in there if isinstance(x, torch.Tensor)]


def _copied(layer: Any) -> Any:
    """A copy of a layer of a cache, with states of its own, which are written in place."""
    made = copy.copy(layer)
    for name, states in vars(made).items():
        if isinstance(states, dict):
            made.__dict__[name] = {
                i: x.clone() if isinstance(x, torch.Tensor) else x for i, x in states.items()
            }
    return made


def _states(layer: Any) -> list[Any]:
    """Those of linear attention, in the type that the layer has."""
    found = [x for name in ("conv_states", "recurrent_states") for x in getattr(layer, name, {}).values()]
    return [x if x is None else x.to(layer.dtype or x.dtype) for x in found]


def _are_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.equal(one, other)


def _keys(layer: Any) -> Any:
    """None if a layer of a cache has none, as that of linear attention."""
    return getattr(layer, "keys", None)


def _changed(layers: list[Any], before: set[int]) -> list[torch.Tensor]:
    return [x for layer in layers if id(_keys(layer)) not in before for x in (layer.keys, layer.values)]


class TriedDict:
    """A dict of keys and values that layers share, and a copy that the code of a module changes."""

    is_possible = True

    def __init__(self, shared: UserDict[str, Any]) -> None:
        self.cache = shared
        self.trial = copy.copy(shared)
        self._before = dict(shared)

    def new_entries(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Those that were given to the dict and to the copy, in the order of their names."""
        ours, theirs = (
            [x for name, pair in sorted(one.items()) if pair is not self._before.get(name) for x in pair]
            for one in (self.cache, self.trial)
        )
        return ours, theirs

    def take_trial(self) -> None:
        """Makes the dict what the copy has become."""
        self.cache.data = self.trial.data


class Tried:
    """A cache, and a copy that the code of a module changes. Of an EncoderDecoderCache the cache of the encoder's
    keys is not copied: plans only read it.

    is_possible: Whether all of the cache is known, so that it can be copied.
    """

    def __init__(self, cache: Any) -> None:
        ours, theirs = (sys.modules.get(x) for x in ("headlane.torch._cache", "transformers.cache_utils"))
        self.cache = cache
        self.is_possible = False
        if ours is None or theirs is None:
            return
        is_pair = type(cache) is theirs.EncoderDecoderCache
        own = cache.self_attention_cache if is_pair else cache
        # Those of layers with the keys of others remain what they are: no plan changes any.
        others = (getattr(theirs, name, None) for name in ("LinearAttentionLayer", "DummyLayer"))
        known = {*ours.GROWING, *ours.GROWING.values(), *others}
        self.is_possible = (
            type(own) is theirs.DynamicCache
            and not getattr(own, "offloading", False)
            and all(type(x) in known for x in own.layers)
        )
        if self.is_possible:
            self._own = own
            self._before = [_keys(x) for x in own.layers]  # tensors that the copies have, too
            self._own_trial = self.trial = copy.copy(own)
            self._own_trial.layers = [_copied(x) for x in own.layers]
            if is_pair:
                self.trial = copy.copy(cache)
                self.trial.self_attention_cache = self._own_trial

    def new_entries(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of the layers that were changed, in the cache and in the copy, and states that differ."""
        before = set(map(id, self._before))
        ours, theirs = (_changed(x.layers, before) for x in (self._own, self._own_trial))
        for pair in zip(self._own.layers, self._own_trial.layers):
            for one, other in zip(*map(_states, pair)):
                if not _are_same(one, other):
                    ours.append(one)
                    theirs.append(other)
        return ours, theirs

    def take_trial(self) -> None:
        """Makes the cache what the copy has become."""
        layers, others = self._own.layers, self._own_trial.layers
        for layer, other in zip(layers, others):
            layer.__dict__ = other.__dict__
        layers.extend(others[len(layers) :])
        self._own_trial.layers = layers
        self._own.__dict__ = self._own_trial.__dict__


def tried(given: Any) -> Tried | TriedDict:
    return TriedDict(given) if isinstance(given, UserDict) else Tried(given)
