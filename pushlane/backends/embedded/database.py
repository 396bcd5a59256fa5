"""The embedded store as the ports see it: jobs go to a thread of its own, answers come back.

A job is a function of a connection. sqlite3 lets go of the interpreter lock at every row it steps
to, and a busy event loop may then hold it for 5 ms: so jobs work on sets (JSON or one blob in, one
row out), never row by row. Nothing here blocks the event loop, and no sqlite3 error gets out.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pushlane.core.errors import Unreachable
from pushlane.lanes.embedded.file_modes import keep_private
from pushlane.lanes.embedded.side_tasks import SideTasks
from pushlane.lanes.embedded.vendor_errors import translated
from pushlane.lanes.embedded.worker import Need, Pulse, Session, Ticket, blame
from pushlane.settings import STORE_FILE

POLL_S = 0.02
_GROUP = 256

T = TypeVar("T")


class Database:
    """The store in one folder, for jobs that read or write."""

    def __init__(self, folder: Path, *, busy_timeout_s: float = 15.0) -> None:
        self.folder = folder
        self._busy_timeout_s = busy_timeout_s
        self._queue: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="pushlane-sqlite", daemon=True)
        self._stopping = False
        self._pulse: Pulse | None = None
        self._background = SideTasks()
        self._listeners: list[Callable[[], None]] = []
        self._seen = 0
        self._open = False

    async def open(self) -> None:
        """Make the folder and the tables when they are not there; close them to other users.

        Raises:
            Unreachable: the folder or the file cannot be used.
        """
        with translated(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            keep_private(self.folder / STORE_FILE)
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._open = True
        try:
            await self.read(_data_version)
        except BaseException:
            await self.close()
            raise

    async def read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job that changes nothing."""
        return await self._run(job, Need.READ)

    async def write(self, job: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """Run a job in a transaction. It may run twice, the first time undone."""
        return await self._run(job, Need.DURABLE if durable else Need.WRITE)

    async def ping(self) -> None:
        """Return once the store has been read. Raises Unreachable when it cannot be."""
        await self._run(_data_version, Need.READ)

    def repeat(
        self, job: Callable[[sqlite3.Connection], T], every_s: float, tell: Callable[[T], None]
    ) -> None:
        """Run one job in a transaction now and every so many seconds, by the store's own thread.

        A busy event loop does not delay it; `tell` is called there with the result of each run.
        """
        self._pulse = Pulse(job, every_s, tell, self._loop)
        self._queue.put(self._pulse.ticket())

    def repeat_no_more(self) -> None:
        """End the repeated job: it does not run after any job that is submitted from now on."""
        self._pulse = None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` soon after a commit of another connection, in this process too."""
        self._listeners.append(listener)
        if len(self._listeners) == 1:
            self._background.repeat(self._watch, "the embedded store's watch")

    async def close(self) -> None:
        """Finish the jobs that were begun, then close the file."""
        if self._open:
            self._open = False
            await self._background.close()
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    async def _run(self, job: Callable[[sqlite3.Connection], T], need: Need) -> T:
        if not self._open:
            raise Unreachable(f"the store in {self.folder} is closed; connect again")
        self._background.check()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put(Ticket(job, need, future))
        answer: T = await future
        return answer

    async def _watch(self) -> None:
        version = await self._run(_data_version, Need.READ)
        if version != self._seen:
            self._seen = version
            for listener in self._listeners:
                listener()
        await asyncio.sleep(POLL_S)

    def _work(self) -> None:
        """Answer tickets until the database closes; this and what it calls is run by the thread."""
        session: Session | None = None
        while not self._stopping:
            for tickets in (self._next(), self._due()):
                session = self._serve(tickets, session)
        if session:
            session.close()

    def _serve(self, tickets: list[Ticket], session: Session | None) -> Session | None:
        """Answer the tickets; return the session, or None when the store is unreachable."""
        if not tickets:
            return session
        try:
            session = session or Session(self.folder, self._busy_timeout_s)
        except Unreachable as error:
            blame(tickets, error)
            self._deliver(tickets)
            return None
        while tickets:
            count = session.serve(tickets)
            self._deliver(tickets[:count])
            tickets = tickets[count:]
        return session

    def _next(self) -> list[Ticket]:
        """Return the waiting jobs in order. Wait for a first one until the repeated job is due."""
        tickets: list[Ticket] = []
        wait_s = pulse.wait_s() if (pulse := self._pulse) else None
        with contextlib.suppress(queue.Empty):
            while not self._stopping and len(tickets) < _GROUP:
                ticket = self._queue.get(block=not tickets, timeout=wait_s)
                if ticket is None:
                    self._stopping = True
                else:
                    tickets.append(ticket)
        return tickets

    def _due(self) -> list[Ticket]:
        """Return the repeated job when it is due, alone: no read is to wait for its lock."""
        pulse = self._pulse
        return [pulse.ticket()] if pulse and not pulse.wait_s() and not self._stopping else []

    def _deliver(self, tickets: list[Ticket]) -> None:
        self._loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        if ticket.future.done():  # its caller was cancelled
            continue
        if ticket.error:
            ticket.future.set_exception(ticket.error)
        else:
            ticket.future.set_result(ticket.result)


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
