"""From the command line to the exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from .. import _runtime
from .._core import version
from ._job import Job
from ._options import COMMANDS, common, parse, parser_of
from ._progress import say
from ._ranks import LAUNCHED_RANK, Ranks, Stop, connect, reason


class Interrupted(BaseException):
    """A signal that ends the job; no `except Exception` holds it back."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def _interrupt(number: int, frame: Any) -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise Interrupted(number)


def _threads(given: int | None, ranks: Ranks) -> int | None:
    """Threads of a rank: None for the environment's setting."""
    cpus, shared = ranks.local_cpus()
    if given is not None:
        return given
    if any(os.environ.get(name) for name in ("HEADLANE_NUM_THREADS", "OMP_NUM_THREADS")):
        return None
    if not shared:
        return None  # each rank has processors of its own
    return max(1, min(len(cpus), _runtime.num_threads()) // ranks.local)


def _run(name: str, command: str, arguments: Sequence[str], ranks: Ranks) -> None:
    ranks.same("headlane", {"version": version(), "command": command})
    options = ranks.together(lambda: parse(command, arguments))
    ranks.same("options", common(options))
    job = Job(name, options, ranks)
    try:
        _steps(job, command, options, ranks)
    finally:
        job.close()


def _steps(job: Job, command: str, options: argparse.Namespace, ranks: Ranks) -> None:
    earlier = job.open()

    def load() -> tuple[Any, dict[str, Any]]:
        from . import _commands, _identity

        model = _commands.COMPUTE[command](options)
        return model, _identity.model_files(options.model, modules=command == "embed")

    model, files = ranks.together(load)
    ranks.same("the model", files)
    if ranks.rank == 0:
        for notice in model.notices:
            say(f"headlane-{command}", f"notice: {notice}")
    job.prepare(model, _threads(options.threads, ranks), earlier)
    identity = {"headlane": version(), "command": command, "model": files, "options": model.bits()}
    settings = job.settings({**identity, "max_line_bytes": options.max_line_bytes})
    if earlier:
        job.same(settings, earlier)
    if earlier and earlier.whole:
        job.clean_up(settings)
        return
    job.begin(settings, earlier)
    job.work()
    job.finish(settings)


def _resume(ranks: Ranks) -> str:
    return ". Finished pieces are kept: the same command with --resume goes on" if ranks.resumable else ""


def _end(name: str, ranks: Ranks, error: BaseException) -> int:
    """Says why this rank ends, and ends the others."""
    who = f"rank {ranks.rank} ({ranks.host}): " if ranks.size > 1 else ""
    status = getattr(error, "status", 1)
    text = f"stopped by {error}" if isinstance(error, Interrupted) else reason(error)
    try:
        if isinstance(error, Interrupted) and ranks.rank:
            time.sleep(2)  # for rank 0 to say it, if all got the signal, and for mpirun to end this rank
        elif not isinstance(error, Interrupted):
            ranks.fail()
        if not (isinstance(error, Interrupted) and ranks.failed()):
            say(name, f"{who}{text}{_resume(ranks)}")
    finally:  # nothing may keep the others waiting
        if ranks.size > 1:
            ranks.abort(status)
    return status


def _open_standard_files() -> None:
    """Those that are closed become the null device, so that no file of the job gets their numbers."""
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(file)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)


def run(command: str, arguments: Sequence[str]) -> int:
    """Runs a job; returns the exit status."""
    name = f"headlane-{command}"
    _open_standard_files()
    if any(one in ("-h", "--help") for one in arguments):
        if all(os.environ.get(name, "0") == "0" for name in LAUNCHED_RANK):
            parser_of(command).print_help()
        return 0
    mode = next((b for a, b in zip(arguments, arguments[1:]) if a == "--mpi"), "auto")
    for argument in arguments:
        if argument.startswith("--mpi="):
            mode = argument[6:]
    ranks = Ranks()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        ranks = connect(mode)
        _run(name, command, arguments, ranks)
        ranks.close()
        return 0
    except Stop as stop:  # on all ranks
        if ranks.rank == 0:
            say(name, f"{stop}{_resume(ranks)}")
        ranks.close()
        return stop.status
    except BaseException as error:
        return _end(name, ranks, error)


def main(arguments: Sequence[str] | None = None) -> int:
    """python -m headlane.jobs embed|translate …"""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in COMMANDS:
        print(
            "python -m headlane.jobs embed|translate …; see embed --help, translate --help", file=sys.stderr
        )
        return 0 if given and given[0] in ("-h", "--help") else 2
    return run(given[0], given[1:])


def embed() -> int:
    """headlane-embed."""
    return run("embed", sys.argv[1:])


def translate() -> int:
    """headlane-translate."""
    return run("translate", sys.argv[1:])
