"""Reads the public headers with libclang: declarations in their order, with comments."""

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from clang import cindex
from clang.cindex import AccessSpecifier, CursorKind

FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE}
METHODS = {CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR} | FUNCTIONS
CLASSES = {CursorKind.STRUCT_DECL, CursorKind.CLASS_DECL, CursorKind.CLASS_TEMPLATE}
VALUES = {CursorKind.VAR_DECL, CursorKind.TYPE_ALIAS_DECL, CursorKind.TYPEDEF_DECL}
MACROS = re.compile(r"\b(HEADLANE_API|HEADLANE_HIDDEN|HEADLANE_CBLAS_NOEXCEPT|\[\[nodiscard\]\])\s*")


@dataclass
class Declaration:
    """`kind`: function, class, enum, value, field, group or enumerator; `code`: without a body."""

    kind: str
    name: str
    code: str
    comment: list[str] = field(default_factory=list)
    members: list["Declaration"] = field(default_factory=list)


@dataclass
class Header:
    path: str  # as it is included: headlane/gemm.hpp
    intro: list[str]
    declarations: list[Declaration]


def clean_comment(raw):
    """The lines of a comment without its markers; indentation beyond one space is kept."""
    if not raw:
        return []
    lines = []
    for line in raw.splitlines():
        text = re.sub(r"^\s*(///<?|//|/\*\*?|\*/|\*(?!/))", "", line)
        text = re.sub(r"\s*\*/\s*$", "", text).rstrip()
        lines.append(text[1:] if text.startswith(" ") else text)
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


@functools.cache
def mpi_folders():
    """Where mpi.h is, by Open MPI's compiler; empty without it."""
    if shutil.which("mpicxx") is None:
        return []
    shown = subprocess.run(["mpicxx", "--showme:incdirs"], capture_output=True, text=True)
    return shown.stdout.split()


def parse(root: Path, text: str, arguments):
    """A file that includes headers, parsed without being written."""
    gcc = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True)
    arguments = [
        *arguments,
        f"-I{root / 'include'}",
        f"-I{root / 'models/include'}",
        f"-I{root / 'mpi/include'}",
        *(f"-isystem{folder}" for folder in mpi_folders()),
        "-isystem",
        gcc.stdout.strip(),
    ]
    name = "headers.c" if "c" in arguments else "headers.cpp"
    unit = cindex.Index.create().parse(name, arguments, [(name, text)])
    errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise ValueError(errors[0])
    return unit


