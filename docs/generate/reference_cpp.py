"""reference/cpp/*.md: a page for each public header."""

import re
import sys
from pathlib import Path

from builder.headers import read_headers
from builder.prose import Links, cell, escape, markdown

ROOT = Path(__file__).parents[2]
WIDTH = 82  # characters of code that a laptop shows beside the two lists


def anchor(name):
    return re.sub(r"[^\w-]", "", name.lower())


def page_of(header):
    """gemm-hpp.md: index.md is the list of headers."""
    return re.sub(r"[/.]", "-", header.path.removeprefix("headlane/")) + ".md"


def all_names(headers):
    """Where each function, type and header is described."""
    names = {}
    for header in headers:
        page = page_of(header)
        names.setdefault(header.path.split("/")[-1], page)
        for declaration in header.declarations:
            names.setdefault(declaration.name, f"{page}#{anchor(declaration.name)}")
    return names


def field_cell(member):
    """The name; below it, the type and the default."""
    if member.kind == "enumerator":
        return f"`{member.code}`"
    names = " ".join(f"**`{name}`**" for name in member.name.split(", "))
    code = re.sub(r"\s+", " ", member.code)
    first = re.escape(member.name.split(", ")[0])
    kind, rest = re.match(rf"(.*?)\b{first}\b(.*)", code).groups()
    default = re.search(r"= (.*)", rest.split(",")[0] if ", " in member.name else rest)
    shown = kind.strip() + (f" = {default[1]}" if default and default[1] != "{}" else "")
    return f'{names}<br><span class="type">{escape(shown)}</span>'


def field_table(members, links):
    """Fields or enumerators; each group of fields has a table of its own."""
    if not any(member.comment for member in members):
        end = "," if members[-1].kind == "enumerator" else ";"
        return "```cpp\n" + ("\n".join(member.code + end for member in members)) + "\n```"
    rows = []
    for i, member in enumerate(members):
        if member.kind == "group":
            name, _, text = member.name.partition(": ")
            rows.append(f"\n**{escape(name)}**" + (f": {escape(text)}" if text else "") + "\n")
        if i == 0 or member.kind == "group":
            rows += [
                "| Value | Meaning |" if member.kind == "enumerator" else "| Field | Meaning |",
                "|---|---|",
            ]
        if member.kind != "group":
            rows.append(f"| {field_cell(member)} | {cell(member.comment, links)} |")
    return '<div class="fields" markdown>\n\n' + "\n".join(rows) + "\n\n</div>"


def wrapped(code):
    """A declaration whose parameters are filled into lines that fit the page."""
    if all(len(line) <= WIDTH for line in code.split("\n")) or "(" not in code:
        return code
    head, rest = code.split("(", 1)
    parameters, depth, last = [], 0, 0
    flat = re.sub(r"\s+", " ", rest[: rest.rindex(")")])
    for i, character in enumerate(flat):
        depth += (character in "<({[") - (character in ">)}]")
        if character == "," and depth == 0:
            parameters.append(flat[last : i + 1].strip())
            last = i + 1
    lines = [head + "("]
    for parameter in [*parameters, flat[last:].strip() + rest[rest.rindex(")") :]]:
        if len(lines) > 1 and len(lines[-1]) + len(parameter) < WIDTH:
            lines[-1] += f" {parameter}"
        else:
            lines.append(f"    {parameter}")
    return "\n".join(lines)


def functions(declarations, links):
    """Overloads: signatures and texts; one without a comment shares the comment above."""
    blocks, together = [], []
    for i, declaration in enumerate(declarations):
        together.append(declaration)
        following = declarations[i + 1] if i + 1 < len(declarations) else None
        if following and not following.comment and declaration.name == following.name:
            continue
        code = "\n".join(f"{wrapped(d.code)};" for d in together)
        text = markdown(together[0].comment, links)
        blocks.append(f"```cpp\n{code}\n```\n\n{text}".strip())
        together = []
    return "\n\n".join(blocks)


