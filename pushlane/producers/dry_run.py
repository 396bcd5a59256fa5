"""Goes through a submit without making anything of it: what would be published, and of what size.

It reads and checks the rows as a submit does, and refuses what that refuses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput
from pushlane.core.publish import chunk_size
from pushlane.core.push import Push, decode_many
from pushlane.core.task import Task, now_ms
from pushlane.model.due import PutOff, PutOffTally, due_ms, wait_of
from pushlane.producers.check import CheckedRows, LimitsOf, first_pass, refuse_other
from pushlane.producers.request import OnProgress, SubmitRequest
from pushlane.producers.rows import prefetched
from pushlane.producers.task_builder import known_limits, refuse_stopped, task_of_key
from pushlane.producers.validate import nothing_in
from pushlane.settings import Settings

MOST_COUNTED = 1_000_000
"""Of more recipients than this it is not counted how many have several pushes; takes 100 MB."""


@dataclass(frozen=True)
class DryRun:
    """What a submit would do. `task` is as it would be made; `existing` has its key already.

    `by_sink` counts pushes under the sink that each goes to first, and `put_off` has by sink those
    of them that would wait for their time, were they all sent at the start. `empty` are those
    without title, body, data and payload, of a silent task. `recipients` counts different ones, and
    `repeated` those with several pushes; both are None above a million. `samples` are the first
    push, one of the middle and the last.
    """

    task: Task
    existing: Task | None
    accepted: int
    rejected: int
    rejects: Path | None
    by_sink: Mapping[str, int]
    put_off: Mapping[str, Sequence[PutOff]]
    least_bytes: int
    most_bytes: int
    total_bytes: int
    empty: int
    recipients: int | None
    repeated: int | None
    samples: Sequence[Push]


async def dry_run(
    backend: Backend, settings: Settings, request: SubmitRequest, tell: OnProgress
) -> DryRun:
    """Check a submit, and return what it would do; nothing is published or registered.

    Bad rows that are skipped are listed, as by a submit.

    Raises:
        BadInput: the request or its rows cannot be used.
        TaskConflict: the key belongs to other content, or to a task that was cancelled or expired.
    """

    async def refuse_key(task: Task) -> Task | None:
        existing = await task_of_key(backend, task.key)
        if existing is not None:
            await refuse_stopped(backend, existing)
            refuse_other(task, existing)
        return existing

    told = partial(known_limits, backend, settings)
    return await try_rows(request, settings, tell, told, refuse_key, most_counted=MOST_COUNTED)


async def _no_task(task: Task) -> Task | None:
    """Look for no task with the key."""
    return None


async def try_rows(
    request: SubmitRequest,
    settings: Settings,
    tell: OnProgress,
    limits_of: LimitsOf,
    existing_of: Callable[[Task], Awaitable[Task | None]] = _no_task,
    *,
    most_counted: int,
) -> DryRun:
    """Check a submit, and return what it would do, wherever its task would be made.

    `limits_of` and `existing_of` ask there, and refuse what a submit would be refused. Of more than
    `most_counted` recipients it is not counted how many have several pushes.
    """
    if request.test_to:
        raise BadInput("--test-to sends something and --dry-run nothing; leave one of them out")
    async with first_pass(request, settings, tell, limits_of) as (_, task, rows):
        existing = await existing_of(task)
        tally = _Tally(task, rows.accepted, most_counted)
        async with prefetched(_read(rows, task, tally)) as chunks:
            async for _ in chunks:
                pass
        rows.refuse_changed(tally.seen)
        return DryRun(
            task=task,
            existing=existing,
            accepted=rows.accepted,
            rejected=rows.rejected,
            rejects=rows.rejects,
            by_sink=tally.by_sink,
            put_off={sink: waits.take() for sink, waits in tally.waits.items()},
            least_bytes=tally.least_bytes,
            most_bytes=tally.most_bytes,
            total_bytes=tally.total_bytes,
            empty=tally.empty,
            recipients=tally.recipients.count,
            repeated=tally.recipients.repeated,
            samples=tally.samples,
        )


def _read(rows: CheckedRows, task: Task, tally: _Tally) -> Generator[None, None, None]:
    for chunk in rows.chunks(task, chunk_size(1)):
        tally.add(chunk)
        yield


class _Tally:
    """Counts the pushes of a task as they would be published, and keeps a few."""

    def __init__(self, task: Task, total: int, most_counted: int) -> None:
        self._task = task
        self._shown = {1, (total + 1) // 2, total}
        self.seen = 0
        self.least_bytes = self.most_bytes = self.total_bytes = 0
        self.empty = 0
        self.recipients = _RecipientCount(most_counted)
        self._sent_ms = max(now_ms(), task.not_before_ms)
        self._has_times = bool(task.quiet or task.start_column)
        self.by_sink: Counter[str] = Counter()
        self.waits: defaultdict[str, PutOffTally] = defaultdict(PutOffTally)
        self.samples: list[Push] = []

    def add(self, bodies: Sequence[bytes]) -> None:
        sizes = [len(body) for body in bodies]
        self.least_bytes = min(self.least_bytes or sizes[0], *sizes)
        self.most_bytes = max(self.most_bytes, *sizes)
        self.total_bytes += sum(sizes)
        pushes, chain = decode_many(bodies), self._task.chain
        if len(chain) > 1 or self._has_times:
            for push in pushes:
                self._add_one(push)
        else:
            self.by_sink[chain[0]] += len(pushes)
        self.empty += sum(nothing_in(push, chain) is not None for push in pushes)
        self.recipients.add(pushes)
        self.samples += (push for push in pushes if push.seq in self._shown)
        self.seen += len(bodies)

    def _add_one(self, push: Push) -> None:
        chain = self._task.chain
        sink = next((name for name in chain if push.address(name)), chain[0])
        self.by_sink[sink] += 1
        at_ms = due_ms(self._task, push, self._sent_ms)
        if at_ms > self._sent_ms:
            wait = wait_of(self._task, push, at_ms, self._sent_ms)
            self.waits[sink].add(self._task.id, wait, at_ms)


class _RecipientCount:
    """Tells recipients apart by 64 bits of a hash, as long as there are not too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: set[int] | None = set()
        self._repeated: set[int] = set()

    def add(self, pushes: Sequence[Push]) -> None:
        found = self._found
        if found is None:
            return
        for push in pushes:
            known = hash(push.recipient)
            (self._repeated if known in found else found).add(known)
        if len(found) > self._most:
            self._found = None

    @property
    def count(self) -> int | None:
        return None if self._found is None else len(self._found)

    @property
    def repeated(self) -> int | None:
        return None if self._found is None else len(self._repeated)
