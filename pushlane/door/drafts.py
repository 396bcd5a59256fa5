"""Keeps files that wait to be submitted, each with what was typed, and checks and submits them.

A draft is its owner's alone, and this process's alone: the file lies in a folder of ours for
temporary files. It goes when it is submitted or discarded, at its owner's logout, and when nobody
has looked at it for an hour. What is done is done with the rights that the owner's token has by
then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import gethostname
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.task import now_ms
from pushlane.diagnosis.look import SinkPrediction, predict
from pushlane.door.upload_folder import UploadFolder
from pushlane.door.uploads import (
    BESIDE_BYTES,
    drain,
    length_of,
    new_file,
    receive_file,
    refuse_longer,
    unkept,
)
from pushlane.door.within import Within
from pushlane.operations.drafts import (
    NO_COLUMNS,
    OF_FILE,
    Columns,
    StoredRows,
    Typed,
    columns_of,
    command_of,
    request_of,
    uses_of,
)
from pushlane.operations.previewing import Preview, PreviewView
from pushlane.operations.receiving import CreateTask
from pushlane.operations.sending import Tried, submitted_by, tried_by
from pushlane.operations.session import Caller
from pushlane.operations.submitting import SubmitResult
from pushlane.producers.request import SubmitProgress
from pushlane.producers.samples import by_sink
from pushlane.util.errors import NotAllowed, NotFound, NotNow

if TYPE_CHECKING:
    from pushlane.door.app import Door

log = logging.getLogger("pushlane.serve")

MOST = 20
"""So many files wait at a process at most, and so many are remembered that were submitted."""

MOST_OF_ONE = 5
"""So many of those that wait may be of one owner."""

IDLE_S = 3_600.0
"""A draft that nobody looks at goes after so long."""

_SWEEP_S = 60.0
_AT_ONCE = 2
_CLOSE_S = 10.0


class KeptElsewhere(NotFound):
    """A draft is kept by another process, if that still runs: who asks again may be led there."""


@dataclass(eq=False)
class Job:
    """Work on a draft in the background, `check`, `test` or `submit`, and its progress.

    It has not begun while it `waits` for work on other files.
    """

    word: str
    progress: SubmitProgress | None = None
    waits: bool = True
    is_running: bool = True
    error: str = ""
    running: asyncio.Task[None] | None = None

    def tell(self, progress: SubmitProgress) -> None:
        self.progress = progress


class _Turns:
    """Lets two jobs run at once, of two owners: the long ones of one leave a turn to others."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        own = self._own.get(owner) or self._own.setdefault(owner, asyncio.Lock())
        async with own, self._free:
            yield


