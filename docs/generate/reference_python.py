"""reference/python/*.md: a page for each module, from its source; nothing is imported."""

import ast
import functools
import re
import sys
import textwrap
from pathlib import Path

from builder.prose import Links, paragraphs

PACKAGE = Path(__file__).parents[2] / "python" / "headlane"
TITLES = {
    "__init__": ("package", "headlane"),
    "models": ("models", "headlane.models"),
    "mpi": ("mpi", "headlane.mpi"),
    "torch": ("torch", "headlane.torch"),
    "transformers": ("transformers", "headlane.transformers"),
    "torch_ops": ("torch_ops", "headlane.torch_ops"),
}
SECTION = re.compile(r"^(Args|Returns|Raises):$\n", re.MULTILINE)
PARAMETER = re.compile(r"^(\*{0,2}\w+): (.*)")
WIDTH = 88


def public_names(folder):
    """The names in __all__ of a package."""
    for node in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise ValueError(f"{folder} has no __all__")


def pages():
    """(file of the page, title, sources, names or None) of each page."""
    names, models = public_names(PACKAGE), public_names(PACKAGE / "models")
    for path in sorted(PACKAGE.glob("*.py")):
        if path.stem in TITLES:
            name, title = TITLES[path.stem]
            yield name, title, [path], names if path.stem == "__init__" else None
        elif defined(path, names):
            title = path.stem.strip("_").replace("_", " ")
            title = (
                "KvCache"
                if title == "kv cache"
                else "PackedMatrix"
                if title == "packed"
                else title.capitalize()
            )
            yield path.stem.strip("_"), title, [path], names
    yield "models", "headlane.models", sorted((PACKAGE / "models").glob("*.py")), models
    yield "mpi", "headlane.mpi", sorted((PACKAGE / "mpi").glob("*.py")), public_names(PACKAGE / "mpi")
    yield "torch", "headlane.torch", sorted((PACKAGE / "torch").glob("*.py")), public_names(PACKAGE / "torch")


def definitions(path):
    return ast.parse(path.read_text(encoding="utf-8")).body


def is_overload(node):
    return any(getattr(d, "id", "") == "overload" for d in getattr(node, "decorator_list", ()))


def defined(path, names):
    """The public functions and classes of a module, without overloads."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [node for node in definitions(path) if isinstance(node, kinds) and not is_overload(node)]
    wanted = (lambda name: name in names) if names else (lambda name: not name.startswith("_"))
    return [node for node in found if wanted(node.name)]


def signature(node, name, method=False):
    """name(parameters) -> type, on one line if it fits."""
    arguments = node.args
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    pairs = list(zip(positional, defaults, strict=True))[1 if method else 0 :]
    texts = [parameter(a, default) for a, default in pairs]
    if arguments.kwonlyargs:
        texts.append("*")
        texts += [parameter(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        texts += unpacked(arguments.kwarg)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{name}({', '.join(texts)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){returns}"


@functools.cache
def typed_dicts():
    """The fields of the classes in _types.py, those of their bases first."""
    found = {}
    for node in definitions(PACKAGE / "_types.py"):
        if isinstance(node, ast.ClassDef):
            bases = [field for base in node.bases for field in found.get(getattr(base, "id", ""), [])]
            found[node.name] = bases + [entry for entry in node.body if isinstance(entry, ast.AnnAssign)]
    return found


def unpacked(kwarg):
    """The options behind `**options: Unpack[NAME]`; an ellipsis stands for their defaults."""
    found = re.fullmatch(r"Unpack\[(\w+)\]", ast.unparse(kwarg.annotation) if kwarg.annotation else "")
    if not found:
        return [f"**{kwarg.arg}"]
    kinds = {field.target.id: ast.unparse(field.annotation) for field in typed_dicts()[found[1]]}
    return [f"{name}=…" if kind == "Any" else f"{name}: {kind} = …" for name, kind in kinds.items()]


def parameter(argument, default):
    text = argument.arg
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    if annotation and annotation != "Any":
        text += f": {annotation}"
    if default is not None:
        text += (
            f" = {ast.unparse(default)}" if annotation and annotation != "Any" else f"={ast.unparse(default)}"
        )
    return text


def continued(lines):
    """Indented lines belong to the paragraph before them; after a blank line they are code."""
    joined, code = [], False
    for line in lines:
        code = line.startswith("    ") and (code or not joined or not joined[-1])
        joined.append(line if code else line.strip())
    return joined


def docstring(node, links):
    """Paragraphs, then Google's sections: Args and Raises as lists of terms, Returns as text."""
    first, *rest = SECTION.split(ast.get_docstring(node) or "")
    blocks = [paragraphs(continued(first.splitlines()), links, 0)]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        lines = textwrap.dedent(body).strip("\n").splitlines()
        if title == "Returns":
            blocks.append(f"**Returns:** {links.inline(' '.join(line.strip() for line in lines))}")
        else:
            blocks.append(terms(title, lines, links))
    return "\n\n".join(block for block in blocks if block)


