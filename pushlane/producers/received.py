"""Receives a task's pushes as lines, over any number of requests: line n is the push of seq n.

What is safe is what the broker has of the one source that publishes them. Lines up to it are left
out before they are packed: bundles that are cut elsewhere would go out twice. Nothing of a task is
sent before its seal, unless it was made to be sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec

from pushlane.backends.backend import Backend
from pushlane.backends.formats import KEYED, format_to_write
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import BadInput, InvalidChange, TaskConflict, UnknownLane
from pushlane.core.publish import Publication, chunk_size
from pushlane.core.push import MAX_PUSH_BYTES, MAX_SEQ, UNREADABLE
from pushlane.core.task import State, Task, now_ms
from pushlane.model.names import receiving_lease, submit_lease
from pushlane.model.streams import lines_source
from pushlane.producers.outbox.sender import KEYS_WAIT
from pushlane.producers.producer import Content, encoder
from pushlane.producers.published import announce, reached, refuse_outdated
from pushlane.settings import Settings
from pushlane.settings.payload_limits import payload_limits
from pushlane.util.errors import LinesBusy, NotNow, OversizedPush
from pushlane.wire import MOST_PUSHES

T = TypeVar("T")

LONGEST_LINE = 4 * MAX_PUSH_BYTES
"""Bytes of a line: JSON may write a character in six."""

WAITS_S = 600.0
"""A task that gets no line for longer counts as stalled."""

_HOLDER = "http"


class PushLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One push, as a line of JSON. Times are Unix ms, or texts like `2h`; what is left out is none.

    `address` and `payload` are by sink; one address alone is that at the task's only sink. In an
    ordered task `after_line` is the line of the same key before this one: it goes first. Of the
    pushes of an app with the same `key` one is sent within `key_window_s`. A `tracestate` goes on
    beside the `traceparent` in `trace_id`.
    """

    recipient: str
    title: str = ""
    body: str = ""
    data: dict[str, Any] | None = None
    not_before_ms: int | str = 0
    expires_at_ms: int | str = 0
    zone: str | None = None
    collapse: str | None = None
    attributes: dict[str, str] | None = None
    trace_id: str = ""
    address: str | dict[str, Any] | None = None
    payload: dict[str, Any] | None = None
    after_line: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQ)] = 0
    key: str | None = None
    tracestate: str = ""

    @property
    def content(self) -> Content:
        return Content(
            self.recipient,
            self.title,
            self.body,
            self.data,
            self.expires_at_ms,
            self.attributes,
            self.trace_id,
            self.address,
            self.payload,
            key=self.key,
            not_before_ms=self.not_before_ms,
            zone=self.zone,
            collapse=self.collapse,
            tracestate=self.tracestate,
        )


class BadLine(BadInput):
    """A line that cannot be a push. Those before it are safe up to `safe`."""

    def __init__(self, line: int, safe: int, why: str) -> None:
        self.line = line
        self.safe = safe
        super().__init__(f"line {line} is not a push: {why}. Lines up to {safe} are safe")


class LineGap(TaskConflict):
    """Lines are missing between what is safe and the first that was given."""

    def __init__(self, task_id: str, first: int, safe: int) -> None:
        self.safe = safe
        super().__init__(
            f"task {task_id} has lines up to {safe}, and these begin with {first}: go on from "
            f"{safe + 1}"
        )


