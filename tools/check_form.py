"""Checks the sizes of lines, functions and files: `./dev lint tree`.

Formatters break code but neither comments nor strings, and leave long functions alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_CODE, MAX_COMMENT, MAX_FUNCTION, MAX_FILE = 120, 100, 60, 300
# The mark of a comment by the end of a file's name.
MARKS = {
    ".cpp": "//", ".hpp": "//", ".c": "//", ".h": "//",
    ".py": "#", ".sh": "#", ".cmake": "#", "CMakeLists.txt": "#", "dev": "#", "run": "#",
}  # fmt: skip
FOLDERS = ".ci bench cmake docs examples include models mpi python src tests tools".split()
FILES = ["CMakeLists.txt", "dev"]
# Texts whose lines are data: sentences and their translations.
DATA = {"models/little/lexicon.py", "models/little/small_talk.py"}
# A line that opens a block but no function.
OTHER_BLOCK = re.compile(
    r"(if|else|for|while|switch|do|try|catch|case|default|class|struct|union|enum|namespace|extern|using"
    r"|template|return|co_|elif|until|with|except|finally|match|\W)"
)


def mark(path: Path) -> str | None:
    return MARKS.get(path.suffix) or MARKS.get(path.name)


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def python_functions(text: str) -> Iterator[tuple[int, int]]:
    """The first line of each function and the number of its lines, those of its docstring left out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield node.lineno, length


def braced_functions(lines: list[str]) -> Iterator[tuple[int, int]]:
    """The same in C++ and shell, as formatted: a function ends with a brace below its first character."""
    for last, line in enumerate(lines):
        if line.strip() != "}":
            continue
        first = last - 1
        while first >= 0 and (
            not lines[first].strip() or lines[first][0] == "#" or indent(lines[first]) > indent(line)
        ):
            first -= 1
        head = lines[first].strip() if first >= 0 else ""
        if indent(line) == indent(lines[first]) and "(" in head and not OTHER_BLOCK.match(head):
            yield first + 1, last - first + 1


def faults(path: Path, text: str) -> Iterator[str]:
    lines, comment = text.splitlines(), mark(path)
    for number, line in enumerate(lines, 1):
        limit = MAX_COMMENT if line.lstrip().startswith(comment) else MAX_CODE
        if len(line) > limit and str(path) not in DATA:
            yield f"{path}:{number}: {len(line)} columns, more than {limit}"
    if len(lines) > MAX_FILE:
        yield f"{path}: {len(lines)} lines, more than {MAX_FILE}"
    for first, length in python_functions(text) if path.suffix == ".py" else braced_functions(lines):
        if length > MAX_FUNCTION:
            yield f"{path}:{first}: a function of {length} lines, more than {MAX_FUNCTION}"


def main() -> int:
    paths = [Path(name) for name in FILES]
    for folder in FOLDERS:
        paths += sorted(path for path in Path(folder).rglob("*") if path.is_file() and mark(path))
    found = [fault for path in paths for fault in faults(path, path.read_text())]
    for fault in found:
        print(f"form: {fault}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
