"""Several dispatching processes under one parent, which starts, watches and stops them.

A worker that dies takes the others down, gently: whoever supervises the parent starts all anew.
The parent itself never touches a lane, and restarts nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pushlane.cli.errors import INTERRUPTED
from pushlane.cli.signals import tell_left, tell_stopping

log = logging.getLogger("pushlane.workers")


@dataclass
class WorkerPool:
    """The number of workers, and what each is started with.

    `settings` are those given by flags; None for one that was not. Worker i serves its health on
    the Unix socket i in the folder `sockets`, if there is one. `on_stop` is called at a stop, and
    `on_end` with the number of each worker that has ended.
    """

    count: int
    settings: Mapping[str, Any]
    serve: str | None
    drain: bool
    retry_timeouts: bool
    sockets: Path | None = None
    on_stop: Callable[[], None] = field(default=lambda: None)
    on_end: Callable[[int], None] = field(default=lambda _: None)

    def command(self, index: int) -> list[str]:
        """Return a worker's command, without settings, which a command line shows to everybody."""
        command = [sys.executable, "-P", "-m", "pushlane", "dispatch", "--with-parent"]
        if self.sockets is not None:
            command += ["--metrics-socket", str(self.sockets / str(index))]
        if self.serve:
            command += ["--serve", self.serve]
        if self.drain:
            command.append("--drain")
        if self.retry_timeouts:
            command.append("--retry-timeouts")
        return command

    def environment(self) -> dict[str, str]:
        """Return the parent's environment, with its flags and the folder it was imported from."""
        flags = {f"PUSHLANE_{k.upper()}": str(v) for k, v in self.settings.items() if v is not None}
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, **flags, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def __post_init__(self) -> None:
        self._workers: list[Process] = []
        self._stopping = False
        self._interrupted = False

    async def run(self) -> int:
        """Run until all workers have ended; return the exit code of the whole."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for index in range(self.count):
            if self._stopping:
                break
            self._workers.append(await self._start(index))
        ends = [asyncio.create_task(self._watch(i)) for i in range(len(self._workers))]
        codes = await asyncio.gather(*ends)
        return next((code for code in codes if code), 0)

    async def _start(self, index: int) -> Process:
        """Start a worker in a session of its own, so that a Ctrl-C reaches only the parent."""
        worker = await asyncio.create_subprocess_exec(
            *self.command(index), env=self.environment(), stdin=PIPE, start_new_session=True
        )
        log.info("worker %d is pid %d", index, worker.pid, extra={"action": "worker_started"})
        if self._stopping:
            _send(worker, signal.SIGTERM)
        return worker

    async def _watch(self, index: int) -> int:
        """Wait for a worker's end; return its exit code, 0 when its end was due."""
        worker = self._workers[index]
        code = await worker.wait()
        self.on_end(index)
        if code == 0 and (self._stopping or self.drain):
            return 0
        if self._stopping and code == -signal.SIGTERM:  # told before it had begun
            return 0
        if self._interrupted and code == -signal.SIGKILL:
            return INTERRUPTED
        log.error(
            "worker %d (pid %d) %s%s",
            index,
            worker.pid,
            f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}",
            "" if self._stopping else "; stopping the others",
            extra={"action": "worker_left" if self._stopping else "worker_died"},
        )
        self._stop()
        return max(code, 1)

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.on_stop()
            for worker in self._workers:
                _send(worker, signal.SIGTERM)

    def _interrupt(self) -> None:
        if self._interrupted:
            tell_left()
            for worker in self._workers:
                _send(worker, signal.SIGKILL)
        else:
            tell_stopping()
        self._interrupted = True
        self._stop()


def _send(worker: Process, number: signal.Signals) -> None:
    if worker.returncode is None:
        worker.send_signal(number)
