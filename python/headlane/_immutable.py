"""Copying of objects that never change."""

from __future__ import annotations

from typing import TypeVar

Self = TypeVar("Self")


def itself(self: Self, memo: object = None) -> Self:
    """A copy of an object that never changes: __copy__ and __deepcopy__."""
    return self
