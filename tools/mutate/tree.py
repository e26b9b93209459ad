"""A copy of the sources in build/mutate, with faults in it, and its build."""

import os
import pathlib
import re
import shutil
import subprocess

from plant import blamed, planted

TOOLS = pathlib.Path(__file__).parent
# GCC's: what an error in a template was needed for stands before it.
PLACE = re.compile(r"^([^\s:]+):(\d+):(\d+): (?:(?:fatal )?(error): | +required (?:from|by))")
# At the end of CMakeLists.txt.
MORE = """
target_sources(headlane PRIVATE {0})
"""
# If faults are in the kernels, which take long to compile and are fast enough like this.
KERNELS = """
foreach(isa IN LISTS HEADLANE_BUILT_ISAS)
  target_compile_options(headlane_${isa} PRIVATE -O1)
endforeach()
"""
SWITCH = f'#include "{TOOLS / "switch.hpp"}"\n#line 1\n'.encode()


def write_if_changed(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


class Tree:
    def __init__(self, root, work, interpreter):
        self.project, self.work, self.interpreter = root, work, interpreter
        self.root = work / "original"  # as everything was when the run began: one may go on working meanwhile
        self.targets = []  # what is built; nothing: all
        self.kernels = self.python = (
            False  # whether faults are in the kernels, whether Python tests are wanted
        )
        self.source, self.package = work / "tree", work / "package"
        self.build = (
            self.source / "build/release"
        )  # as for the project itself, so that ccache knows what is the same

    def copy(self):
        """The sources as they are; what is the same is left alone, so that little is built again."""
        shutil.rmtree(self.root, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self.project, check=True, capture_output=True, text=True,
        )  # fmt: skip
        names = {name for name in listed.stdout.split("\0") if (self.project / name).is_file()}
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.project / name, self.root / name)
        for path in [path for path in self.source.rglob("*") if path.is_file()]:
            if self.build not in path.parents and str(path.relative_to(self.source)) not in names:
                path.unlink()
        for name in names:
            content = (self.root / name).read_bytes()
            if name == "CMakeLists.txt":
                content += (MORE.format(TOOLS / "switch.cpp") + (KERNELS if self.kernels else "")).encode()
            write_if_changed(self.source / name, content)

    def configure(self):
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "HEADLANE_ISAS": "avx2;scalar;portable" if self.kernels else "all",
            "HEADLANE_BUILD_TESTS": "ON",
            "HEADLANE_BUILD_MODELS": "ON",
            "HEADLANE_BUILD_BENCH": "OFF",
            "HEADLANE_BUILD_EXAMPLES": "OFF",
            "HEADLANE_BUILD_PYTHON": "ON" if self.python else "OFF",
            "HEADLANE_XSIMD_INCLUDE_DIR": self.project / "build/deps/xsimd/include",
            "Python_EXECUTABLE": self.interpreter,
        }
        if not (self.project / "build/deps/xsimd/include").exists():
            del options["HEADLANE_XSIMD_INCLUDE_DIR"]
        definitions = [f"-D{name}={value}" for name, value in options.items()]
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, "--log-level=NOTICE", *definitions],
            check=True,
        )

    def make(self, *targets):
        """(built, what the compiler said)."""
        command = [
            "ninja",
            "-C",
            str(self.build),
            "-k",
            "0",
            *(targets or self.targets or ["all", *(["headlane_same_bits"] if self.python else [])]),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    def plant(self, mutants):
        """Builds with all of them behind switches; returns those that compile or have to be compiled alone."""
        live = list(mutants)
        while True:
            codes = self.write(live)
            built, said = self.make()
            if built:
                return live
            chains = self.errors(said, {str(self.source / file): file for file in codes})
            dropped, raised = set(), set()
            for chain in chains:
                blames = [blamed(codes[file], line, column) for file, line, column in chain]
                own = {number for number, itself in blames if itself}
                dropped |= own
                raised |= set() if own else {number for number, _ in blames if number is not None}
            raised -= dropped | {mutant.number for mutant in live if mutant.alone}
            if not dropped | raised:  # nobody's fault: then that of all headers
                raised = {
                    mutant.number for mutant in live if mutant.file.endswith(".hpp") and not mutant.alone
                }
            if not dropped | raised:
                raise SystemExit(f"the build fails, and not for a planted fault:\n{said[-4000:]}")
            live = [mutant for mutant in live if mutant.number not in dropped]
            for mutant in live:
                mutant.level += mutant.number in raised
            print(
                f"   {len(chains)} errors: {len(dropped)} do not compile, {len(raised)} get another place",
                flush=True,
            )

    def errors(self, said, names):
        """Each error once: its place, and those that it was needed for, in the files with these names."""
        chains, needed = set(), []
        for line in said.splitlines():
            found = PLACE.match(line)
            if not found:
                needed = needed if line.startswith(" ") or "In instantiation" in line else []
                continue
            file, row, column, error = found.groups()
            file = os.path.normpath(self.build / file)
            needed += [(names[file], int(row), int(column))] if file in names else []
            if error:
                chains.add(tuple(needed))
                needed = []
        return chains - {()}

    def write(self, mutants):
        self.copy_files({mutant.file for mutant in mutants})
        codes = {}
        for file in sorted({mutant.file for mutant in mutants}):
            source = (self.root / file).read_bytes()
            codes[file] = planted(source, [mutant for mutant in mutants if mutant.file == file])
            write_if_changed(self.source / file, SWITCH + codes[file])
        return codes

    def copy_files(self, kept):
        """Every file as it is, but for those that get faults now."""
        for path in self.root.rglob("*.?pp"):
            name = str(path.relative_to(self.root))
            if name not in kept:
                write_if_changed(self.source / name, path.read_bytes())

    def make_package(self, folder=None, changed=None):
        """The Python package as it would be installed; `changed`: (its file, what is in it instead)."""
        folder = folder or self.package
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(
            self.root / "python/headlane",
            folder / "headlane",
            ignore=shutil.ignore_patterns("__pycache__", "*.so"),
        )
        for built in (self.build / "python").glob("_core*"):
            if built.suffix in (".so", ".pyi"):
                os.symlink(built, folder / "headlane" / built.name)
        if changed:
            (folder / "headlane" / changed[0]).write_bytes(changed[1])
        return folder
