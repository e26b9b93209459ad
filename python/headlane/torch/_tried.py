"""Caches that are given to the code of a module and to a plan, of which one may be wrong."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch


class Tried:
    """A cache, and a copy that the code of a module changes.

    is_possible: Whether all of the cache is known, so that it can be copied.
    """

    def __init__(self, cache: Any) -> None:
        ours, theirs = (sys.modules.get(x) for x in ("headlane.torch._cache", "transformers.cache_utils"))
        self.cache = cache
        self.is_possible = (
            ours is not None
            and theirs is not None
            and type(cache) is theirs.DynamicCache
            and not getattr(cache, "offloading", False)
            and all(type(x) in (*ours.GROWING, *ours.GROWING.values()) for x in cache.layers)
        )
        if self.is_possible:
            self.trial = copy.copy(cache)
            self.trial.layers = [copy.copy(x) for x in cache.layers]
            self._before = [x.keys for x in cache.layers]

    def new_entries(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of the layers that were changed, in the cache and in the copy."""
        before = {id(x) for x in self._before}
        of_cache, of_trial = (
            [x for layer in cache.layers if id(layer.keys) not in before for x in (layer.keys, layer.values)]
            for cache in (self.cache, self.trial)
        )
        return of_cache, of_trial

    def take_trial(self) -> None:
        """Makes the cache what the copy has become."""
        layers, others = self.cache.layers, self.trial.layers
        for layer, other in zip(layers, others):
            layer.__dict__ = other.__dict__
        layers.extend(others[len(layers) :])
        self.trial.layers = layers
        self.cache.__dict__ = self.trial.__dict__
