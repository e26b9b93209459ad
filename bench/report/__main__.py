"""./dev report [FILES …]: makes the page and the pictures."""

import argparse
import sys
from pathlib import Path

from . import load, page


def arguments():
    parser = argparse.ArgumentParser(
        prog="./dev report", description="One HTML file, and PNGs, from the JSON files of ./dev peers."
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: build/peers/*.json")
    parser.add_argument(
        "--out", type=Path, default=Path("build/report"), help="the folder to write to (default: %(default)s)"
    )
    parser.add_argument("--no-png", action="store_true", help="write the page alone")
    return parser.parse_args()


def main():
    options = arguments()
    files = options.files or sorted(Path("build/peers").glob("*.json"))
    if not files:
        sys.exit("report: there are no files build/peers/*.json; ./dev peers writes them")
    try:
        report = load.load(files)
    except load.BadFile as error:
        sys.exit(f"report: {error}")
    if not (report.rows or report.loading or report.memory):
        sys.exit("report: these files hold no results")
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "headlane.html"
    target.write_text(page.html(report), encoding="utf-8")
    print(target)
    if not options.no_png:
        for path in page.pictures(report, options.out):
            print(path)


if __name__ == "__main__":
    main()
