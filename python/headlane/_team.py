"""What ranks of a team refuse together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def refused_together(team: Any, name: str, function: str) -> Iterator[None]:
    """Arguments that one rank refuses before its call raise ValueError on all ranks.

    Args:
        team: A _core.MpiTeam, or None.
        name: The name of the call.
        function: Its name in the library.
    """
    try:
        yield
    except Exception as error:
        if team is not None:
            team.refuse(name, function, f"{type(error).__name__}: {error}")
        raise
