"""Checks the include graph: `./dev lint tree`.

ALLOWED lists the folders from the bottom to the top, each with the folders that its files may include.
An arrow has to point to an earlier line, so the table itself cannot contain a cycle. Tests may include
everything below them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

PUBLIC = ["include/headlane"]
MODELS = ["models/include/headlane/models"]
MPI = ["mpi/include/headlane/mpi"]
DRIVER = ["src/core", "src/kernels", "src/kernels/args"]  # what the driver of an operation may include
ALLOWED = {
    # The library.
    "include/headlane": [],
    "src/kernels/args": [*PUBLIC],
    "src/kernels/simd": [*PUBLIC, "src/kernels/args"],
    "src/kernels/gemm": ["src/kernels/args", "src/kernels/simd"],
    "src/kernels/rowwise": [*PUBLIC, "src/kernels/args", "src/kernels/simd"],
    "src/kernels/position": ["src/kernels/args", "src/kernels/simd"],
    "src/kernels/recurrent": ["src/kernels/args", "src/kernels/simd"],
    "src/kernels/attention": [
        "src/kernels/args", "src/kernels/simd", "src/kernels/gemm", "src/kernels/rowwise",
    ],
    "src/kernels": [
        *PUBLIC, "src/kernels/args", "src/kernels/simd", "src/kernels/gemm", "src/kernels/rowwise",
        "src/kernels/position", "src/kernels/recurrent", "src/kernels/attention",
    ],
    "src/core": [*PUBLIC, "src/kernels", "src/kernels/args"],
    "src/gemm": [*PUBLIC, *DRIVER],
    "src/rowwise": [*PUBLIC, *DRIVER],
    "src/position": [*PUBLIC, *DRIVER],
    "src/recurrent": [*PUBLIC, *DRIVER],
    "src/attention": [*PUBLIC, *DRIVER, "src/gemm", "src/position"],
    "src/layers": [*PUBLIC, *DRIVER, "src/gemm", "src/rowwise", "src/position", "src/attention"],
    # The models see the library as a user does.
    "models/include/headlane/models": [*PUBLIC],
    "models/src/io": [*PUBLIC, *MODELS],
    "models/src/generation": [*PUBLIC, *MODELS, "models/src/io"],
    "models/src/text": [*PUBLIC, *MODELS, "models/src/io"],
    "models/src/t5": [*PUBLIC, *MODELS, "models/src/io", "models/src/generation"],
    "models/src/bert": [*PUBLIC, *MODELS, "models/src/io"],
    "models/tools": [*PUBLIC, *MODELS],
    # So does what runs on many ranks.
    "mpi/include/headlane/mpi": [*PUBLIC],
    "mpi/src": [*PUBLIC, *MPI],
    "mpi/bench": [*PUBLIC, *MPI],
    # So do the Python bindings.
    "python/src/core": [*PUBLIC],
    "python/src/gemm": [*PUBLIC, "python/src/core"],
    "python/src/rowwise": [*PUBLIC, "python/src/core", "python/src/gemm"],
    "python/src/position": [*PUBLIC, "python/src/core"],
    "python/src/recurrent": [*PUBLIC, "python/src/core", "python/src/gemm"],
    "python/src/attention": [*PUBLIC, "python/src/core"],
    "python/src/mpi": [*PUBLIC, *MPI, "python/src/core", "python/src/attention"],
    "python/src/layers": [
        *PUBLIC, "python/src/core", "python/src/gemm", "python/src/attention", "python/src/mpi",
    ],
    "python/src/rows": [*PUBLIC, "python/src/core", "python/src/gemm", "python/src/attention"],
    "python/src/models": [*PUBLIC, *MODELS, "python/src/core", "python/src/mpi"],
    "python/src": [*PUBLIC, "python/src/core"],
    # And the examples and benchmarks.
    "examples": [*PUBLIC, *MODELS],
    "bench/native": [*PUBLIC, "examples"],
    "bench/peers/workers/native": [*PUBLIC, "bench/native"],
}  # fmt: skip
# Includes against the table: FILE, HEADER, and why.
EXCEPTIONS = [
    ("models/src/io/error.hpp", "src/core/message.hpp", "its .cpp is compiled into each library"),
    ("models/src/generation/generate.cpp", "src/core/message.hpp", "likewise"),
    ("models/src/io/gguf.cpp", "src/core/floating_point_scope.hpp", "dequantises while it reads"),
    ("models/src/t5/t5.cpp", "src/core/floating_point_scope.hpp", "one state for a whole translation"),
    ("models/src/bert/load.cpp", "src/core/floating_point_scope.hpp", "converts while it reads"),
    ("models/src/bert/bert.cpp", "src/core/floating_point_scope.hpp", "one state for a whole batch"),
    ("mpi/src/error.hpp", "src/core/message.hpp", "likewise"),
    ("models/src/io/team.hpp", "src/core/agreement.hpp", "header-only"),
    ("mpi/src/together.hpp", "src/core/agreement.hpp", "header-only"),
    ("mpi/src/grid.hpp", "src/core/round.hpp", "header-only"),
    ("mpi/src/attention.cpp", "src/core/floating_point_scope.hpp", "one state for a whole call"),
    ("mpi/src/cache_attention.cpp", "src/core/floating_point_scope.hpp", "likewise"),
    ("mpi/src/kv_cache.cpp", "src/core/floating_point_scope.hpp", "looks for NaN"),
    ("python/src/core/call.hpp", "src/core/floating_point_scope.hpp", "computes as the library does"),
    ("python/src/layers/experts.cpp", "src/core/parallel.hpp", "gathers and adds rows"),
    ("bench/native/regions.cpp", "src/core/parallel.hpp", "measures it"),
    ("bench/native/scaling.cpp", "src/core/parallel.hpp", "simulates it"),
    ("bench/native/scaling.cpp", "src/gemm/problem.hpp", "simulates it"),
]
# Where includes of the files in a folder are looked for, besides the file's own folder.
ROOTS = {
    "include": ["include"],
    "src": ["src", "include"],
    "models": ["models/src", "models/include", "include", "src"],
    "mpi": ["mpi/src", "mpi/include", "include", "src"],
    "python/src": ["python/src", "include", "models/include", "mpi/include", "src"],
    "examples": ["include", "models/include"],
    "bench": ["include", "src"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def order_faults(allowed: dict[str, list[str]]) -> Iterator[str]:
    """Arrows of the table that do not point to an earlier line."""
    below: set[str] = set()
    for folder, targets in allowed.items():
        yield from (
            f"the table: {folder} -> {target} does not point down"
            for target in targets
            if target not in below
        )
        below.add(folder)


def files(root: Path) -> Iterator[Path]:
    for base in ROOTS:
        for path in sorted((root / base).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".h", ".c") and not {"tests", "fuzz"} & set(path.parts):
                yield path.relative_to(root)


def arrows(root: Path) -> Iterator[tuple[Path, Path]]:
    """Each include of a header of this tree: (file, header)."""
    for path in files(root):
        base = next(base for base in ROOTS if path.is_relative_to(base))
        for name in INCLUDE.findall((root / path).read_text()):
            for folder in [path.parent, *map(Path, ROOTS[base])]:
                if (root / folder / name).is_file():
                    yield path, Path(*(root / folder / name).resolve().relative_to(root.resolve()).parts)
                    break


def cycles(graph: dict[Path, list[Path]]) -> Iterator[str]:
    """Headers that include themselves by way of others, which an include guard hides."""
    done: set[Path] = set()

    def visit(path: Path, trail: list[Path]) -> Iterator[str]:
        if path in trail:
            yield "a cycle: " + " -> ".join(map(str, [*trail[trail.index(path) :], path]))
        elif path not in done:
            for header in graph.get(path, []):
                yield from visit(header, [*trail, path])
            done.add(path)

    for path in graph:
        yield from visit(path, [])


def faults(
    root: Path, allowed: dict[str, list[str]], exceptions: list[tuple[str, str, str]]
) -> Iterator[str]:
    yield from order_faults(allowed)
    used: set[tuple[str, str]] = set()
    graph: dict[Path, list[Path]] = {}
    for path, header in arrows(root):
        graph.setdefault(path, []).append(header)
        source, target = str(path.parent), str(header.parent)
        if any((str(path), str(header)) == exception[:2] for exception in exceptions):
            used.add((str(path), str(header)))
        elif source not in allowed:
            yield f"{path}: the folder {source} is not in the table"
        elif source != target and target not in allowed[source]:
            yield f"{path}: may not include {header}: {source} -> {target} is not in the table"
    yield from cycles(graph)
    for file, header, _ in exceptions:
        if (file, header) not in used:
            yield f"EXCEPTIONS: {file} does not include {header} any more"


def main() -> int:
    found = list(faults(Path.cwd(), ALLOWED, EXCEPTIONS))
    for fault in found:
        print(f"includes: {fault}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
