"""Records addresses that a sink's provider calls dead, so that no running task sends to them again.

It stands beside the settling of pushes, and holds none up: what it heard waits in memory, bounded,
until the store has it. What is lost with a process, or heard while too much waits, is found out
again by the next push to that address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice

from pushlane.backends.backend import Backend
from pushlane.core.lane import Job
from pushlane.core.push import Kind, Outcome, Scope
from pushlane.core.retrying import Backoff, whenever
from pushlane.core.slots import Batch
from pushlane.dispatcher.reasons import as_label
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.dead_address import REASON_LONGEST, AddressDeath
from pushlane.lanes.recipient_hash import Hasher, kept_hasher
from pushlane.settings import Settings

log = logging.getLogger("pushlane.dead_addresses")

_MOST_WAITING = 10_000
_AT_ONCE = 100  # to encrypt so many takes 5 ms
_LONGEST_SEALED = 4_096


class DeadAddressRecorder:
    """Hears of dead addresses of one sink.

    `hosts_code` says that the sink's reasons are somebody's own words, which no metric shows.

    Raises:
        BadInput: the setting `address_key` is no key.
    """

    def __init__(
        self,
        backend: Backend,
        sink: str,
        settings: Settings,
        stats: Stats,
        clock_ms: Callable[[], int],
        *,
        hosts_code: bool,
    ) -> None:
        self._backend = backend
        self._sink = sink
        self._seal = _sealing(settings)
        self._stats = stats
        self._clock_ms = clock_ms
        self._hosts_code = hosts_code
        self._hasher: Hasher | None = None
        self._listeners: list[Callable[[], None]] = []
        self._waiting: dict[str, AddressDeath] = {}  # by address, without its hash yet
        self._due = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_full = False

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Tell the listener whenever addresses of the sink have been suppressed."""
        self._listeners.append(listener)

    def launched(self, batch: Batch) -> None:
        """Hear of pushes that go: nothing is known of their addresses yet."""

    def landed(self, batch: Batch, now_s: float) -> None:
        """Note what the sink said of addresses."""
        if not batch.is_well and batch.outcomes:
            self.hear(batch.sent, batch.outcomes)

    def hear(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
        """Note those of these pushes whose address the sink has called dead."""
        for job, outcome in zip(jobs, outcomes, strict=True):
            is_gone = outcome.kind is Kind.DEAD and outcome.scope is Scope.RECIPIENT
            if is_gone and job.push.address(self._sink):
                self._note(job, outcome)

    async def run(self) -> None:
        """Record what was heard, until cancelled."""
        await whenever(self._due, self._record_all, Backoff(log, "the store of dead addresses"))

    async def drain(self, timeout_s: float) -> None:
        """Wait until nothing waits to be recorded, as far as time allows."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            log.warning(
                "%d dead addresses are not recorded: they will be found out again",
                len(self._waiting),
                extra={"action": "dead_addresses_left"},
            )

    def _note(self, job: Job, outcome: Outcome) -> None:
        address = job.push.address(self._sink)
        if address not in self._waiting and len(self._waiting) >= _MOST_WAITING:
            self._tell_full()
            return
        told_ms = outcome.gone_at_ms if outcome.gone_at_ms > 0 else job.dispatched_at_ms
        died_at_ms = min(told_ms, self._clock_ms())
        before = self._waiting.get(address)
        if before is None or before.died_at_ms < died_at_ms:
            reason = outcome.reason[:REASON_LONGEST]
            self._waiting[address] = AddressDeath(0, died_at_ms, reason, job.task.app)
        self._empty.clear()
        self._due.set()

    def _tell_full(self) -> None:
        if not self._is_full:
            log.warning(
                "%d dead addresses wait to be recorded; more are left to be found out again",
                _MOST_WAITING,
                extra={"action": "dead_addresses_full"},
            )
        self._is_full = True

    async def _record_all(self) -> None:
        while some := list(islice(self._waiting.items(), _AT_ONCE)):
            await self._record(some)
            for address, death in some:
                if self._waiting[address] is death:  # nothing newer was heard meanwhile
                    del self._waiting[address]
        self._is_full = False
        self._empty.set()

    async def _record(self, heard: list[tuple[str, AddressDeath]]) -> None:
        if self._hasher is None:
            self._hasher = await kept_hasher(self._backend.documents)
        hashes = self._hasher.hashes([address for address, _ in heard])
        deaths = {
            one: death._replace(hash=one, sealed=self._sealed(address))
            for one, (address, death) in zip(hashes, heard, strict=True)
        }
        port = self._backend.dead_addresses
        recorded = await port.record(self._sink, list(deaths.values()), self._clock_ms())
        for one in recorded:
            reason = deaths[one].reason
            self._stats.dead_addresses.add(as_label(reason, is_own_words=self._hosts_code))
        for listener in self._listeners:
            listener()

    def _sealed(self, address: str) -> str:
        """Return what is kept of an address: nothing of one that is too long for any token."""
        return self._seal(address) if len(address) <= _LONGEST_SEALED else ""


def _sealing(settings: Settings) -> Callable[[str], str]:
    """Return what encrypts an address; without a key nothing is kept of it."""
    if settings.address_key is None:
        return lambda address: ""
    from pushlane.model.address_seal import AddressSeal  # slow to import, and rarely needed

    return AddressSeal(settings.address_key).sealed
