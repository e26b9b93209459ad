"""The checks of `./dev lint tree` find what they are for."""

from __future__ import annotations

from pathlib import Path

import check_form
import check_includes
import check_tests
import pytest

LONG = ": a function of 61 lines, more than 60"
ALLOWED = {"include": [], "src/low": ["include"], "src/high": ["src/low", "include"]}


@pytest.fixture
def tree(tmp_path):
    """Writes FILE = the headers it includes; returns the faults."""

    def faults(files: dict[str, list[str]], allowed=ALLOWED, exceptions=()) -> list[str]:
        for name, headers in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f'#include "{header}"\n' for header in headers))
        return list(check_includes.faults(tmp_path, allowed, list(exceptions)))

    return faults


def test_includes_that_point_down(tree):
    assert not tree(
        {"src/low/a.hpp": [], "src/low/b.cpp": ["low/a.hpp"], "src/high/c.cpp": ["low/a.hpp", "vector"]}
    )


def test_an_include_that_points_up(tree):
    assert tree({"src/high/a.hpp": [], "src/low/b.cpp": ["high/a.hpp"]}) == [
        "src/low/b.cpp: may not include src/high/a.hpp: src/low -> src/high is not in the table"
    ]


def test_an_include_relative_to_its_file(tree):
    assert len(tree({"src/high/a.hpp": [], "src/low/b.cpp": ["../high/a.hpp"]})) == 1


def test_a_folder_that_the_table_lacks(tree):
    assert tree({"src/low/a.hpp": [], "src/new/b.cpp": ["low/a.hpp"]}) == [
        "src/new/b.cpp: the folder src/new is not in the table"
    ]


def test_a_table_with_an_arrow_that_points_up(tree):
    allowed = {"src/low": ["src/high"], "src/high": []}
    assert tree({}, allowed) == ["the table: src/low -> src/high does not point down"]


def test_headers_that_include_each_other(tree):
    files = {"src/low/a.hpp": ["low/b.hpp"], "src/low/b.hpp": ["low/a.hpp"], "src/low/c.cpp": ["low/a.hpp"]}
    assert [fault for fault in tree(files) if fault.startswith("a cycle: ")]


def test_exceptions_are_used_or_removed(tree):
    files = {"src/high/a.hpp": [], "src/low/b.cpp": ["high/a.hpp"]}
    exception = ("src/low/b.cpp", "src/high/a.hpp", "for the test")
    assert not tree(files, exceptions=[exception])
    assert tree({"src/low/b.cpp": []}, exceptions=[exception]) == [
        "EXCEPTIONS: src/low/b.cpp does not include src/high/a.hpp any more"
    ]


def test_the_table_points_down():
    assert not list(check_includes.order_faults(check_includes.ALLOWED))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.cpp", "x" * 120, ""),
        ("a.cpp", "x" * 121, "a.cpp:1: 121 columns, more than 120"),
        ("a.cpp", "  // " + "x" * 96, "a.cpp:1: 101 columns, more than 100"),
        ("a.sh", "# " + "é" * 98, ""),
        ("a.sh", "# " + "é" * 99, "a.sh:1: 101 columns, more than 100"),
        ("a.py", "\n" * 300, ""),
        ("a.py", "\n" * 301, "a.py: 301 lines, more than 300"),
        ("a.py", "def f():\n" + "    x = 1\n" * 59, ""),
        ("a.py", "def f():\n" + "    x = 1\n" * 60, "a.py:1: a function of 61 lines, more than 60"),
        ("a.py", 'def f():\n    """A.\n    B.\n    """\n' + "    x = 1\n" * 59, ""),
        ("a.cpp", "int f(int a,\n      int b) {\n" + "  x;\n" * 57 + "}\n", ""),
        ("a.cpp", "int f(int a,\n      int b) {\n" + "  x;\n" * 58 + "}\n", "a.cpp:1" + LONG),
        ("a.cpp", "A::A()\n    : b(1) {\n" + "  x;\n" * 58 + "}\n", "a.cpp:1: a function of 61 lines, more than 60"),
        ("a.cpp", "struct A {\n  int f() {\n" + "    x;\n" * 59 + "  }\n};\n", "a.cpp:2" + LONG),
        ("a.cpp", "namespace {\n" + "int x;\n" * 80 + "}\n", ""),
        ("a.sh", "f() {\n" + "  x\n" * 59 + "}\n", "a.sh:1: a function of 61 lines, more than 60"),
    ],
)  # fmt: skip
def test_form(name, text, found):
    assert list(check_form.faults(Path(name), text)) == ([found] if found else [])


def test_a_test_that_is_not_built(tmp_path):
    for name in ("gemm/test_small.cpp", "gemm/test_forgotten.cpp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "CMakeLists.txt").write_text("headlane_tests(gemm\n  ONCE small)\n")
    assert list(check_tests.faults(tmp_path)) == [
        f"{tmp_path}/gemm/test_forgotten.cpp is not built: no CMakeLists.txt in {tmp_path} names it"
    ]


def test_a_fault_in_a_line_that_has_changed(tmp_path):
    (tmp_path / "tools/mutate").mkdir(parents=True)
    (tmp_path / "a.cpp").write_text("  int x = 0;  // a: b\n")
    (tmp_path / check_tests.EQUIVALENT).write_text(
        "# the reason: none\n\na.cpp: int x = 0; // a: b  =>  *\na.cpp: int y = 0;  =>  *\nb.cpp: c  =>  d\n"
    )
    assert list(check_tests.stale_entries(tmp_path)) == [
        f"{check_tests.EQUIVALENT}: a.cpp has no line int y = 0;",
        f"{check_tests.EQUIVALENT}: b.cpp has no line c",
    ]
