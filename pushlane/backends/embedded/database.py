"""The embedded store as the ports see it: jobs go to a thread of its own, answers come back.

A job is a function of a connection. Jobs that wait together share one transaction, so many small
writes cost one commit. If one of them fails, all are undone and each runs again by itself. sqlite3
lets go of the interpreter lock at every row it steps to, and a busy event loop may then hold it for
5 ms: so jobs work on sets (JSON or one blob in, one row out), never row by row. Nothing here knows
of lanes or tasks or blocks the event loop, and no sqlite3 error gets out. The database is kept to
the user who runs pushlane; the folders of receipts and of owners are made for that user alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import sqlite3
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from os import stat_result
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import msgspec

from pushlane.backends.embedded.schema import prepare, use_log
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.task import now_ms
from pushlane.settings import STORE_FILE
from pushlane.util.checks import Remark
from pushlane.util.errors import StorageFull
from pushlane.util.files import create_durably

_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process has locked it; resume or end a process that is suspended",
    sqlite3.SQLITE_CANTOPEN: "check that the folder can be written, or use another --data-dir",
    sqlite3.SQLITE_READONLY: "make the folder and its files writable, or use another --data-dir",
    sqlite3.SQLITE_NOTADB: "this is not a pushlane store; use another --data-dir",
    sqlite3.SQLITE_IOERR: "check the disk, or use another --data-dir",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it, or use another --data-dir",
}


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code; the extended one says more than any advice depends on."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Raise StorageFull or Unreachable, naming the folder, for errors of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, folder) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Unreachable(
            f"the store in {folder} cannot be opened: {reason}; "
            "check the path and its permissions, or use another --data-dir"
        ) from error


def translate(error: sqlite3.Error, folder: Path) -> PushlaneError:
    if code_of(error) == sqlite3.SQLITE_FULL:
        return StorageFull(
            f"the disk that holds {folder} is full: what it has is safe, nothing more fits; free "
            "some space, and it goes on"
        )
    if advice := _ADVICE.get(code_of(error)):
        return Unreachable(f"the store in {folder} does not answer ({error}); {advice}")
    return PushlaneError(f"the store in {folder} refused a statement ({error}); please report this")


_PRIVATE = 0o600
_GROUPS = 0o070
_OTHERS = 0o007
_WRITABLE = 0o022

log = logging.getLogger("pushlane.embedded")


class StoreModes(NamedTuple):
    """The permissions of a store's folder, and of those of its files that are there, by name."""

    folder: int
    files: dict[str, int]


def keep_private(path: Path) -> None:
    """Make the database's file when it is not there, and close it and its logs to others.

    What a folder shares with its group stays shared. What stays open, and what cannot be changed,
    is said in the log. An existing file is not opened: to close it again would release what this
    process's other connections have locked (https://sqlite.org/howtocorrupt.html, 2.2). Raises
    OSError when the file cannot be made.
    """
    if not path.exists():
        with suppress(FileExistsError):
            create_durably(path, b"", _PRIVATE)
    for file in _files(path):
        with suppress(OSError):  # it is gone, or not ours: then the mode that it has is told
            _close(file)
    for remark in openings(path.parent, modes_of(path)):
        if remark.severity == "warning":
            log.warning("%s; %s", remark.what, remark.mend, extra={"action": "store_open"})


def modes_of(path: Path) -> StoreModes:
    """Return the modes of a store by the path of its database."""
    files = {}
    for file in _files(path):
        with suppress(FileNotFoundError):
            files[file.name] = _mode(file.stat())
    return StoreModes(_mode(path.parent.stat()), files)


def openings(folder: Path, modes: StoreModes) -> Iterator[Remark]:
    """Remark on what others than the owner can do with the store."""
    found = {name: mode for name, mode in modes.files.items() if mode & (_GROUPS | _OTHERS)}
    if found:
        is_for_all = any(mode & _OTHERS for mode in found.values())
        who = "all users of this machine" if is_for_all else "its group"
        what = f"{', '.join(found)} in {folder}: open to {who}, with all that pushes hold"
        files = " ".join(str(folder / name) for name in found)
        yield Remark("warning", what, f"as their owner: chmod 600 {files}, unless it is on purpose")
    if modes.folder & _WRITABLE and not modes.folder & stat.S_ISVTX:
        who = "all users of this machine" if modes.folder & _OTHERS & _WRITABLE else "its group"
        what = f"the folder {folder} can be written to by {who}: they can replace the store"
        yield Remark("warning", what, f"chmod go-w {folder}, unless it is on purpose")
    elif modes.folder & (_GROUPS | _OTHERS):
        what = f"the folder {folder} is open to others: they see the names and sizes of its files"
        yield Remark("note", what, f"chmod 700 {folder} (systemd: StateDirectoryMode=0700)")


def _close(file: Path) -> None:
    """Take a file's permissions from others, and from its group unless the folder is shared."""
    found = file.stat()
    mode, kept = _mode(found), _PRIVATE
    if _is_shared(file.parent.stat(), found):
        kept |= _GROUPS
    if mode & ~kept:
        file.chmod(mode & kept)


def _is_shared(folder: stat_result, file: stat_result) -> bool:
    """Return whether a folder is shared with its group on purpose, and a file in it with that."""
    return folder.st_gid == file.st_gid and bool(folder.st_mode & (stat.S_ISGID | stat.S_IWGRP))


def _files(path: Path) -> list[Path]:
    """Return the database, and the files that SQLite keeps beside it: they have its mode."""
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))]


def _mode(found: stat_result) -> int:
    return stat.S_IMODE(found.st_mode)


