"""A running stream of pushes that faults happen to: backlog, dispatchers, receiving end.

It starts again what a fault took, waits until pushes arrive again, and in the end lets everything
come out. What it says about deliveries comes from the receiving end's log alone.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.backends import environment
from bench.cluster import PulsarCluster
from bench.faults.feed import Feeder, Mode
from bench.faults.hanging import URL
from bench.faults.nursery import Fork, Nursery
from bench.faults.oracle import Oracle, receiving
from bench.faults.services import Services
from bench.faults.world import World
from pushlane.backends.backend import Backend, connect
from pushlane.backends.ports import listed
from pushlane.core.errors import Unreachable
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import ACTIVE_STATES

_NAMED = "hook"
_KEYS = "keys"
_LOOK_EVERY_S = 0.01
_STOP_DEADLINE_S = 60.0
_RESTART_AFTER_S = 0.5
_FINISH_LOOK_EVERY_S = 0.5
_CLAIMS_RUN_OUT_SOON = {"PUSHLANE_SINK_TIMEOUT_S": "2", "PUSHLANE_CLAIM_TIMEOUT_S": "1"}


@dataclass(frozen=True)
class Load:
    """What a stream is under. `backlog` is how many pushes wait at least, `pushes` a task's.

    Each push is tried `attempts` times. The backlog is there within `written_deadline_s`; after a
    fault the stream goes on within `recovery_deadline_s`, or is taken for stuck; in the end no task
    ends for `finish_deadline_s` only if none will. A sink that is down is so for `outage_s`. `sink`
    is what posts to the receiving end, a webhook unless given; with a `client` the webhook has a
    name, posts by that client, and signs with keys from a file. Shares of the answers are `slow`,
    and `failing` (500).
    """

    slots: int = 20
    answer_ms: float = 10.0
    pushes: int = 500
    backlog: int = 3_000
    processes: int = 1
    attempts: int = 100
    outage_s: float = 120.0
    sink: str = ""
    client: str = ""
    slow: float = 0.0
    failing: float = 0.0
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    written_deadline_s: float = 120.0
    recovery_deadline_s: float = 60.0
    finish_deadline_s: float = 60.0


class Stream:
    """`forks` are the dispatchers that run; a fault takes from them and gives back.

    `deaths` counts those that ended by themselves, or badly when they were told to stop. `broken`
    is what a fault saw broken of what is promised, in words. `struck_s` is when (Unix seconds)
    something was done to a process, or had its effect.
    """

    def __init__(
        self,
        backend: Backend,
        feeder: Feeder,
        oracle: Oracle,
        nursery: Nursery,
        load: Load,
        world: World,
    ) -> None:
        self._backend = backend
        self.nursery = nursery
        self.feeder = feeder
        self.oracle = oracle
        self.load = load
        self._world = world
        self.forks: list[Fork] = []
        self._fed_enough = False
        self._feeding: asyncio.Task[None]
        self.deaths = 0
        self.broken: list[str] = []
        self.struck_s: list[float] = []

    @property
    def backend(self) -> Backend:
        """Those who harm reach broker and registry by it, past the harm."""
        return self._backend

    @property
    def services(self) -> Services:
        assert self._world.services is not None
        return self._world.services

    @property
    def cluster(self) -> PulsarCluster:
        assert self._world.cluster is not None
        return self._world.cluster

    @property
    def namespace(self) -> str:
        return self._world.settings.namespace

    @property
    def data_dir(self) -> Path:
        return self._world.settings.data_dir

    def start_dispatcher(self) -> None:
        load = self.load
        given = ("--sink", load.sink or f"webhook:{self.oracle.url}")
        sink = ("--serve", _NAMED) if load.client else given
        self.forks.append(self.nursery.start(*sink, "--slots", str(load.slots), *load.flags))

    def strikes(self) -> None:
        """Note that something is done to a process, or has its effect."""
        self.struck_s.append(time.time())

    def change_keys(self) -> None:
        """Have a webhook with a name sign with another key from now on."""
        _write_keys(self.nursery.folder)

    async def kill(self, fork: Fork) -> None:
        """kill -9; it is no longer among the forks."""
        self.forks.remove(fork)
        self.strikes()
        await fork.kill()
        self.strikes()

    async def stop(self, fork: Fork) -> None:
        """SIGTERM once it dispatches, and wait for a good end."""
        await self._begun(fork)
        self.forks.remove(fork)
        self.strikes()
        fork.send(signal.SIGTERM)
        try:
            code = await fork.ended(_STOP_DEADLINE_S)
        except TimeoutError:
            await fork.kill()
            code = -signal.SIGKILL
        self.strikes()
        self.deaths += code != 0

    async def _begun(self, fork: Fork) -> None:
        deadline = time.monotonic() + _STOP_DEADLINE_S
        while time.monotonic() < deadline:
            if self.nursery.has_begun(fork) or fork.has_ended:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def until(self, holds: Callable[[], bool], broken: str) -> None:
        """Return when it holds; note what is broken if it does not while pushes could go on."""
        deadline = time.monotonic() + self.load.recovery_deadline_s
        while not holds():
            if time.monotonic() > deadline:
                self.broken.append(broken)
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def backlogged(self) -> None:
        """Return when as many pushes wait as there are to be."""
        deadline = time.monotonic() + self.load.written_deadline_s
        while self.feeder.written - len(self.oracle.tally.kept) < self.load.backlog:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {self.load.backlog:,} pushes wait after a while")
            await asyncio.sleep(_LOOK_EVERY_S)

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Pushes are written and arrive; `finished` ends the writing."""
        self._feeding = asyncio.create_task(self._feed())
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._feeding.cancel()
            watching.cancel()

    async def stop_all(self) -> None:
        """SIGTERM to every dispatcher; then the log is complete."""
        for fork in list(self.forks):
            await self.stop(fork)
        self.oracle.read()

    async def _watch(self) -> None:
        """Read the log, and start again what has ended by itself, as a supervisor does."""
        while True:
            self.oracle.read()
            for fork in [fork for fork in self.forks if fork.has_ended]:
                self.forks.remove(fork)
                self.deaths += 1
                await asyncio.sleep(_RESTART_AFTER_S)
                self.start_dispatcher()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _feed(self) -> None:
        """Keep the backlog until told to end; a task begun is written whole."""
        while not self._fed_enough:
            if self.feeder.written - len(self.oracle.tally.kept) < self.load.backlog:
                await self.feeder.write()
            else:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def went_on(self, since_s: float) -> float:
        """Seconds from `since_s` (Unix time) to the next new push; infinite when none came."""
        tally = self.oracle.tally
        tally.mark(since_s)
        deadline = time.monotonic() + self.load.recovery_deadline_s
        while time.monotonic() < deadline:
            if tally.first_since_mark_s is not None:
                return tally.first_since_mark_s - since_s
            await asyncio.sleep(_LOOK_EVERY_S)
        return float("inf")

    async def finished(self) -> int:
        """Write no more, and wait until every task has ended or nothing moves.

        Returns how many have not ended.
        """
        self._fed_enough = True
        await asyncio.wait_for(self._feeding, self.load.written_deadline_s)
        quiet_since, before = time.monotonic(), (-1, -1)
        while time.monotonic() - quiet_since < self.load.finish_deadline_s:
            active = await self._active()
            if active == 0:
                return 0
            now = (active, self.oracle.tally.arrivals)
            if now != before:
                quiet_since, before = time.monotonic(), now
            await asyncio.sleep(_FINISH_LOOK_EVERY_S)
        return before[0]

    async def _active(self) -> int:
        """Tasks that have not ended; -1 while nobody can tell."""
        try:
            return len(await listed(self._backend.registry, ACTIVE_STATES))
        except Unreachable:
            return -1

    async def buried(self, tasks: Collection[str]) -> int:
        """Pushes of these tasks that ended on the dead-letter lane."""
        progress = await self._backend.registry.progress(list(tasks))
        return sum(count.dead for count in progress)