class Reader:
    """Reads one header of a parsed file that includes it."""

    def __init__(self, unit, path: Path, include: Path):
        self.unit = unit
        self.source = path.read_bytes()
        self.file = str(path)
        self.name = str(path.relative_to(include))

    def read(self):
        return Header(self.name, self.intro(), self.scope(self.unit.cursor))

    def intro(self):
        text = self.source.decode()
        block = re.match(r"/\*.*?\*/|(?://[^\n]*\n)+", text, re.DOTALL)
        return clean_comment(block.group()) if block else []

    def text(self, cursor):
        """A declaration as it is written, without body, macros and trailing white space."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        for child in cursor.get_children():
            if child.kind == CursorKind.COMPOUND_STMT:
                end = child.extent.start.offset
        code = MACROS.sub("", self.source[start:end].decode()).strip()
        code = re.sub(r"[ \t]*//[^\n]*", "", code)
        if cursor.kind == CursorKind.CONSTRUCTOR:
            code = re.sub(r"\)\s*:\s*\w+[({].*$", ")", code, flags=re.DOTALL)
        column = cursor.extent.start.column - 1
        return re.sub(rf"\n {{0,{column}}}", "\n", code)

    def scope(self, cursor):
        declarations = []
        for child in cursor.get_children():
            if not child.location.file or child.location.file.name != self.file:
                continue
            if child.kind == CursorKind.LINKAGE_SPEC:
                declarations += self.scope(child)
            elif child.kind == CursorKind.NAMESPACE and child.spelling not in ("detail", "internal"):
                declarations += self.scope(child)
            else:
                declarations += self.declaration(child)
        return declarations

    def declaration(self, cursor):
        comment = clean_comment(cursor.raw_comment)
        name = cursor.spelling
        if cursor.kind in FUNCTIONS:
            return [Declaration("function", name, self.text(cursor), comment)]
        if cursor.kind in CLASSES and cursor.is_definition():
            return [Declaration("class", name, self.head(cursor), comment, self.members(cursor))]
        if cursor.kind == CursorKind.ENUM_DECL and cursor.is_definition():
            values = [c for c in cursor.get_children() if c.kind == CursorKind.ENUM_CONSTANT_DECL]
            members = [
                Declaration("enumerator", v.spelling, self.text(v), clean_comment(v.raw_comment))
                for v in values
            ]
            named = name and "unnamed" not in name
            return [Declaration("enum", name if named else "Constants", self.head(cursor), comment, members)]
        if cursor.kind in VALUES:
            return [Declaration("value", name, self.text(cursor), comment)]
        return []

    def head(self, cursor):
        """`struct Name`, up to the body."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        code = self.source[start:end].decode()
        return MACROS.sub("", code[: code.index("{")]).strip()

    def group(self, begin, end):
        """The last line `// ---- Name` between two places, or None."""
        names = re.findall(r"// ---- ([^\n]+?)(?: -+)?\n", self.source[begin:end].decode())
        return names[-1] if names else None

    def belongs(self, found, field):
        """Whether a field without a comment shares that of the field of its type in the line above."""
        if not found or found[-1].kind != "field" or not found[-1].comment:
            return False
        lines = self.source[: field.extent.start.offset].decode().split("\n")
        above = lines[-2].strip()
        return "///<" not in above and above.startswith(field.type.spelling.removeprefix("headlane::"))

    def members(self, cursor):
        """Public fields and functions; fields of one declaration (`Index rows, columns;`) are one."""
        found, last, before = [], None, cursor.extent.start.offset
        for child in cursor.get_children():
            if child.access_specifier != AccessSpecifier.PUBLIC:
                continue
            group = self.group(before, child.extent.start.offset)
            before = child.extent.end.offset
            if group:
                found.append(Declaration("group", group, ""))
            comment = clean_comment(child.raw_comment)
            if child.kind == CursorKind.FIELD_DECL:
                start = child.extent.start.offset
                if start == last:
                    found[-1].name += f", {child.spelling}"
                    found[-1].comment = found[-1].comment or comment
                elif not comment and not group and self.belongs(found, child):
                    found[-1].name += f", {child.spelling}"
                else:
                    found.append(Declaration("field", child.spelling, self.text(child), comment))
                last = start
            elif child.kind in METHODS and not self.defaulted(child):
                found.append(Declaration("function", child.spelling, self.text(child), comment))
            elif child.kind in CLASSES and child.is_definition():
                found += self.declaration(child)
            elif child.kind in VALUES:
                found.append(Declaration("value", child.spelling, self.text(child), comment))
        return found

    def defaulted(self, cursor):
        """Destructors, moves and defaulted constructors need no entry of their own."""
        code = self.text(cursor)
        moves = cursor.kind == CursorKind.CONSTRUCTOR and "&&" in code and not cursor.raw_comment
        plain = cursor.kind == CursorKind.DESTRUCTOR or cursor.spelling == "operator="
        return moves or plain or (code.endswith("= default") and not cursor.raw_comment)


def read_headers(root: Path):
    """All public headers, by their paths."""
    paths = {
        path: folder
        for folder in (root / "include", root / "models/include", root / "mpi/include")
        for path in folder.rglob("*.h*")
        if path.name != "communicator.hpp" or mpi_folders()
    }
    names = {path: path.relative_to(folder) for path, folder in paths.items()}
    everything = "".join(f"#include <{name}>\n" for name in names.values() if name.suffix == ".hpp")
    unit = parse(root, everything, ["-x", "c++", "-std=c++20"])
    headers = []
    for path, folder in sorted(paths.items()):
        if path.name in ("export.h", "headlane.hpp"):
            continue
        if path.suffix == ".h":
            own = parse(root, f"#include <{names[path]}>\n", ["-x", "c", "-std=c99", "-fparse-all-comments"])
            headers.append(Reader(own, path, folder).read())
        else:
            headers.append(Reader(unit, path, folder).read())
    return headers
