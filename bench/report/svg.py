"""A matplotlib figure as SVG to stand inside the page: small, with real text, ids of its own, and colours by name, so
that the page's style sheet decides between light and dark."""

import io
import re
from xml.etree import ElementTree

from . import style

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FAMILY = re.compile(r"font-family: [^;]*; ")  # the page has its own
LONG = re.compile(r"-?\d+\.\d{3,}")


def _short(value):
    return FAMILY.sub("", LONG.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value))


def _use_names(value):
    for name, colour in style.LIGHT.items():
        value = value.replace(colour, f"var(--{name})")
    return value


def inline(figure, alt, kind):
    """The <svg> element as text. `kind` becomes its class; the figure must be drawn in the light theme."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = out.getvalue()
    root = ElementTree.fromstring(text[text.index("<svg") :])
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
        for text_of in ("text", "tail"):
            if not (getattr(parent, text_of) or "").strip():
                setattr(parent, text_of, None)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for key, value in element.attrib.items():
            if key != "id" and "href" not in key:
                element.set(key, _use_names(_short(value)))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    width = root.get("viewBox").split()[2]
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("class", kind)
    root.set("role", "img")
    root.set("aria-label", alt)
    root.set("style", f"max-width: {width}px")
    return ElementTree.tostring(root, encoding="unicode")
