"""A drawing as a file of its own, in the colours of one scheme, for README.md."""

from __future__ import annotations

import re
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "site" / "assets"
SCHEMES = {"light": "default", "dark": "slate"}
GROUND = {"light": "#ffffff", "dark": "#0d1117"}


def colours(scheme: str) -> dict[str, str]:
    """The variables of site.css, and the ground, which the theme gives."""
    css = (ASSETS / "site.css").read_text(encoding="utf-8")
    block = re.search(rf'\[data-md-color-scheme="{SCHEMES[scheme]}"\] \{{(.*?)\}}', css, re.DOTALL)
    return {**dict(re.findall(r"--([\w-]+): ([^;]+);", block[1])), "md-default-bg-color": GROUND[scheme]}


def style(scheme: str) -> str:
    """The rules of figures.css that are about drawings, without variables."""
    css = (ASSETS / "figures.css").read_text(encoding="utf-8")
    values = colours(scheme)
    rules = re.findall(r"^svg\.figure [^\n]+\}$", css, re.MULTILINE)
    rules.insert(0, "text { font-family: sans-serif; font-size: 13px; fill: var(--figure-text); }")
    return re.sub(r"var\(--([\w-]+)\)", lambda name: values[name[1]], "\n".join(rules))


def standalone(figure: str, scheme: str) -> str:
    """The first drawing of a figure."""
    drawing = re.search(r"<svg .*?</svg>", figure, re.DOTALL)[0]
    head, body = drawing.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>\n{style(scheme)}\n</style>{body}\n'