def terms(title, lines, links):
    """`name: text` entries, continued by indented lines."""
    entries = []
    for line in lines:
        if found := PARAMETER.match(line):
            entries.append((found[1], [found[2]]))
        elif line.strip():
            entries[-1][1].append(line.strip())
    listed = [f"`{name}`\n\n:   {links.inline(' '.join(words))}" for name, words in entries]
    heading = "" if title == "Args" else f"**{title}:**\n\n"
    return heading + '<div class="parameters" markdown>\n\n' + "\n\n".join(listed) + "\n\n</div>"


def code(text):
    return f"```python\n{text}\n```"


def fields(node):
    """Annotated attributes of a class: `name: type  # comment` lines of a NamedTuple."""
    return [ast.unparse(entry) for entry in node.body if isinstance(entry, ast.AnnAssign)]


@functools.cache
def classes():
    """The classes of the package's own modules, by name."""
    nodes = [node for path in PACKAGE.glob("*.py") for node in definitions(path)]
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def methods_of(node):
    """Its own methods, then those of its bases."""
    methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef) and not is_overload(m)}
    for base in node.bases:
        if getattr(base, "id", "") in classes():
            methods = methods | {n: m for n, m in methods_of(classes()[base.id]).items() if n not in methods}
    return methods


def class_blocks(node, links):
    methods = methods_of(node)
    if "__init__" in methods:
        yield code(signature(methods["__init__"], node.name, method=True))
    yield docstring(node, links)
    if fields(node):
        yield code("\n".join(fields(node)))
    for name, method in methods.items():
        if name.startswith("_"):
            continue
        yield f"### {node.name}.{name} {{#{node.name.lower()}-{name}}}"
        is_property = any(getattr(d, "id", "") == "property" for d in method.decorator_list)
        yield code(
            f"{name}: {ast.unparse(method.returns)}" if is_property else signature(method, name, method=True)
        )
        yield docstring(method, links)


def write_page(folder, name, title, sources, names, everywhere):
    links = Links(everywhere, f"{name}.md")
    module = ast.parse(sources[0].read_text(encoding="utf-8"))
    public = [path for path in sources if not path.stem.startswith("_") or path.stem == "__init__"]
    blocks = [f"# {title}", docstring(module, links) if public or len(sources) == 1 else ""]
    for path in sources:
        for node in defined(path, names):
            blocks.append(f"## {node.name} {{#{node.name.lower()}}}")
            if isinstance(node, ast.ClassDef):
                blocks += class_blocks(node, links)
            else:
                blocks += [code(signature(node, node.name)), docstring(node, links)]
    (folder / f"{name}.md").write_text(
        "\n\n".join(block for block in blocks if block) + "\n", encoding="utf-8"
    )


def main():
    folder = Path(sys.argv[1]) / "reference" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = list(pages())
    everywhere, rows = {}, ["# Python package", "", "| Name | Does |", "|---|---|"]
    for name, _, sources, names in wanted:
        found = {n.name: f"{name}.md#{n.name.lower()}" for s in sources for n in defined(s, names)}
        everywhere = found | everywhere  # the package's own functions come before their operators
    links = Links({}, "index.md")
    for name, title, sources, names in wanted:
        write_page(folder, name, title, sources, names, everywhere)
        rows.append(f"| **[{title}]({name}.md)** | |")
        for node in (n for s in sources for n in defined(s, names)):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            rows.append(f"| [`{node.name}`]({everywhere[node.name]}) | {links.inline(first)} |")
    (folder / "index.md").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
