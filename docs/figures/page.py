"""Pages with places for what is computed: `{{name}}` in a text, or alone on a line for a figure or a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PLACE = re.compile(r"\{\{([a-z0-9_]+)\}\}")


class BadPage(Exception):
    """A place that nothing fills, or a result that no page shows."""


def fill(page: Path, values: Mapping[str, str]) -> None:
    """Writes the values into the page, each where its name is."""
    source = page.read_text(encoding="utf-8")
    names = set(PLACE.findall(source))
    if unknown := names - values.keys():
        raise BadPage(f"{page.name}: nothing computes {', '.join(sorted(unknown))}")
    if unused := values.keys() - names:
        raise BadPage(f"{page.name}: does not show {', '.join(sorted(unused))}")
    page.write_text(PLACE.sub(lambda place: values[place[1]], source), encoding="utf-8")
