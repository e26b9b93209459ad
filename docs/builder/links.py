"""Checks the built site: pages and anchors of links exist, and nothing is loaded from the network."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that load something when a page is viewed; a link (`a href`) may lead elsewhere.
LOADS = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "srcset"), ("iframe", "src")}
NETWORK = re.compile(r"^(https?:)?//")


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        for name, value in attrs:
            if (tag, name) in LOADS and value and attributes.get("rel") != "canonical":
                self.loads += [part.split()[0] for part in value.split(",")] if name == "srcset" else [value]


def target(site, page, link):
    """The file and the anchor that a link on a page leads to; None for another site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    if not path:
        return page, unquote(parts.fragment)
    file = (site / path[1:] if path.startswith("/") else page.parent / path).resolve()
    return (file / "index.html" if file.is_dir() else file), unquote(parts.fragment)


def check(folder: Path):
    """Messages, one for each thing that is wrong."""
    site = folder.resolve()
    pages = {path: Page(path) for path in site.rglob("*.html")}
    messages = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in page.links + page.loads:
            if link.startswith("data:"):
                continue
            if link in page.loads and NETWORK.match(link):
                messages.append(f"{name}: loads {link} from the network")
            found = target(site, path, link)
            if found is None or name == Path("404.html"):  # that page is served at any depth
                continue
            file, anchor = found
            if not file.exists():
                messages.append(f"{name}: no file for {link}")
            elif anchor and file in pages and anchor not in pages[file].anchors | {"__comments"}:
                messages.append(f"{name}: no anchor for {link}")
    for style in site.rglob("*.css"):
        for url in re.findall(r"url\(\s*['\"]?([^'\")]+)", style.read_text(encoding="utf-8")):
            if NETWORK.match(url):
                messages.append(f"{style.relative_to(site)}: loads {url} from the network")
    return messages
