"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

from .._types import ActivationDType, DType
from ._ranks import Stop

# What changes neither the results nor the course of a job: each rank may have its own.
OF_EACH_RANK = {"threads", "batch_size", "mpi", "progress"}

EPILOG = """\
Bad lines are those that are not UTF-8, have a NUL, are longer than --max-line-bytes, or that the model
refuses. All lines are checked before anything is computed. What is unfinished is in the folder OUT.job;
OUT.job.json says what a complete OUT was computed from.
"""


class Parser(argparse.ArgumentParser):
    """Errors are exceptions, so that one rank can report them for all."""

    def error(self, message: str) -> NoReturn:
        raise Stop(f"{message}; see --help", status=2)


def whole(text: str) -> int:
    """An integer of at least 1, of 64 bits."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}, the minimum is 1")
    if value >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{value}, the maximum is {(1 << 63) - 1}")
    return value


def early(text: str) -> bool | str:
    named: dict[str, bool | str] = {"true": True, "false": False, "never": "never"}
    if text.lower() not in named:
        raise ValueError(text)
    return named[text.lower()]


early.__name__ = "true, false or never"  # as argparse names it in messages


def _files(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder, as of Hugging Face")
    parser.add_argument("--in", dest="input", metavar="FILE", required=True, help="text, a line each; UTF-8")
    parser.add_argument("--out", metavar="OUT", required=True, help=what)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--resume",
        action="store_true",
        help="go on with what is in OUT.job, if there is such a folder; leave OUT as it is if it is of this job",
    )
    how.add_argument(
        "--overwrite", action="store_true", help="replace OUT, and begin anew in spite of OUT.job"
    )


def _lines(parser: argparse.ArgumentParser, replaced: str) -> None:
    group = parser.add_argument_group("lines")
    group.add_argument(
        "--bad-lines", choices=("fail", "skip"), default="fail",
        help=f"stop and list them (default), or go on with {replaced} in place of each",
    )  # fmt: skip
    group.add_argument(
        "--bad-lines-file", metavar="FILE", help="list all bad lines there: number from 1, tab, reason"
    )
    group.add_argument(
        "--max-line-bytes",
        type=whole,
        default=65536,
        metavar="N",
        help="limit of a line (default: %(default)s)",
    )
    group.add_argument(
        "--piece-lines", type=whole, metavar="N",
        help="lines that a rank computes at a time, and that are lost if it ends (default: by the number of lines)",
    )  # fmt: skip


def _common(parser: argparse.ArgumentParser, batch: int) -> None:
    group = parser.add_argument_group("computing")
    group.add_argument(
        "--weights",
        choices=get_args(DType),
        default="float32",
        help="how weights are stored (default: %(default)s)",
    )
    group.add_argument(
        "--activations", choices=get_args(ActivationDType), default="float32",
        help="the type of activations in products (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--threads", type=whole, metavar="N",
        help="threads of a rank (default: HEADLANE_NUM_THREADS or OMP_NUM_THREADS, else the machine's processors "
        "divided by its ranks)",
    )  # fmt: skip
    group.add_argument(
        "--batch-size", type=whole, default=batch, metavar="N",
        help="lines computed at a time; changes no bit (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--mpi", choices=("auto", "on", "off"), default="auto",
        help="use MPI if mpirun or srun started the program (default), always, or never",
    )  # fmt: skip
    group.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=None,
        help="a line a second at most on standard error (default: if that is a terminal)",
    )  # fmt: skip


def _embed(parser: argparse.ArgumentParser) -> None:
    _files(parser, "float32 [lines, dimensions], as numpy.save writes it")
    group = parser.add_argument_group("embeddings (default: the model's settings)")
    group.add_argument("--pooling", metavar="NAME", help="mean, cls, lasttoken, max, …: as in Bert.embed()")
    group.add_argument(
        "--normalize", action=argparse.BooleanOptionalAction, default=None, help="to length 1, or not"
    )
    group.add_argument("--prompt", metavar="TEXT", help="put before each line; '' for none")
    group.add_argument("--prompt-name", metavar="NAME", help="one of the model's prompts")
    _lines(parser, "a row of zeros")
    _common(parser, 1024)


# The options of T5.generate(), by their types.
GENERATE = {
    "num_beams": whole, "max_new_tokens": whole, "max_length": whole, "min_length": int,
    "length_penalty": float, "early_stopping": early, "no_repeat_ngram_size": int,
}  # fmt: skip


def _translate(parser: argparse.ArgumentParser) -> None:
    _files(parser, "the translations, a line each")
    group = parser.add_argument_group("translations (default: the model's settings)")
    group.add_argument("--task", metavar="NAME", help="one of the model's tasks, as translation_en_to_fr")
    group.add_argument("--prefix", metavar="TEXT", help="put before each line, in place of the task's")
    for name, kind in GENERATE.items():
        letter = "true|false|never" if kind is early else "X" if kind is float else "N"
        group.add_argument(
            f"--{name.replace('_', '-')}", type=kind, metavar=letter, help="as in transformers' generate()"
        )
    _lines(parser, "an empty line")
    _common(parser, 32)


COMMANDS: dict[str, Any] = {
    "embed": (_embed, "Sentence embeddings of the lines of a file."),
    "translate": (_translate, "Translations of the lines of a file. A newline in one becomes a space."),
}


def parser_of(command: str) -> Parser:
    fill, text = COMMANDS[command]
    parser = Parser(
        prog=f"headlane-{command}",
        description=f"{text} By itself on one machine, or on many: mpirun -n 64 headlane-{command} … "
        "The result is bit-identical.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    fill(parser)
    return parser


def common(options: argparse.Namespace) -> dict[str, Any]:
    """Those that all ranks must have alike."""
    return {name: value for name, value in vars(options).items() if name not in OF_EACH_RANK}


def parse(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    """The options; Stop with status 2 if they are wrong."""
    options = parser_of(command).parse_args(arguments)
    if command == "embed":
        if options.prompt is not None and options.prompt_name is not None:
            raise Stop("both --prompt and --prompt-name are given; see --help", status=2)
    elif options.max_new_tokens is not None and options.max_length is not None:
        raise Stop("both --max-new-tokens and --max-length are given; see --help", status=2)
    if options.progress is None:
        options.progress = sys.stderr.isatty()
    return options
