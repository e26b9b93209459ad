"""Markdown from the comments of the headers and the docstrings of the Python package."""

import re

# "Shapes: …", "Arithmetic, memory and errors: …"; the rest of the line belongs to the section.
SECTION = re.compile(r"^([A-Z][A-Za-z]+(?:,? (?:and )?[a-z]+){0,4}):(?:\s+|$)(.*)")
ERROR = re.compile(r"^(Error), (.*)")  # "Error, u = 2^-24: …"


class Links:
    """Turns names of the library in a text into links."""

    def __init__(self, names: dict, page: str):
        self.names = {name: target for name, target in names.items() if not target.startswith(page + "#")}
        self.page = page

    def link(self, name, shown):
        target = self.names.get(name)
        return f"[`{shown}`]({target})" if target else None

    def code(self, text):
        return self.link(re.sub(r"\(\)$", "", text), text) or f"`{text}`"

    def plain(self, text):
        """Escapes Markdown; `gemm()`, names of headers and types such as `KvCache` become links."""
        pieces, last = [], 0
        for found in re.finditer(
            r"\b[A-Za-z_]\w*\(\)|\b[a-z0-9_/]+\.(?:hpp|h)\b|\b[A-Z][a-z]+[A-Z]\w*\b", text
        ):
            shown = found.group()
            link = self.link(shown.removesuffix("()").split("/")[-1], shown)
            if link:
                pieces += [escape(text[last : found.start()]), link]
                last = found.end()
        return "".join(pieces) + escape(text[last:])

    def inline(self, text):
        parts = re.split(r"`([^`]+)`", text)
        return "".join(self.code(part) if i % 2 else self.plain(part) for i, part in enumerate(parts))


def escape(text):
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\*_\[\]|#~^]", lambda found: f"&#{ord(found.group())};", text)


def split_sections(lines):
    """(label or None, lines) of each part of a comment.

    A section ends at the next one, or at a line that follows a blank one and is not indented.
    """
    parts = [(None, [])]
    blank = False
    for i, line in enumerate(lines):
        found = i > 0 and (SECTION.match(line) or ERROR.match(line))  # line 0: "KvCache: keys …"
        if found:
            parts.append((found[1], [f"  {found[2]}"] if found[2] else []))
        elif blank and line and not line.startswith("  ") and parts[-1][0]:
            parts.append((None, [line]))
        else:
            parts[-1][1].append(line)
        blank = not line
    return [(label, text) for label, text in parts if any(text)]


def paragraphs(lines, links, base):
    """Markdown of lines whose usual indentation is `base`; those further in are formulas.

    Outside of sections only after a blank line or a colon: elsewhere indented lines continue a paragraph.
    """
    blocks, kind, opened = [], None, True
    for line in lines:
        indent = len(line) - len(line.lstrip())
        text = line.strip()
        if not text:
            kind, opened = None, True
            continue
        further = indent >= base + 2 and (base or opened or kind == "formula")
        new = "formula" if further else "item" if text.startswith("- ") else "text"
        opened = text.endswith((":", ","))
        if new == "formula" and kind == "item":
            blocks[-1][1][-1] += f" {text}"
            continue
        if new == "text" and kind == "item" and indent > 0:
            blocks[-1][1][-1] += f" {text}"
            continue
        if new != kind:
            blocks.append((new, []))
            kind = new
        blocks[-1][1].append(line[base + 2 :] if new == "formula" else text)
    markdown = []
    for kind, texts in blocks:
        if kind == "formula":
            markdown.append("```text\n" + "\n".join(texts) + "\n```")
        elif kind == "item":
            markdown.append("\n".join(f"- {links.inline(text[2:])}" for text in texts))
        else:
            markdown.append(links.inline(" ".join(texts)))
    return "\n\n".join(markdown)


def indented(text, by):
    return "\n".join(" " * by + line if line else line for line in text.splitlines())


def markdown(lines, links):
    """A whole comment: paragraphs, and its sections as a list of definitions."""
    blocks, definitions = [], []
    for label, text in split_sections(lines):
        if label:
            definitions.append(f"{label}\n\n:   {indented(paragraphs(text, links, 2), 4).lstrip()}")
            continue
        if definitions:
            blocks.append("\n\n".join(definitions))
            definitions = []
        blocks.append(paragraphs(text, links, 0))
    if definitions:
        blocks.append("\n\n".join(definitions))
    return "\n\n".join(blocks)


def cell(lines, links):
    """A comment in a cell of a table: one paragraph."""
    return links.inline(" ".join(line.strip() for line in lines if line.strip()))
