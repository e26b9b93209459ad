"""A process for each of many models, so that one that crashes, takes too long or too much memory
ends itself alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import signal
from collections.abc import Callable, Iterator
from typing import Any


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--seconds", type=int, default=90, help="of the CPU, for one model")
    parser.add_argument("--memory", type=int, default=8, help="GiB of address space for one model")


def reason(error: BaseException) -> str:
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:160]


def _child(call: Callable[[str], dict[str, Any]], name: str, pipe: int, limits: argparse.Namespace) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory << 30, limits.memory << 30))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        found = call(name)
    except BaseException as error:
        found = reason(error)
    with os.fdopen(pipe, "w") as out:
        json.dump(found, out)
    os._exit(0)


def _found(text: bytes, code: int, seconds: int) -> dict[str, Any] | str:
    """The output of a process that ended with this code."""
    if text:
        return json.loads(text)
    late = os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGXCPU, signal.SIGKILL)
    return f"takes more than {seconds} s" if late else f"the process ended with {code}"


def each(
    names: list[str], call: Callable[[str], dict[str, Any]], limits: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """(name, call(name)) in the order in which they end; in place of the latter, why there is none."""
    waiting, running = list(reversed(names)), {}
    while waiting or running:
        while waiting and len(running) < limits.jobs:
            name = waiting.pop()
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                _child(call, name, write, limits)
            os.close(write)
            running[read] = [name, pid, b""]
        for pipe in select.select(list(running), [], [])[0]:
            name, pid, _ = running[pipe]
            if data := os.read(pipe, 1 << 20):
                running[pipe][2] += data
                continue
            text = running.pop(pipe)[2]
            os.close(pipe)
            yield name, _found(text, os.waitpid(pid, 0)[1], limits.seconds)