@dataclass(eq=False, repr=False)
class Receiving:
    """A task whose pushes come as lines."""

    backend: Backend
    settings: Settings
    task: Task

    def __post_init__(self) -> None:
        self._publication = Publication(self.backend, self.task, hidden=self.is_hidden)

    @property
    def is_hidden(self) -> bool:
        """True when nothing of it goes before its seal."""
        return self.task.state is State.SUBMITTED

    @property
    def source(self) -> str:
        return lines_source(self.task.id)

    async def begin(self, *, hidden: bool, paused: str = "") -> None:
        """Open the lane of a new task, which is sent from its seal on, at once, or when resumed.

        `paused` is why it waits to be resumed.
        """
        publication = Publication(self.backend, self.task, hidden=hidden)
        if paused:
            await publication.open_lane()
            await self.backend.hold(self.task.id, paused)
        await publication.open()
        await self.touch()

    async def touch(self) -> None:
        """Note that lines are waited for from now on."""
        await self.backend.lease.acquire(receiving_lease(self.task.id), _HOLDER, WAITS_S)

    async def safe(self) -> int:
        """Return the last line that is on the lane, whoever sent it.

        Raises LinesBusy while somebody sends lines, and TaskConflict when nobody can know any more.
        """
        return await self._alone(self._safe, waits=False)

    async def _alone(self, work: Callable[[], Coroutine[Any, Any, T]], *, waits: bool = True) -> T:
        """Do the work while nobody else has to do with the lines. Raises LinesBusy.

        A question takes a moment, which is waited for: two who publish under one name are refused.
        """
        busy = f"another request is sending lines of task {self.task.id}; wait for it to end"
        lease = submit_lease(self.task.id)
        guard = LeaseGuard(self.backend.lease, lease, busy, asyncio.sleep, waits=waits)
        try:
            return await guard.run(work, lambda: None)
        except TaskConflict as error:
            if str(error) == busy:
                raise LinesBusy(busy) from error
            raise

    async def _safe(self) -> int:
        if self.task.total is not None:
            return self.task.total
        refuse_complete(self.task)
        lane = self._publication.lane
        try:
            last = await self.backend.broker.last_of(lane, self.source)
        except UnknownLane:  # who made the task has not come so far
            return 0
        finally:
            await self.backend.broker.close_source(lane, self.source)
        return last or await self._found()

    async def _found(self) -> int:
        """Return the last line that is on a lane or finished, of which the broker knows no more."""
        kept_ms = round(self.settings.dedup_window_s * 1000)
        is_young = self.task.created_at_ms >= now_ms() - kept_ms
        if self.settings.capabilities.remembers_sources or is_young:
            return 0
        [progress] = await self.backend.registry.progress([self.task.id])
        waiting = [await self.backend.broker.backlog(lane) for lane in self.task.own_lanes()]
        most = progress.finished + MOST_PUSHES * sum(waiting)
        [last] = await reached(self.backend, self.task, [range(1, most + 1)])
        return last

    async def take(self, lines: AsyncIterator[Sequence[bytes]], first: int) -> int:
        """Put lines on the lane, the first of which is line `first`; return the last that is safe.

        `lines` gives some at a time. Raises:

            BadLine: one is no push; what was before it is on the lane.
            LineGap: lines before the first are missing.
            TaskConflict: somebody else sends lines, or the task has ended.
        """
        refuse_complete(self.task)
        refuse_outdated(self.task)
        return await self._alone(lambda: self._take(lines, first))

    async def _take(self, lines: AsyncIterator[Sequence[bytes]], first: int) -> int:
        safe = await self._safe()
        if first > safe + 1:
            raise LineGap(self.task.id, first, safe)
        await self._publication.open_lane()
        await self.touch()
        chunk = _Chunk(self, safe)
        number = first
        try:
            async for some in lines:
                for line in some:
                    if number > chunk.safe + len(chunk.bodies):
                        await chunk.add(number, line)
                    number += 1
        finally:
            safe = await chunk.flush()
            await self.backend.broker.close_source(self._publication.lane, self.source)
            await self.touch()
        return safe

    async def publish(self, bodies: list[bytes], collapses: bool) -> None:
        """Put the next pushes on the lane."""
        await self._publication.publish(bodies, self.source)
        if collapses:
            await announce(self.backend, self.task, bodies)

    async def seal(self, total: int) -> Task:
        """End the task at so many lines; from now on all of it is sent.

        Raises TaskConflict when others are safe, or lines come meanwhile.
        """
        return await self._alone(lambda: self._seal(total))

    async def _seal(self, total: int) -> Task:
        safe = await self._safe()
        if total != safe:
            raise InvalidChange(
                f"task {self.task.id} has {safe:,} lines, and you close it with {total:,}; send "
                f"what is missing, or close it with {safe:,}"
            )
        sealed = await self._publication.seal(total)
        await self.backend.lease.release(receiving_lease(self.task.id), _HOLDER)
        return sealed


@dataclass(eq=False, repr=False)
class _Chunk:
    """The pushes that go on the lane together: whole bundles, so that a repeat is cut alike."""

    of: Receiving
    safe: int
    bodies: list[bytes] = field(default_factory=list)
    collapses: bool = False
    _knows_keys: bool = False

    def __post_init__(self) -> None:
        task, settings = self.of.task, self.of.settings
        self._most = chunk_size(max(1, task.bundle))
        self._limits = payload_limits(settings, task.chain)
        self._decode = msgspec.json.Decoder(PushLine).decode

    async def add(self, number: int, line: bytes) -> None:
        """Add a line. Raises BadLine."""
        task = self.of.task
        try:
            push = self._decode(line)
            encode = encoder(task, self._limits, push.content, now_ms())
            _refuse_after(task, number, push.after_line)
            if push.key is not None:
                await self._require_keys()
            body = encode(number, push.after_line)
        except (*UNREADABLE, BadInput) as error:
            raise BadLine(number, await self.flush(), why_no_push(error)) from error
        self.collapses = self.collapses or push.collapse is not None
        self.bodies.append(body)
        if len(self.bodies) >= self._most:
            await self.flush()

    async def _require_keys(self) -> None:
        """Raise NotNow while older dispatchers may be there, which do not know keys."""
        backend = self.of.backend
        if not self._knows_keys:
            written = await format_to_write(backend.documents, backend.registry, backend.presence)
            if written < KEYED:
                raise NotNow(KEYS_WAIT)
            self._knows_keys = True

    async def flush(self) -> int:
        """Put on the lane what was added; return the last line that is safe then."""
        bodies, self.bodies = self.bodies, []
        if bodies:
            await self.of.publish(bodies, self.collapses)
            self.safe += len(bodies)
        return self.safe


def refuse_complete(task: Task) -> None:
    """Raise InvalidChange for a task that takes no more lines."""
    if task.total is not None:
        raise InvalidChange(f"task {task.id} is closed with {task.total:,} lines: it takes no more")
    if task.state.is_terminal:
        raise InvalidChange(f"task {task.id} is {task.state}: it takes no more lines")
    if task.is_fed or task.pooled:
        raise InvalidChange(f"task {task.id} does not take lines")


def _refuse_after(task: Task, number: int, after: int) -> None:
    """Raise BadInput for an `after_line` that cannot be."""
    if after and not task.ordered:
        raise BadInput("after_line is for a task that was made with `ordered`; leave it out")
    if after >= number:
        raise BadInput(f"after_line is {after}, and this is line {number}: give one before it")


class LineSplitter:
    """Cuts what comes into lines. Raises OversizedPush for a line that never ends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this, without empty ones at their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in lines):
            raise OversizedPush(f"a line has more than {LONGEST_LINE:,} bytes; none may")
        return lines

    def end(self) -> list[bytes]:
        """Return what is behind the last line's end, as a line."""
        rest, self._rest = self._rest, b""
        return [rest] if rest.strip() else []


def why_no_push(error: Exception) -> str:
    """Say what is wrong with a push as JSON, and nothing of what it holds."""
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    return "it is not a JSON object on one line"