def class_section(declaration, links):
    fields = [m for m in declaration.members if m.kind in ("field", "group")]
    blocks = [f"```cpp\n{declaration.code};\n```", markdown(declaration.comment, links)]
    if any(m.kind == "field" for m in fields):
        blocks.append(field_table(fields, links))
    rest = [m for m in declaration.members if m.kind not in ("field", "group")]
    while rest:
        name = rest[0].name
        if rest[0].kind == "class":
            blocks += [f"**`{name}`**", class_section(rest.pop(0), links)]
            continue
        if rest[0].kind == "value":
            blocks.append(f"```cpp\n{rest.pop(0).code};\n```")
            continue
        accessors = []
        while rest and rest[0].kind == "function" and not rest[0].comment:
            accessors.append(rest.pop(0))
        if accessors:
            blocks.append("```cpp\n" + "\n".join(f"{wrapped(d.code)};" for d in accessors) + "\n```")
            continue
        same = []
        while (
            rest and rest[0].kind == "function" and (rest[0].name == name or (same and not rest[0].comment))
        ):
            same.append(rest.pop(0))
        heading = f"### {declaration.name}::{name} {{#{anchor(declaration.name)}-{anchor(name)}}}".replace(
            "<T>", ""
        )
        blocks += [heading, functions(same, links)]
    return "\n\n".join(block for block in blocks if block)


def sections(header, links):
    """Markdown of each declaration; functions of one name stand under one heading."""
    rest = list(header.declarations)
    used = set()
    while rest:
        first = rest.pop(0)
        together = [first]
        while first.kind == "function" and rest and rest[0].kind == "function" and rest[0].name == first.name:
            together.append(rest.pop(0))
        identifier = anchor(first.name)
        if identifier not in used:
            used.add(identifier)
            yield f"## {first.name} {{#{identifier}}}"
        if first.kind == "function":
            yield functions(together, links)
        elif first.kind == "class":
            yield class_section(first, links)
        else:
            yield f"```cpp\n{first.code};\n```"
            yield markdown(first.comment, links)
            if first.members:
                yield field_table(first.members, links)


def write_page(header, names, folder):
    page = page_of(header)
    links = Links(names, page)
    # A header without declarations of its own is described by its first comment alone.
    blocks = [f"# {header.path.split('/', 1)[1]}", f"```cpp\n#include <{header.path}>\n```"]
    if header.path.startswith("headlane/models/"):
        text = "models_text" if header.path.endswith("text.hpp") else "models"
        blocks.append(f"CMake target `headlane::{text}`, namespace `headlane::models`.")
    if header.path.startswith("headlane/mpi/"):
        blocks.append("CMake target `headlane::mpi`, namespace `headlane::mpi`.")
    blocks.append(markdown(header.intro, links))
    blocks += sections(header, links)
    (folder / page).write_text("\n\n".join(block for block in blocks if block) + "\n", encoding="utf-8")


def summary(header, links):
    """The first sentence of a header, for the list of headers; of "Name: text" the text."""
    whole = " ".join(header.intro)
    text = re.sub(r"^\w+: ", "", whole)
    sentence = re.split(r"(?<!\bal\.)(?<=[.;])\s", text)[0].rstrip(".;")
    return links.inline(sentence if text == whole else sentence[:1].upper() + sentence[1:])


def main():
    folder = Path(sys.argv[1]) / "reference" / "cpp"
    folder.mkdir(parents=True, exist_ok=True)
    headers = read_headers(ROOT)
    names = all_names(headers)
    for header in headers:
        write_page(header, names, folder)
    rows = ["# C++ headers", "", "| Header | Provides |", "|---|---|"]
    links = Links(names, "index.md")
    for header in headers:
        provides = ", ".join(dict.fromkeys(f"[`{d.name}`]({names[d.name]})" for d in header.declarations))
        rows.append(
            f"| [{header.path.split('/', 1)[1]}]({page_of(header)}) | {summary(header, links)}<br>{provides} |"
        )
    (folder / "index.md").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
