"""What the one thread does that talks to SQLite: jobs in transactions, on one connection.

Jobs that wait together share one transaction, so many small writes cost one commit. If one of them
fails, all are undone and each runs again by itself. Nothing here knows of lanes or tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pushlane.backends.embedded.schema import prepare, use_log
from pushlane.core.errors import Unreachable
from pushlane.lanes.embedded.vendor_errors import code_of, translate, translated
from pushlane.settings import STORE_FILE

_RETRY_S = 0.001  # SQLite's own busy handler waits up to 100 ms: a busy publisher would starve us
_GROUP_S = 0.02  # a transaction takes no further job after this, so that other processes get in

A = TypeVar("A")
R = TypeVar("R")
Job = Callable[[sqlite3.Connection], Any]


class Need(IntEnum):
    """The durability that a job needs of its transaction."""

    READ = 0
    WRITE = 1  # survives a crash of the process; a power cut may undo the last ones, in order
    DURABLE = 2  # survives a power cut


_SYNCHRONOUS = {Need.WRITE: "NORMAL", Need.DURABLE: "FULL"}


class Ticket(msgspec.Struct):
    """A job, the future of who waits for it, and its result or error once it has run."""

    job: Job
    need: Need
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


def blame(tickets: list[Ticket], error: BaseException) -> None:
    """Give all these tickets the same error."""
    for ticket in tickets:
        ticket.error = error


class Pulse:
    """A job that the thread repeats every so many seconds.

    `tell` is called on the event loop with each result, but not when the store was unreachable.
    """

    def __init__(
        self,
        job: Job,
        every_s: float,
        tell: Callable[[Any], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._job = job
        self._every_s = every_s
        self._tell = tell
        self._loop = loop
        self._due_s = 0.0

    def wait_s(self) -> float:
        """Return how long until the job is due; 0 when it is."""
        return max(0.0, self._due_s - time.monotonic())

    def ticket(self) -> Ticket:
        """Return a ticket to run the job now, and set when it is due next."""
        self._due_s = time.monotonic() + self._every_s
        future = self._loop.create_future()
        future.add_done_callback(self._heard)
        return Ticket(self._job, Need.WRITE, future)

    def _heard(self, answer: asyncio.Future[Any]) -> None:
        with contextlib.suppress(Unreachable):
            self._tell(answer.result())


class Session:
    """One connection, and the transactions on it. Made, used and closed on the one thread."""

    def __init__(self, folder: Path, busy_timeout_s: float) -> None:
        self._folder = folder
        self._busy_timeout_s = busy_timeout_s
        self._synchronous = Need.READ
        with translated(folder):
            self._connection = sqlite3.connect(
                folder / STORE_FILE, timeout=busy_timeout_s, isolation_level=None
            )
            try:
                self._patiently(use_log, self._connection)
                prepare(self._connection, folder)
                self._connection.execute("PRAGMA busy_timeout = 0")
            except (sqlite3.Error, Unreachable):
                self._connection.close()
                raise

    def close(self) -> None:
        self._connection.close()

    def serve(self, tickets: list[Ticket]) -> int:
        """Run the first of these jobs, and as many more as fit into one transaction: so many."""
        need = max(ticket.need for ticket in tickets)
        if need is Need.READ:
            for ticket in tickets:
                self._look(ticket)
            return len(tickets)
        try:
            self._patiently(self._begin, need)
        except sqlite3.Error as error:
            blame(tickets, self._translated(error))
            return len(tickets)
        return self._transact(tickets)

    def _look(self, ticket: Ticket) -> None:
        try:
            ticket.result = self._patiently(ticket.job, self._connection)
        except Exception as error:  # noqa: BLE001 - it goes to whoever gave the job
            ticket.error = self._translated(error)

    def _transact(self, tickets: list[Ticket]) -> int:
        count = 0
        started = time.monotonic()
        try:
            for ticket in tickets:
                ticket.result = ticket.job(self._connection)
                count += 1
                if time.monotonic() - started > _GROUP_S:
                    break
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - it goes to whoever gave the job
            self._undo()
            attempted = tickets[: count + 1]
            if len(attempted) == 1:
                attempted[0].error = self._translated(error)
                return 1
            return sum(self.serve([ticket]) for ticket in attempted)
        return count

    def _begin(self, need: Need) -> None:
        if need is not self._synchronous:
            self._connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[need]}")
            self._synchronous = need
        self._connection.execute("BEGIN IMMEDIATE")

    def _patiently(self, action: Callable[[A], R], argument: A) -> R:
        """Try again while another process is in the way, up to the busy time-out."""
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                return action(argument)
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _translated(self, error: Exception) -> Exception:
        return translate(error, self._folder) if isinstance(error, sqlite3.Error) else error
