"""Dispatchers as processes that start fast: `pushlane dispatch` in forks of a warm process.

What is run is the product's own command line; only its imports were done before. Each ends when the
benchmark does, however that ends, since its stdin is a pipe from here.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_WARM = [
    "pushlane.cli.main",
    "pushlane.dispatcher.sinks.webhook",
    "pushlane.backends.embedded",
    "pushlane.backends.pulsar",
    "pushlane.backends.redis",
]
_KILL_PATIENCE_S = 10.0
_BEGUN = ("started", "worker_started")


class Fork:
    """One dispatching process."""

    def __init__(self, process: ForkServerProcess, leash: Connection) -> None:
        self._process = process
        self._leash = leash

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return not self._process.is_alive()

    def send(self, number: signal.Signals) -> None:
        if not self.has_ended:
            os.kill(self.pid, number)

    async def ended(self, deadline_s: float) -> int:
        """Its exit code (negative: the signal that killed it).

        Raises:
            TimeoutError: it has not ended.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), deadline_s)
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        self._leash.close()
        assert self._process.exitcode is not None
        return self._process.exitcode

    async def kill(self) -> None:
        """kill -9, also of a stopped one."""
        self.send(signal.SIGKILL)
        await self.ended(_KILL_PATIENCE_S)


class Nursery:
    """Starts dispatchers with an environment; all write to one log, and run in its folder."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment = dict(environment)
        self._log = log
        self.folder = log.parent
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_WARM)

    def start(self, *arguments: str) -> Fork:
        ours, theirs = self._context.Pipe()
        command = ["dispatch", "--with-parent", "--log-format", "json", *arguments]
        process = self._context.Process(
            target=_dispatch, args=(theirs, command, self._environment, self._log)
        )
        process.start()
        theirs.close()
        return Fork(process, ours)

    def has_begun(self, fork: Fork) -> bool:
        """Whether it, or a worker of it, dispatches; before that, a signal just ends it."""
        said = (f'"pid": {fork.pid}, "action": "{action}"' for action in _BEGUN)
        log = self._log.read_bytes()
        return any(one.encode() in log for one in said)

    def times(self, action: str) -> int:
        """How often they have logged the action, workers included."""
        return self._log.read_bytes().count(f'"action": "{action}"'.encode())


def _dispatch(
    leash: Connection, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> None:
    from pushlane.cli.main import main

    os.dup2(leash.fileno(), 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as the process
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(log.parent)
    sys.argv = ["pushlane", *command]
    main()
