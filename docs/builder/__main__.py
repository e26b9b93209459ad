"""Builds the documentation site in build/docs: pages, generated pages, examples, links."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from builder import examples, links

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "docs-src"
SITE = ROOT / "build" / "docs"


def say(text):
    print(f"== docs: {text}", file=sys.stderr, flush=True)


def generate(only):
    """Runs docs/generate/*.py, each with the folder of pages as its argument."""
    for script in sorted((ROOT / "docs" / "generate").glob("[!_]*.py")):
        if only and script.stem not in only:
            continue
        say(f"generate/{script.name}")
        environment = os.environ | {"PYTHONPATH": str(ROOT / "docs"), "OMP_WAIT_POLICY": "passive"}
        subprocess.run([sys.executable, script, PAGES], check=True, cwd=ROOT, env=environment)


def main():
    parser = argparse.ArgumentParser(prog="./dev docs", description=__doc__)
    parser.add_argument("--prefix", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--no-examples", action="store_true", help="do not compile and run the examples")
    parser.add_argument(
        "--only",
        nargs="*",
        metavar="SCRIPT",
        help="run these scripts of docs/generate only; for writing pages",
    )
    arguments = parser.parse_args()
    if arguments.only is None:
        shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "site", PAGES, dirs_exist_ok=True)
    for picture in (ROOT / "docs").glob("speed-*.svg"):  # README.md shows them too
        shutil.copy(picture, PAGES / "assets")
    generate(arguments.only)
    examples.fill_in(PAGES, ROOT, arguments.prefix, run=not arguments.no_examples, say=say)
    say("mkdocs")
    mkdocs = [sys.executable, "-m", "mkdocs", "-q", "build", "-f", ROOT / "docs" / "mkdocs.yml"]
    subprocess.run(mkdocs, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    broken = links.check(SITE)
    for message in broken:
        say(message)
    if broken:
        sys.exit(1)
    say(f"build/docs/index.html, {len(list(SITE.rglob('*.html')))} pages, every link checked")


if __name__ == "__main__":
    main()