RETRY_S = 1.0

logger = logging.getLogger(__name__)


class SideTasks:
    """Side tasks of the adapter: named, supervised, and patient.

    A step that finds the store unreachable is tried again, and logged once. When a task dies of any
    other error, the next call that checks raises and names it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: PushlaneError | None = None

    def repeat(self, step: Callable[[], Awaitable[None]], name: str) -> None:
        """Run `step` over and over until closed; it paces itself."""
        task = asyncio.create_task(_repeat(step, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def check(self) -> None:
        """Raise PushlaneError when a side task has died."""
        if self._failure:
            raise self._failure

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._failure = PushlaneError(f"{task.get_name()} died with {type(error).__name__}")
        self._failure.__cause__ = error
        task.get_loop().call_exception_handler(
            {"message": str(self._failure), "exception": error, "task": task}
        )


async def _repeat(step: Callable[[], Awaitable[None]], name: str) -> None:
    failing = False
    while True:
        try:
            await step()
        except Unreachable as error:
            if not failing:
                logger.warning("%s waits: %s", name, error)
            failing = True
            await asyncio.sleep(RETRY_S)
        else:
            if failing:
                logger.warning("%s goes on", name)
            failing = False


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


@dataclass
class Pulse:
    """A job that the thread repeats every so many seconds.

    `tell` is called on the event loop with each result, but not when the store was unreachable.
    """

    job: Job
    every_s: float
    tell: Callable[[Any], None]
    loop: asyncio.AbstractEventLoop
    due_s: float = 0.0

    def wait_s(self) -> float:
        """Return how long until the job is due; 0 when it is."""
        return max(0.0, self.due_s - time.monotonic())

    def ticket(self) -> Ticket:
        """Return a ticket to run the job now, and set when it is due next."""
        self.due_s = time.monotonic() + self.every_s
        future = self.loop.create_future()
        future.add_done_callback(self._heard)
        return Ticket(self.job, Need.WRITE, future)

    def _heard(self, answer: asyncio.Future[Any]) -> None:
        with suppress(Unreachable):
            self.tell(answer.result())


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
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
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

    def _translated(self, error: Exception) -> Exception:
        return translate(error, self._folder) if isinstance(error, sqlite3.Error) else error


POLL_S = 0.005
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

        Raises Unreachable when the folder or the file cannot be used.
        """
        with translated(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            keep_private(self.folder / STORE_FILE)
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._open = True
        try:
            await self.ping()
        except BaseException:
            await self.close()
            raise

    async def read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job that changes nothing."""
        return await self.run(job, Need.READ)

    async def write(self, job: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """Run a job in a transaction. It may run twice, the first time undone."""
        return await self.run(job, Need.DURABLE if durable else Need.WRITE)

    async def ping(self) -> None:
        """Return once the store has been read. Raises Unreachable when it cannot be."""
        await self.read(_data_version)

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

    def beside(self, step: Callable[[], Awaitable[None]], name: str) -> None:
        """Run `step` over and over until closed, as a side task of this name; it paces itself."""
        self._background.repeat(step, name)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` soon after a commit of another connection, in this process too."""
        self._listeners.append(listener)
        if len(self._listeners) == 1:
            self.beside(self._watch, "the embedded store's watch")

    async def close(self) -> None:
        """Finish the jobs that were begun, then close the file."""
        if self._open:
            self._open = False
            await self._background.close()
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    async def run(self, job: Callable[[sqlite3.Connection], T], need: Need) -> T:
        if not self._open:
            raise Unreachable(f"the store in {self.folder} is closed; connect again")
        self._background.check()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put(Ticket(job, need, future))
        answer: T = await future
        return answer

    async def _watch(self) -> None:
        version = await self.read(_data_version)
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
            self._loop.call_soon_threadsafe(_resolve, tickets)
            return None
        while tickets:
            count = session.serve(tickets)
            self._loop.call_soon_threadsafe(_resolve, tickets[:count])
            tickets = tickets[count:]
        return session

    def _next(self) -> list[Ticket]:
        """Return the waiting jobs in order. Wait for a first one until the repeated job is due."""
        tickets: list[Ticket] = []
        wait_s = pulse.wait_s() if (pulse := self._pulse) else None
        with suppress(queue.Empty):
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


class StorePort:
    """The base of the ports on SQLite. `clock_ms` is a clock in Unix milliseconds."""

    def __init__(self, database: Database, clock_ms: Callable[[], int] = now_ms) -> None:
        self._database = database
        self._clock_ms = clock_ms


P = ParamSpec("P")
S = TypeVar("S", bound=StorePort)


def reads(
    method: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a coroutine function of a method that changes nothing: the store's thread runs it."""
    return _by_thread(method, Need.READ)


def writes(
    method: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a coroutine function of a method: it is run in a transaction, see `Database.write`."""
    return _by_thread(method, Need.WRITE)


def writes_durably(
    method: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Do as `writes`, in a transaction that survives a power cut."""
    return _by_thread(method, Need.DURABLE)


def _by_thread(
    method: Callable[Concatenate[S, sqlite3.Connection, P], T], need: Need
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(port: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await port._database.run(lambda store: method(port, store, *args, **kwargs), need)

    return call


def json_of(
    connection: sqlite3.Connection,
    statement: str,
    values: Mapping[str, object] | Sequence[str | int] = (),
) -> Any:
    """Return the JSON that is the answer of a statement: one row of one column."""
    [answer] = connection.execute(statement, values).fetchone()
    return json.loads(answer)


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
