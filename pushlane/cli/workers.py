"""Several dispatching processes under one parent, which starts, watches and stops them.

A worker that was killed, hung or died of a fault once it did its work is started again. One that
ends in another way, or too often, takes the others down, gently: whoever supervises the parent
starts all anew. The parent itself never touches a lane.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pushlane.cli.errors import HUNG, INTERRUPTED, USAGE
from pushlane.cli.signals import tell_left, tell_stopping
from pushlane.core.errors import Unreachable, UserError

_FIRST_S = 1.0
_LONGEST_S = 60.0
_MOST_ENDS = 5
_WITHIN_S = 600.0


class Restarts:
    """The ends of one worker: each doubles the wait, ten minutes without one make it short again.

    The fifth within ten minutes is the last.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._ends_s: deque[float] = deque(maxlen=_MOST_ENDS)
        self._wait_s = 0.0

    def wait_s(self) -> float | None:
        """Note that the worker has ended now; return how long to wait, None to give up."""
        now_s = self._clock_s()
        well = not self._ends_s or now_s - self._ends_s[-1] > _WITHIN_S
        self._ends_s.append(now_s)
        if len(self._ends_s) == _MOST_ENDS and now_s - self._ends_s[0] <= _WITHIN_S:
            return None
        self._wait_s = _FIRST_S if well else min(_LONGEST_S, 2 * self._wait_s)
        return self._wait_s


log = logging.getLogger("pushlane.workers")

_FINAL = (USAGE, Unreachable.exit_code)


@dataclass(frozen=True)
class _WorkerProcess:
    """A process that was started, and the pipe on which it says once that it does its work."""

    index: int
    process: Process
    told: int

    def was_ready(self) -> bool:
        """Return whether it ever did its work; to be asked once, after its end."""
        try:
            with suppress(BlockingIOError):  # a process that it started holds the other end
                return bool(os.read(self.told, 1))
            return False
        finally:
            os.close(self.told)

    def end_text(self, code: int) -> str:
        """Say which worker this is, and how it ended."""
        return f"worker {self.index} (pid {self.process.pid}) {_ending(code)}"

    def send(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)


@dataclass
class WorkerPool:
    """The number of workers, and what each is started with.

    `settings` are those given by flags; None for one that was not. Worker i serves its health on
    the Unix socket i in the folder `sockets`, if there is one. `together` ends all as soon as one
    ends. `on_stop` is called at a stop, `on_end` with the number of each worker that has ended for
    good, and `on_restart` with that of one that is started again, and how it ended.
    """

    count: int
    settings: Mapping[str, Any]
    serve: str | None
    drain: bool
    retry_timeouts: bool
    together: bool = False
    sockets: Path | None = None
    on_stop: Callable[[], None] = field(default=lambda: None)
    on_end: Callable[[int], None] = field(default=lambda _: None)
    on_restart: Callable[[int, str], None] = field(default=lambda *_: None)

    def command(self, index: int, told: int) -> list[str]:
        """Return a worker's command, without settings, which a command line shows to everybody."""
        command = [sys.executable, "-P", "-m", "pushlane", "dispatch", "--with-parent"]
        command += ["--ready-fd", str(told)]
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
        self._workers: dict[int, _WorkerProcess] = {}
        self._stopped = asyncio.Event()
        self._interrupted = False

    async def run(self) -> int:
        """Run until all workers have ended; return the exit code of the whole."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for index in range(self.count):
            if self._stopped.is_set():
                break
            await self._start(index)
        codes = await asyncio.gather(*map(self._keep, self._workers))
        return next((code for code in codes if code), 0)

    async def _start(self, index: int) -> None:
        """Start a worker in a session of its own, so that a Ctrl-C reaches only the parent."""
        if self.sockets is not None:
            (self.sockets / str(index)).unlink(missing_ok=True)  # of one that was killed
        told, tells = os.pipe()
        os.set_blocking(told, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command(index, tells),
                env=self.environment(),
                stdin=PIPE,
                start_new_session=True,
                pass_fds=[tells],
            )
        except OSError:
            os.close(told)
            raise
        finally:
            os.close(tells)
        worker = self._workers[index] = _WorkerProcess(index, process, told)
        log.info("worker %d is pid %d", index, process.pid, extra={"action": "worker_started"})
        if self._stopped.is_set():
            worker.send(signal.SIGTERM)

    async def _keep(self, index: int) -> int:
        """Start a worker again for as long as that helps; return its exit code, 0 if it was due."""
        restarts = Restarts()
        while True:
            worker = self._workers[index]
            code = await worker.process.wait()
            wait_s, how = self._verdict(code, worker.was_ready(), restarts)
            if wait_s is None:
                self.on_end(index)
                return self._ended(worker, code, how)
            self.on_restart(index, _ending(code))
            restarts_text = f"it is started again in {wait_s:.0f} s"
            extra = {"action": "worker_restarts"}
            log.warning("%s; %s", worker.end_text(code), restarts_text, extra=extra)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopped.wait()
            if self._stopped.is_set():
                self.on_end(index)
                return 0
            try:
                await self._start(index)
            except OSError as error:  # no memory or no process is left
                self.on_end(index)
                told = "worker %d cannot be started again: %s; stopping the others"
                log.error(told, index, error.strerror, extra={"action": "worker_died"})
                self._stop()
                return 1

    def _verdict(self, code: int, was_ready: bool, restarts: Restarts) -> tuple[float | None, str]:
        """Return how long to wait before a new start, None for no more, and why there is none."""
        if self._is_due(code) or self._stopped.is_set() or self.together or code in _FINAL:
            return None, ""
        if not was_ready:
            return None, " before it was ready"
        if self.drain and code == UserError.exit_code:  # it has said why; a new one would, too
            return None, ""
        wait_s = restarts.wait_s()
        return wait_s, " for the fifth time within ten minutes" if wait_s is None else ""

    def _is_due(self, code: int) -> bool:
        if code == 0:
            return self._stopped.is_set() or self.drain
        return self._stopped.is_set() and code == -signal.SIGTERM  # told before it had begun

    def _ended(self, worker: _WorkerProcess, code: int, how: str) -> int:
        """Stop all unless the end of this one was due; return the exit code of its end."""
        if self._is_due(code):
            return 0
        if self._interrupted and code == -signal.SIGKILL:
            return INTERRUPTED
        is_stopping = self._stopped.is_set()
        rest = "" if is_stopping else "; stopping the others"
        extra = {"action": "worker_left" if is_stopping else "worker_died"}
        log.error("%s%s%s", worker.end_text(code), how, rest, extra=extra)
        self._stop()
        return max(code, 1)

    def _stop(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self.on_stop()
            self._send_all(signal.SIGTERM)

    def _interrupt(self) -> None:
        if self._interrupted:
            tell_left()
            self._send_all(signal.SIGKILL)
        else:
            tell_stopping()
        self._interrupted = True
        self._stop()

    def _send_all(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            worker.send(number)


def _ending(code: int) -> str:
    if code == HUNG:
        return f"hung (exit code {HUNG})"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