class Reject(msgspec.Struct, frozen=True):
    """A row that cannot be used: its line (its number in a Parquet file), and why."""

    reason: str
    line: int | None = None
    row: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of a check. The draft can be submitted if `why_not` is empty.

    `samples` are a few pushes at each sink, with recipients masked; `uses` has by column what it is
    used as.
    """

    number: str
    typed: Typed
    command: str
    tried: Tried
    sinks: Sequence[SinkPrediction]
    preview: PreviewView
    samples: Sequence[Mapping[str, Any]]
    uses: Mapping[str, Sequence[str]]
    why_not: str

    @property
    def ends_in_s(self) -> float | None:
        """In how many seconds all of it is through; None when that cannot be told."""
        ends = [one.expected.ends_in_s if one.expected else None for one in self.sinks]
        known = [one for one in ends if one is not None]
        return max(known) if known and len(known) == len(ends) else None


@dataclass(eq=False, kw_only=True)
class Draft:
    """A file that waits to be submitted, and what was typed beside it.

    `rejects` are the first rows that the last check could not use.
    """

    id: str
    owner: str
    session: str
    rows: StoredRows
    size: int
    typed: dict[str, Sequence[str]] = field(default_factory=dict)
    at_ms: int = field(default_factory=now_ms)
    used_s: float = field(default_factory=monotonic)
    job: Job | None = None
    checked: Checked | None = None
    rejects: Sequence[Reject] = ()
    tests: list[SubmitResult] = field(default_factory=list)
    done: SubmitResult | None = None
    _columns: tuple[Typed, Columns, str] | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> tuple[Columns, str]:
        """Return the columns of its file, and why they cannot be told, if so.

        It is read once, and again when what is typed says that it is written otherwise.
        """
        written = {name: self.typed[name] for name in OF_FILE if name in self.typed}
        async with self._reading:
            if self._columns is None or self._columns[0] != written:
                columns, wrong = NO_COLUMNS, ""
                try:
                    columns = await asyncio.to_thread(columns_of, self.rows, written)
                except BadInput as error:
                    wrong = str(error)
                self._columns = written, columns, wrong
            return self._columns[1:]

    @property
    def is_busy(self) -> bool:
        return self.job is not None and self.job.is_running

    @property
    def is_sent(self) -> bool:
        """True while some of its rows are being sent."""
        return self.job is not None and self.job.is_running and self.job.word != "check"


class Drafts:
    """The drafts of this process."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._kept: dict[str, Draft] = {}
        self._coming: list[Draft] = []
        place = f"{gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self.place = re.sub(r"[^A-Za-z0-9-]", "-", place)
        self._folder: UploadFolder | None = None
        self._turns = _Turns()
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def most_bytes(self) -> int:
        """The most bytes of all files together."""
        return self._door.settings.upload_max

    async def receive(
        self, request: Request, caller: Caller, session: str, is_ours: Callable[[str], bool]
    ) -> Draft:
        """Keep the file of a form.

        What is refused is read on for a moment: a browser that still sends sees no answer. Raises
        as `receive_file` does, BadInput for a form that does not say its length, and NotNow at the
        bounds.
        """
        parts = request.stream()
        try:
            size = length_of(request)
            refuse_longer(size - BESIDE_BYTES, self.most_bytes)
            with self._coming_in(caller, session, min(size, self.most_bytes)) as draft:
                file = await receive_file(request, parts, draft.rows.path, self.most_bytes, is_ours)
                draft.size = file.size
                draft.rows = draft.rows._replace(called=file.called)
        except PushlaneError:
            await drain(parts)
            raise
        return draft

    async def write(self, text: str, kind: str, caller: Caller, session: str) -> Draft:
        """Keep rows that were typed. Raises BadInput without any, and NotNow at the bounds."""
        body = text.replace("\r\n", "\n").encode()
        if not body.strip():
            raise BadInput("no rows were typed; the first line names the columns")
        refuse_longer(len(body), self.most_bytes)
        with self._coming_in(caller, session, len(body)) as draft:
            draft.rows = draft.rows._replace(called=f"rows.{kind}")
            await asyncio.to_thread(_write_new, draft.rows.path, body)
        return draft

    def of(self, draft_id: str, caller: Caller) -> Draft:
        """Return a draft of the caller. Raises NotFound, and KeptElsewhere where another has it."""
        draft = self._kept.get(draft_id)
        if draft is not None and draft.owner == caller.name:
            draft.used_s = monotonic()
            return draft
        place, _, name = draft_id.rpartition(".")
        again = "choose it again" + _under_its_key(name)
        if place != self.place and re.fullmatch(r"[A-Za-z0-9-]{1,100}", place):
            raise KeptElsewhere(
                f"the process {place} of `serve` has this file, and {self.place} answered. Try "
                f"again; if that process has stopped, the file is gone: {again}"
            )
        raise NotFound(
            "you have no such file here: it was submitted or discarded, or nobody looked at it "
            f"for an hour; {again}"
        )

    def of_owner(self, caller: Caller) -> list[Draft]:
        """Return the drafts of a caller, the newest first."""
        own = [one for one in self._kept.values() if one.owner == caller.name]
        return sorted(own, key=lambda one: -one.at_ms)

    def check(self, draft: Draft, typed: Typed, authorization: str) -> None:
        """Begin to go through the rows, and to say what a submit would do.

        Raises NotNow while something else is done with it, and BadInput once it is submitted, as
        all of these do.
        """
        self._refuse_busy(draft)
        draft.typed, draft.checked, draft.rejects = dict(typed), None, ()
        self._begin(draft, "check", lambda job: self._check(draft, job, authorization))

    def test(self, draft: Draft, typed: Typed, authorization: str) -> None:
        """Begin to send the first rows to some addresses alone. Raises NotNow."""
        self._refuse_busy(draft)
        draft.typed = dict(typed)
        if draft.checked is not None and draft.checked.typed != _without_test(typed):
            draft.checked = None
        self._begin(draft, "test", lambda job: self._test(draft, job, authorization))

    def submit(self, draft: Draft, number: str, authorization: str) -> None:
        """Begin to submit what was checked. Raises NotNow, and BadInput for another check."""
        self._refuse_busy(draft)
        checked = draft.checked
        if checked is None or checked.number != number:
            raise BadInput("something has changed since that check: look at the newest check")
        if checked.why_not:
            raise BadInput(checked.why_not)
        work = self._submit
        self._begin(draft, "submit", lambda job: work(draft, job, checked.typed, authorization))

    def stop(self, draft: Draft) -> None:
        """Stop a check. What sends is not stopped: its task can be paused or cancelled."""
        if draft.job is not None and draft.job.word == "check" and draft.job.running is not None:
            draft.job.running.cancel()

    def discard(self, draft: Draft) -> None:
        """Remove it. Raises NotNow while it is being sent."""
        if draft.is_sent:
            raise NotNow("its rows are being sent; pause or cancel its task instead")
        self._remove(draft)

    def end_session(self, session: str) -> None:
        """Remove what a session has left, but what is being sent; refuse what still comes."""
        for draft in self._coming:
            if draft.session == session:
                draft.session = ""
        for draft in [*self._kept.values()]:
            if draft.session == session and not draft.is_sent:
                self._remove(draft)

    async def close(self) -> None:
        """Remove all of them, once those that are being sent are sent, or after a while."""
        running = {one.job.running: one.job for one in self._kept.values() if one.job}
        sending = [task for task, job in running.items() if task and job.word != "check"]
        if sending:
            await asyncio.wait(sending, timeout=_CLOSE_S)
        for draft in [*self._kept.values()]:
            self._remove(draft)
        left = [task for task in running if task is not None]
        await asyncio.gather(*left, return_exceptions=True)
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.close)

    @contextmanager
    def _coming_in(self, caller: Caller, session: str, size: int) -> Iterator[Draft]:
        """Give a draft with room for so many bytes, and keep it once they have come.

        Until then it is shown to nobody. Raises NotNow without room, and NotAllowed when its
        session has ended meanwhile.
        """
        draft = self._new(caller, session, size)
        self._coming.append(draft)
        try:
            yield draft
            if not draft.session:
                raise NotAllowed("you logged out while the file came: log in and send it again")
        except BaseException:
            _remove_file(draft)
            raise
        finally:
            self._coming.remove(draft)
        for done in [one for one in self._kept.values() if one.done is not None][:-MOST]:
            self._remove(done)
        draft.used_s = monotonic()
        self._kept[draft.id] = draft
        self._sweep_later()

    def _new(self, caller: Caller, session: str, size: int) -> Draft:
        """Return a draft with room for so many bytes. Raises NotNow without any."""
        waiting = [one for one in self._kept.values() if one.done is None] + self._coming
        if sum(one.owner == caller.name for one in waiting) >= MOST_OF_ONE:
            raise NotNow(f"{MOST_OF_ONE} files of yours wait already; submit or discard one")
        kept_bytes = sum(one.size for one in waiting)
        if len(waiting) >= MOST or kept_bytes + size > self.most_bytes:
            raise NotNow(
                "too many files of others wait to be submitted; try again soon, or use pushlane "
                "submit"
            )
        name = secrets.token_hex(8)
        path = self._folder_there().path / name
        rows = StoredRows(path, "", path.with_name(f"{name}.rejects"))
        draft = Draft(
            id=f"{self.place}.{name}", owner=caller.name, session=session, rows=rows, size=size
        )
        draft.typed = {"key": (_key(name),)}
        if caller.access.apps is not None and len(caller.access.apps) == 1:
            draft.typed["app"] = (*caller.access.apps,)
        return draft

    def _folder_there(self) -> UploadFolder:
        """Return our folder, a new one if a cleaner of temporary files took it. Raises NotNow."""
        if self._folder is not None and not self._folder.is_there:
            self._folder.close()
            self._folder = None
        if self._folder is None:
            try:
                self._folder = UploadFolder()
            except OSError as error:
                raise unkept(error) from error
        return self._folder

    def _remove(self, draft: Draft) -> None:
        self._kept.pop(draft.id, None)
        if draft.job is not None and draft.job.running is not None:
            draft.job.running.cancel()
        _remove_file(draft)

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Remove what nobody has looked at for long."""
        self._sweeping = None
        self.forget(monotonic())
        if self._kept:
            self._sweep_later()

    def forget(self, now_s: float) -> None:
        """Remove what nobody has looked at since an hour before this time of `monotonic`."""
        for draft in [*self._kept.values()]:
            if not draft.is_busy and now_s - draft.used_s > IDLE_S:
                self._remove(draft)

    def _refuse_busy(self, draft: Draft) -> None:
        if draft.done is not None:
            raise BadInput(f"it is submitted already, as task {draft.done.task_id}")
        if draft.is_busy:
            raise NotNow("it is still being worked on; wait until that ends")

    def _begin(self, draft: Draft, word: str, work: Callable[[Job], Awaitable[None]]) -> None:
        job = draft.job = Job(word)
        running = self._run(draft.owner, job, work)
        job.running = asyncio.create_task(running, name=f"{word} of a draft")

    async def _run(self, owner: str, job: Job, work: Callable[[Job], Awaitable[None]]) -> None:
        try:
            async with self._turns.of(owner):
                job.waits = False
                await work(job)
        except PushlaneError as error:
            job.error = str(error)
        except asyncio.CancelledError:
            job.error = "it was stopped"
            raise
        except Exception as error:
            job.error = "this is a defect in pushlane; the log of the server has more"
            told = "%s of a draft ended in an unexpected %s: please report it"
            extra = {"action": "draft_failed"}
            log.error(told, job.word, type(error).__name__, exc_info=error, extra=extra)
        finally:
            job.is_running = False

    async def _check(self, draft: Draft, job: Job, authorization: str) -> None:
        typed = _without_test(draft.typed)
        request = request_of(draft.rows, typed, now_ms())
        way, settings = Within(self._door, authorization), self._door.settings
        try:  # all bad rows are told, whether or not the first would stop it
            tried = await tried_by(way, settings, replace(request, bad_rows="skip"), job.tell)
        except BadInput as error:
            draft.rejects = await asyncio.to_thread(_rejects, draft.rows.rejects)
            raise BadInput(str(error).replace(str(draft.rows.rejects), "the list below")) from error
        ran = tried.ran
        limit = None if request.limit.is_none else request.limit
        backend = self._door.backend
        sees_all = (await way.caller()).access.apps is None
        sinks = await predict(
            backend, settings, ran.task, ran.by_sink, ran.put_off, limit, shows_targets=sees_all
        )
        wanted = msgspec.to_builtins(tried.wanted)
        preview = await way.do(Preview(operation=CreateTask.word(), parameters=wanted))
        why_not = ""
        if ran.rejected and request.bad_rows == "stop":
            rows = "1 row" if ran.rejected == 1 else f"{ran.rejected:,} rows"
            why_not = f"{rows} cannot be used: correct them, or leave them out (Bad rows: skip)"
        draft.rejects = await asyncio.to_thread(_rejects, ran.rejects)
        draft.checked = Checked(
            number=secrets.token_hex(8),
            typed=typed,
            command=command_of(draft.rows.called, typed),
            tried=tried,
            sinks=sinks,
            preview=preview,
            samples=by_sink(ran),
            uses=uses_of(request),
            why_not=why_not,
        )

    async def _test(self, draft: Draft, job: Job, authorization: str) -> None:
        if "test_to" not in draft.typed:
            raise BadInput("no address to test with was given")
        request = request_of(draft.rows, draft.typed, now_ms())
        way = Within(self._door, authorization)
        draft.tests.append(await submitted_by(way, self._door.settings, request, job.tell))

    async def _submit(self, draft: Draft, job: Job, typed: Typed, authorization: str) -> None:
        request = request_of(draft.rows, typed, now_ms())
        way = Within(self._door, authorization)
        draft.done = await submitted_by(way, self._door.settings, request, job.tell)
        await asyncio.to_thread(_remove_file, draft)


def _key(name: str) -> str:
    """Return the key of a draft of this name, unless another is typed."""
    return f"console-{name}"


def _under_its_key(name: str) -> str:
    """Return what to do so that a submit that was cut sends nothing twice."""
    if re.fullmatch("[0-9a-f]{16}", name) is None:
        return ""
    return (
        f". If it was being submitted, look for its task first: its key is {_key(name)}, unless "
        "you gave another. Give that key and the same options when you submit the file again: it "
        "goes on where it stopped. Under a new key all recipients get it once more"
    )


def _without_test(typed: Typed) -> dict[str, Sequence[str]]:
    return {name: some for name, some in typed.items() if name != "test_to"}


def _remove_file(draft: Draft) -> None:
    """Remove what a draft has on the disk; what cannot be removed now goes with the folder."""
    draft.size = 0
    for path in (draft.rows.path, draft.rows.rejects):
        with suppress(OSError):
            path.unlink()


def _write_new(path: Path, body: bytes) -> None:
    """Write a new file. Raises NotNow when the disk takes no more."""
    try:
        with os.fdopen(new_file(path), "wb") as out:
            out.write(body)
    except OSError as error:
        raise unkept(error) from error


def _rejects(path: Path | None) -> list[Reject]:
    """Return the rows of a list of bad ones, which is short."""
    if path is None or not path.exists():
        return []
    with path.open("rb") as lines:
        return [msgspec.json.decode(line, type=Reject) for line in lines]