def _write_keys(folder: Path) -> None:
    """Write a key that is new into the file of a webhook with a name, at once."""
    new = folder / f"{_KEYS}.new"
    new.write_text(f"whsec_{b64encode(secrets.token_bytes(32)).decode()}\n")
    new.chmod(0o600)
    new.rename(folder / _KEYS)


def _webhook(url: str, client: str, folder: Path) -> str:
    keys = str(folder.absolute() / _KEYS)
    options = {"kind": "webhook", "url": url, "client": client, "secrets_file": keys}
    return json.dumps({_NAMED: options})


@asynccontextmanager
async def streaming(world: World, mode: Mode, load: Load, folder: Path) -> AsyncIterator[Stream]:
    """A stream with its dispatchers running; all that it started is gone in the end."""
    arrivals, said = folder / "arrivals.jsonl", folder / "dispatchers.log"
    for log in (arrivals, said):  # of an earlier run
        log.unlink(missing_ok=True)
    async with (
        receiving(arrivals, load.answer_ms, load.slow, honour=mode.honour) as oracle,
        connect(world.own) as backend,
    ):
        named = {**environment(world.settings), **_CLAIMS_RUN_OUT_SOON, **load.environment}
        if load.client:
            _write_keys(folder)
            named["PUSHLANE_SINKS"] = _webhook(oracle.url, load.client, folder)
        nursery = Nursery({**named, URL: oracle.url}, said)
        sink = _NAMED if load.client else DEFAULT_SINK
        feeder = Feeder(backend, world.settings.pool_lanes, mode, load.pushes, load.attempts, sink)
        stream = Stream(backend, feeder, oracle, nursery, load, world)
        if load.failing:
            await oracle.behave("500", load.failing)
        try:
            for _ in range(load.processes):
                stream.start_dispatcher()
            yield stream
        finally:
            for fork in list(stream.forks):
                await stream.kill(fork)
