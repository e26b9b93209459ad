"""Plants faults, runs the tests that can see each, and lists what no test saw: see ./dev mutate --help."""

import argparse
import concurrent.futures
import pathlib
import random
import re
import sys
import time

import generate
import runs
from progress import Progress
from tree import Tree

FOLDERS = ["src", "models/src", "python/src", "python/headlane"]
EQUIVALENT = pathlib.Path(__file__).with_name("equivalent.txt")


def arguments():
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__)
    parser.add_argument("files", nargs="*", help="source files or folders; without: " + ", ".join(FOLDERS))
    parser.add_argument("--sample", type=int, help="so many faults drawn at random; without: all of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", help="only the tests that match this regular expression are built and run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=95, help="the percentage that has to be found (95)")
    parser.add_argument("--survivors", type=pathlib.Path, help="where to write them as they are found")
    parser.add_argument(
        "--python", required=True, help=argparse.SUPPRESS
    )  # the interpreter of the Python tests
    return parser.parse_args()


def equivalents():
    """The faults that change no result: `FILE: LINE  =>  LINE`, or `=>  *` for every fault in the line."""
    lines = [
        line for line in EQUIVALENT.read_text().splitlines() if line.strip() and not line.startswith("#")
    ]
    return {line.strip() for line in lines}


def chosen(root, options):
    """The mutants to try, and how many of them are wanted: some will not compile."""
    places = [root / name for name in options.files or FOLDERS]
    files = [place for place in places if place.is_file()]
    files += [
        path
        for place in places
        if place.is_dir()
        for path in sorted(place.rglob("*"))
        if path.suffix in (".cpp", ".hpp", ".py")
    ]
    known = equivalents()
    mutants = [
        each for file in files for each in generate.mutants_of(root, str(file.resolve().relative_to(root)))
    ]
    mutants = [mutant for mutant in mutants if not known & {mutant.key(), mutant.any_key()}]
    wanted = options.sample or len(mutants)
    if options.sample:
        random.Random(options.seed).shuffle(mutants)
    drawn = []
    for mutant in mutants:
        if len(drawn) >= 1.6 * wanted:
            break
        if generate.is_sound(root, mutant):
            mutant.number = len(drawn)
            drawn.append(mutant)
    return drawn, wanted


def tests_of(tree, wanted):
    """Those that match; what they need is what will be built."""
    tests = runs.cpp_tests(tree.build)
    if tree.python:
        tests += runs.python_tests(tree.root, tree.build, tree.package, tree.interpreter)
    if wanted:
        tests = [test for test in tests if re.search(wanted, test.name)]
        programs = {
            pathlib.Path(test.command[0]).name for test in tests if not test.name.startswith("python.")
        }
        tree.targets = sorted(programs) + (
            ["_core"] if any(test.name.startswith("python.") for test in tests) else []
        )
    return tests


def meetings(tree, mutants, jobs, wanted):
    """For each mutant the tests that evaluate it."""
    tests = tests_of(tree, wanted)
    count = max((mutant.number for mutant in mutants), default=0) + 1
    if tree.python:
        tree.make_package()
    print(f"== {len(tests)} tests without a fault", flush=True)
    met, progress = {}, Progress(len(tests))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = pool.map(
            lambda item: (item[1], runs.meet(item[1], count, tree.work / f"met.{item[0]}")), enumerate(tests)
        )
        for test, numbers in found:
            progress.case(test.name)
            if numbers is None:
                print(f"   fails without a fault, left out: {test.name}", flush=True)
                continue
            for number in numbers:
                met.setdefault(number, []).append(test)
    return met


class Trial:
    """The verdict on each mutant."""

    def __init__(self, tree, mutants, met, options):
        self.tree, self.met, self.options = tree, met, options
        self.mutants, self.killed, self.survived, self.invalid = mutants, [], [], []
        self.progress = Progress(len(mutants))
        self.by_file = {}
        for mutant in mutants:
            self.by_file.setdefault(mutant.file, {}).update(
                {test.name: test for test in met.get(mutant.number, [])}
            )

    def note(self, mutant, by):
        (self.killed if by else self.survived).append(mutant)
        if by:
            return
        tests = len(self.met.get(mutant.number, []))
        line = f"{mutant.describe()}   [{tests} tests meet it]"
        self.progress.clear()
        print(f"survived: {line}", flush=True)
        if self.options.survivors:
            with self.options.survivors.open("a") as out:
                out.write(line + "\n")

    def tests_of(self, mutant):
        """The C++ tests that meet it; for the bindings, and what no C++ test meets, the Python tests."""
        tests = self.met.get(mutant.number, [])
        native = [test for test in tests if not test.name.startswith("python.")]
        vector = [test for test in native if not test.name.endswith(".scalar")]
        return vector or native or tests

    def switched(self, mutant):
        return runs.killer(self.tests_of(mutant), mutant.number)

    def in_python(self, mutant):
        name = mutant.file.removeprefix("python/headlane/")
        source = (self.tree.root / mutant.file).read_bytes()
        package = self.tree.make_package(
            self.tree.work / f"package.{mutant.number}", (name, mutant.changed(source))
        )
        return runs.killer(
            runs.python_tests(self.tree.root, self.tree.build, package, self.tree.interpreter, name), -1
        )

    def alone(self, mutant):
        """Compiled by itself; None: does not compile."""
        tests = self.tests_of(mutant) or list(self.by_file[mutant.file].values())
        source = (self.tree.root / mutant.file).read_bytes()
        self.tree.copy_files(set())
        (self.tree.source / mutant.file).write_bytes(mutant.changed(source))
        native = sorted({pathlib.Path(test.command[0]).name for test in tests if test.name[:7] != "python."})
        built, said = self.tree.make(*native, *([] if native else ["_core"]))
        if not built:
            return None
        if native:
            tests = [test for test in tests if test.name[:7] != "python."]
        return runs.killer(tests, -1) or False

    def run(self):
        switched = [mutant for mutant in self.mutants if not mutant.alone]
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            way = lambda mutant: self.in_python(mutant) if mutant.python else self.switched(mutant)  # noqa: E731
            for mutant, by in zip(switched, pool.map(way, switched)):
                self.progress.case(mutant.describe())
                self.note(mutant, by)
        for mutant in [mutant for mutant in self.mutants if mutant.alone]:
            self.progress.case(mutant.describe())
            by = self.alone(mutant)
            if by is None:
                self.invalid.append(mutant)
            else:
                self.note(mutant, by)


def main():
    options = arguments()
    root = pathlib.Path.cwd()
    options.python = str((root / options.python).absolute())
    begin = time.monotonic()
    mutants, wanted = chosen(root, options)
    print(
        f"== {len(mutants)} faults, seed {options.seed}, from {len({mutant.file for mutant in mutants})} files",
        flush=True,
    )
    tree = Tree(root, root / "build/mutate", options.python)
    tree.kernels = any(mutant.file.startswith("src/kernels/") for mutant in mutants)
    tree.python = not options.tests or bool(re.search(options.tests, "python.test_"))
    tree.copy()
    tree.configure()
    tests_of(tree, options.tests)
    live = {mutant.number for mutant in tree.plant([mutant for mutant in mutants if not mutant.python])}
    live |= {mutant.number for mutant in mutants if mutant.python}
    mutants = [mutant for mutant in mutants if mutant.number in live][:wanted]
    alone = sum(mutant.alone for mutant in mutants)
    print(
        f"== {time.monotonic() - begin:.0f} s: {len(mutants)} faults compiled, {alone} of them to be compiled alone",
        flush=True,
    )
    met = meetings(tree, mutants, options.jobs, options.tests)
    print(f"== {time.monotonic() - begin:.0f} s: tests have run without a fault", flush=True)
    trial = Trial(tree, mutants, met, options)
    trial.run()
    trial.progress.clear()
    total = len(trial.killed) + len(trial.survived)
    share = 100 * len(trial.killed) / max(total, 1)
    print(
        f"== {time.monotonic() - begin:.0f} s, seed {options.seed}: {len(trial.killed)} of {total} found, {share:.1f} %"
    )
    return 0 if share >= options.least else 1


sys.exit(main())
