"""A system to be measured: its two programs, and how it gets new weights."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO

from pushlane.core.errors import Unreachable

_PATIENCE_S = 8.0
_SAID_CHARACTERS = 600


class Reweigh(Enum):
    """What new weights are given to."""

    NOTHING = "it has none"
    FEEDER = "the feeder"
    WORKER = "the worker"
    RELOAD = "a file, then SIGHUP to the worker"


@dataclass(frozen=True)
class Peer:
    """`change` says in words what new weights need. Both programs get `environment`."""

    version: str
    feed: Sequence[str | Path]
    work: Sequence[str | Path]
    environment: Mapping[str, str]
    reweigh: Reweigh
    change: str
    cwd: Path | None = None
    weights_file: Path | None = field(default=None)


class Program:
    """One of a peer's programs, in a session of its own with all that it starts."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self._process = process
        self._said = said

    def tell(self, line: str) -> None:
        stdin = self._stream(self._process.stdin)
        try:
            stdin.write(f"{line}\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise self.died() from error

    def carry_out(self, line: str) -> None:
        """Tell it, and wait until it has done that.

        Raises:
            Unreachable: it ended instead; shows the last of what it said.
        """
        self.tell(line)
        if self._stream(self._process.stdout).readline().strip() != "ok":
            raise self.died()

    def hang_up(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def died(self) -> Unreachable:
        said = self._said.read_text(errors="replace").strip()[-_SAID_CHARACTERS:]
        return Unreachable(f"{Path(str(self._process.args[0])).name} ended: {said}")  # type: ignore[index]

    def stop(self) -> None:
        """TERM and the end of its stdin, then KILL for all of its session."""
        self._process.terminate()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        deadline = time.monotonic() + _PATIENCE_S
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait()

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@contextmanager
def running(
    argv: Sequence[str | Path], peer: Peer, said: Path, *, answers: bool
) -> Iterator[Program]:
    """Start a program of the peer's; what it says goes to a file, unless it `answers` on stdout."""
    with said.open("ab") as log:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env={**os.environ, **peer.environment},
            cwd=peer.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else log,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    program = Program(process, said)
    try:
        yield program
    finally:
        program.stop()
