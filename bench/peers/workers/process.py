"""Worker processes. Only the one that is asked runs, all others are stopped: no threads spin beside it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
from time import monotonic

from ..contenders.contender import Contender


class Failure(Exception):
    """The worker said why it cannot, or it died."""


class Worker:
    def __init__(self, contender: Contender, threads: int, timeout: float | None = None) -> None:
        self.contender, self.threads, self.timeout = contender, threads, timeout or contender.patience
        self.start()

    def start(self) -> None:
        """Also again, after it died."""
        command, environment = self.contender.start(self.threads)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (end() closes it)
        self.unread = b""
        try:
            # A session of its own: Ctrl-C reaches the parent alone, which then ends the workers.
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise Failure(str(error)) from error
        try:
            self.about = dict(part.strip().split("=", 1) for part in self.ask("about").split("\t"))
        except BaseException:
            self.end()
            raise

    def ask(self, command: str, **arguments: object) -> str:
        """Lets the worker run until it has answered. Whatever else a library prints is passed over."""
        line = " ".join([command, *(f"{key}={value}" for key, value in arguments.items())])
        try:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.write(line.encode() + b"\n")
            while True:
                status, _, text = self._line().partition(" ")
                if status == "ok":
                    return text
                if status == "error":
                    raise Failure(text)
        except BrokenPipeError:
            raise Failure(self._last_words()) from None
        finally:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGSTOP)

    def _line(self) -> str:
        deadline = monotonic() + self.timeout
        while b"\n" not in self.unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - monotonic()))
            if not ready:
                self.end()
                raise Failure(f"no answer in {self.timeout:.0f} s")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise Failure(self._last_words())
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode(errors="replace")

    def _last_words(self) -> str:
        code = self.process.wait()
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        ended = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"{ended}: {lines[-1].strip()}" if lines else ended

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """A stopped process obeys SIGKILL too. Done twice it does nothing."""
        if self.alive:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            stream.close()
