"""Turns an audience into a task: freeze, register, open the lane, publish, seal.

Every step can be repeated, so a fan-out that was cut off is resumed by calling it again. Only what
was frozen is published, and only after all of it is frozen: by Spark's workers, each file with its
own producer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from threading import Lock
from typing import Self, TypeVar

import pyarrow.parquet as pq
from msgspec.structs import replace
from pyspark.sql import SparkSession

from pushlane.backends.backend import MANY_PUSHES, Backend, connect
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import TaskConflict
from pushlane.core.publish import Ended, Publication, refuse_ended
from pushlane.core.task import Task
from pushlane.model import task_changes
from pushlane.model.names import fanout_lease, submit_lease
from pushlane.pipeline.errors import PipelineFailed, spark_errors
from pushlane.pipeline.fanout.request import KEY_PARTS, FanoutRequest, FanoutResult
from pushlane.pipeline.fanout.snapshot import changed, count, freeze
from pushlane.pipeline.fanout.stage import (
    FanoutStage,
    FrozenRows,
    Part,
    StageManifest,
    remove_abandoned,
)
from pushlane.pipeline.fanout.writer import PartWriter
from pushlane.pipeline.session import spark_session
from pushlane.producers.published import reached, refuse_outdated
from pushlane.producers.request import OnProgress, SubmitProgress, SubmitStage
from pushlane.producers.task_builder import (
    KeyEnded,
    new_task,
    other_content,
    progress_of,
    refuse_stopped,
    refuse_unknown_sinks,
)
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from pushlane.util.retrying import until_reachable
from pushlane.util.trace_context import submitters_traceparent
from pushlane.wire import Packed, numbered, open_bundle

T = TypeVar("T")


class FanoutSession:
    """An async context manager that starts Spark when it is first needed, and stops it at its end.

    It stops Spark even while that starts. After a failure the session names its log.
    """

    def __init__(self, request: FanoutRequest) -> None:
        self._request = request
        self._spark: SparkSession | None = None
        self._ends = ExitStack()
        self._starting = Lock()
        self._is_closed = False

    async def __call__(self, work: Callable[[SparkSession], T]) -> T:
        return await asyncio.to_thread(lambda: work(self._started()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._end, error if isinstance(error, Exception) else None)

    def _started(self) -> SparkSession:
        request = self._request
        with self._starting:
            if self._spark is None and not self._is_closed:
                options, memory = request.spark_options, request.memory
                self._spark = self._ends.enter_context(
                    spark_session("pushlane fanout", request.master, options, driver_memory=memory)
                )
            if self._spark is None or self._is_closed:
                raise PipelineFailed("the fan-out was stopped before Spark had started")
            return self._spark

    def _end(self, failure: Exception | None) -> None:
        with self._starting:
            self._ends.__exit__(type(failure) if failure else None, failure, None)


_ROWS_AT_ONCE = 1_024


def publish(
    spark: SparkSession,
    settings: Settings,
    frozen: FrozenRows,
    manifest: StageManifest,
    parts: Sequence[Part],
) -> None:
    """Publish these parts, and return when all of their rows are durable.

    The settings travel to the workers in the function that they run, so that no plan shows them.

    Raises PipelineFailed if a part could not be published; it can be tried again.
    """
    starts = frozen.starts(parts)
    work = [(part, starts[part.first_seq]) for part in parts]
    publish_one = partial(publish_part, settings, frozen, manifest.task.id, manifest.collapses)
    with spark_errors(f"publishing for task {manifest.task.id}"):
        spark.sparkContext.parallelize(work, len(work)).foreach(publish_one)


def publish_part(
    settings: Settings, frozen: FrozenRows, task_id: str, collapses: bool, work: tuple[Part, int]
) -> None:
    """Publish one part from the seq on at which it starts, and return when it is durable."""
    part, start = work
    bundles = bundles_of(frozen, task_id, part)
    rest = (one for one in bundles if one.last_seq - one.pushes >= start - 1)
    asyncio.run(PartWriter(settings, task_id, collapses, frozen.progress).run(rest))


def bundles_of(frozen: FrozenRows, task_id: str, part: Part) -> Iterator[Packed]:
    """Yield the bundles of a part with their seqs."""
    seq = part.first_seq
    with pq.ParquetFile(frozen.rows / part.file) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["packed", "pushes"]):
            for row in batch.to_pylist():
                pushes = row["pushes"]
                message = numbered(task_id, seq, row["packed"])
                if pushes == 1:  # as single pushes go, which older versions read too
                    message = open_bundle(message).body(0)
                yield Packed(message, seq + pushes - 1, pushes)
                seq += pushes


_LOOK_S = 0.5


async def fan_out(
    settings: Settings, request: FanoutRequest, on_progress: OnProgress | None = None
) -> FanoutResult:
    """Fan an audience out to a task, and return the sealed task.

    The same call resumes after a crash, and does nothing after success. A Spark session that the
    caller has open is used.

    Raises:
        BadInput: the request, the audience or a row cannot be used; nothing was published.
        TaskConflict: the key belongs to other content, the audience changed since it was frozen, a
            fan-out of the key is under way, or its task was cancelled or has expired.
        PipelineFailed: Spark stopped half-way; the same call goes on.
        Unreachable: a service does not answer at the start.
    """
    tell = on_progress or (lambda progress: None)
    if request.dry_run:
        tell(SubmitProgress(SubmitStage.CHECKING))
        submit = request.spec.request(task_changes.now_ms(), request.task_key)
        task = new_task(submit, settings)
        async with FanoutSession(request) as session:
            counts = await session(lambda found: count(found, settings, request, submit, task))
        return FanoutResult(None, counts)
    async with connect(settings) as backend:
        run = _FanOut(backend, settings, request, tell)
        busy = f"a fan-out of key {request.task_key!r} is under way; wait for its end"
        hold = LeaseGuard(backend.lease, fanout_lease(request.task_key), busy, asyncio.sleep)
        waiting = SubmitProgress(SubmitStage.FREEZING, note=f"waiting: {busy}")
        return await hold.run(run.run, lambda: tell(waiting))


class _FanOut:
    def __init__(
        self, backend: Backend, settings: Settings, request: FanoutRequest, tell: OnProgress
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._request = request
        self._tell = tell
        self._stage = FanoutStage(settings, request.task_key)
        self._fingerprint = request.fingerprint(settings)

    async def run(self) -> FanoutResult:
        known = await self._existing_task()
        manifest = await asyncio.to_thread(self._stage.manifest)
        if manifest and not (known and known.total is not None):
            manifest.refuse_outdated(self._stage.path)
        if known is None and manifest and self._is_whole(manifest):
            # It was killed while it registered the task: half of that may be there.
            known = await self._backend.add(manifest.task, self._settings)
        manifest = manifest if known else None
        if manifest:
            await asyncio.to_thread(self._stage.keep)
        await asyncio.to_thread(remove_abandoned, self._settings)
        if known is None:  # whatever is frozen, none of it was published
            self._request.spec.check(self._settings, self._request.task_key)
        else:
            async with self._rows_dropped_at_end():
                await refuse_stopped(self._backend, known)
            self._refuse_other(known)
            if known.total is not None:
                await asyncio.to_thread(self._stage.drop_rows)
                progress = await progress_of(self._backend, known)
                counts = manifest.counts if manifest else None
                return FanoutResult(known, counts, already_done=True, progress=progress)
            self._refuse_lost(known, manifest)
        async with FanoutSession(self._request) as session:
            return await self._fan_out(session, manifest)

    async def _fan_out(
        self, session: FanoutSession, manifest: StageManifest | None
    ) -> FanoutResult:
        began_s = time.monotonic()
        is_new = manifest is None
        if manifest is None:
            manifest = await self._freeze(session)
        elif not self._request.frozen:
            await self._refuse_changed(session, manifest)
        frozen_s = time.monotonic()
        kept = await self._backend.add(manifest.task, self._settings)
        self._refuse_other(kept)
        self._refuse_lost(kept, manifest)
        busy = f"a submit of task {kept.id} is under way; wait for its end"
        hold = LeaseGuard(self._backend.lease, submit_lease(kept.id), busy, asyncio.sleep)
        waits = partial(self._tell_note, kept, busy)
        published = await hold.run(lambda: self._publish(session, manifest), waits)
        published_s = time.monotonic()
        task = await self._seal(manifest)
        return FanoutResult(
            task,
            manifest.counts,
            published,
            resumed=not is_new,
            freeze_s=frozen_s - began_s if is_new else 0.0,
            publish_s=published_s - frozen_s,
        )

    async def _existing_task(self) -> Task | None:
        key = self._request.task_key
        with suppress(UnknownTask):
            task = await self._backend.registry.get(key)
            return task if task.key == key else None
        return None

    async def _freeze(self, session: FanoutSession) -> StageManifest:
        self._tell(SubmitProgress(SubmitStage.FREEZING))
        request, settings = self._request, self._settings
        submit = request.spec.request(task_changes.now_ms(), request.task_key)
        mark = f"{self._fingerprint}-{settings.batch}"
        hashes = request.made_of(settings)
        place = submitters_traceparent(request.traceparent)
        made = new_task(submit, settings)
        made = replace(made, fingerprint=mark, made_of=hashes, traceparent=place)
        await refuse_unknown_sinks(self._backend, settings, made)
        task = await self._backend.sized(made, settings, MANY_PUSHES)
        manifest = await session(
            lambda spark: freeze(spark, settings, self._stage, request, submit, task)
        )
        await asyncio.to_thread(self._stage.publish, manifest)  # only while nobody has stopped us
        return manifest

    async def _publish(self, session: FanoutSession, manifest: StageManifest) -> int:
        """Publish the parts that are not durable yet, and return how many rows that were."""
        task = await self._backend.known(manifest.task.id)
        if task.total is not None:
            return 0
        await self._refuse_ended(task)
        refuse_outdated(task)
        task = await Publication(self._backend, task).open()
        frozen = self._stage.frozen(task.id)
        old = await asyncio.to_thread(parts_to_reconcile, manifest, frozen, self._settings)
        if old:
            self._tell_note(task, "the broker may have forgotten this fan-out: reading its lane")
            await reconcile(self._backend, task, manifest, frozen, old)
        left = await asyncio.to_thread(_unfinished_parts, manifest, frozen)
        if not left:
            return 0
        try:
            async with self._progress_shown(task, manifest):
                await session(lambda spark: publish(spark, self._settings, frozen, manifest, left))
        except PipelineFailed as error:
            await self._refuse_ended(await self._backend.known(task.id))
            raise PipelineFailed(f"{error}; run the same command again, and it goes on") from error
        return sum(part.rows for part in left)

    async def _seal(self, manifest: StageManifest) -> Task:
        task, total = manifest.task, manifest.counts.total
        self._tell(SubmitProgress(SubmitStage.SEALING, total, task_id=task.id))
        if await asyncio.to_thread(_unfinished_parts, manifest, self._stage.frozen(task.id)):
            raise PipelineFailed(
                f"task {task.id} is not complete, though Spark ended well; run the same "
                "command again, and it goes on"
            )
        publication = Publication(self._backend, task)
        seal, told = partial(publication.seal, total), partial(self._tell_note, task)
        sealed = await until_reachable(seal, told, asyncio.sleep)
        await asyncio.to_thread(self._stage.drop_rows)
        return sealed

    async def _refuse_changed(self, session: FanoutSession, manifest: StageManifest) -> None:
        found = await session(lambda spark: changed(spark, self._request, manifest))
        if found:
            raise TaskConflict(
                f"audience {self._request.audience!r} changed since it was frozen for task "
                f"{manifest.task.id}: {found}. Go on with what was frozen: the same command with "
                "--frozen; or fan out what it is now, as another task: with another --key"
            )

    @asynccontextmanager
    async def _rows_dropped_at_end(self) -> AsyncIterator[None]:
        """Drop the frozen rows if this finds that the task has ended, as nobody needs them then."""
        try:
            yield
        except (KeyEnded, Ended):
            await asyncio.to_thread(self._stage.drop_rows)
            raise

    def _is_whole(self, manifest: StageManifest) -> bool:
        """Return True if the manifest is of this request and its rows are still there."""
        return self._is_ours(manifest.task) and self._stage.frozen(manifest.task.id).rows.is_dir()

    async def _refuse_ended(self, task: Task) -> None:
        async with self._rows_dropped_at_end():
            refuse_ended(task)

    def _is_ours(self, task: Task) -> bool:
        return task.fingerprint.rpartition("-")[0] == self._fingerprint

    def _refuse_other(self, known: Task) -> None:
        if not self._is_ours(known):
            ours = replace(known, made_of=self._request.made_of(self._settings))
            raise other_content(ours, known, KEY_PARTS, "audience, rule, exclusion or task spec")

    def _refuse_lost(self, known: Task, manifest: StageManifest | None) -> None:
        if manifest is None or manifest.task.id != known.id:
            raise TaskConflict(
                f"task {known.id} (key {known.key!r}) was begun, but what was frozen for it is not "
                f"in {self._stage.path}: run this where it is (setting fanout_dir), or cancel the "
                "task and choose another --key"
            )

    @asynccontextmanager
    async def _progress_shown(self, task: Task, manifest: StageManifest) -> AsyncIterator[None]:
        """Report meanwhile how far the workers are, by the progress they have stored."""

        async def report() -> None:
            frozen, total = self._stage.frozen(task.id), manifest.counts.total
            while True:
                rows = await asyncio.to_thread(_durable_rows, manifest, frozen)
                self._tell(SubmitProgress(SubmitStage.PUBLISHING, rows, total, task.id))
                await asyncio.sleep(_LOOK_S)

        looking = asyncio.create_task(report(), name="fan-out progress")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _tell_note(self, task: Task, note: str) -> None:
        self._tell(SubmitProgress(SubmitStage.PUBLISHING, task_id=task.id, note=note))


def _unfinished_parts(manifest: StageManifest, frozen: FrozenRows) -> list[Part]:
    """Return the parts that are not known to be durable as a whole."""
    return [part for part, last in _last_seqs(manifest, frozen) if last < part.last_seq]


def _durable_rows(manifest: StageManifest, frozen: FrozenRows) -> int:
    return sum(last - part.first_seq + 1 for part, last in _last_seqs(manifest, frozen))


def _last_seqs(manifest: StageManifest, frozen: FrozenRows) -> Iterator[tuple[Part, int]]:
    """Yield each part with its last durable seq, or the seq before the part if none is durable."""
    starts, reached = frozen.starts(manifest.parts), frozen.reached(manifest.parts)
    for part in manifest.parts:
        found = reached.get(part.first_seq)
        yield part, max(starts[part.first_seq] - 1, found.seq if found else 0)


def parts_to_reconcile(
    manifest: StageManifest, frozen: FrozenRows, settings: Settings
) -> list[Part]:
    """Return the begun parts of which the broker may have forgotten what it has.

    These are parts that stopped long ago. The embedded store never forgets.
    """
    if settings.capabilities.remembers_sources:
        return []
    oldest_ms = (time.time() - settings.dedup_window_s) * 1000
    begun = frozen.reached(manifest.parts)
    return [
        part
        for part in manifest.parts
        if (found := begun.get(part.first_seq))
        and found.seq < part.last_seq
        and found.at_ms < oldest_ms
    ]


async def reconcile(
    backend: Backend, task: Task, manifest: StageManifest, frozen: FrozenRows, parts: Sequence[Part]
) -> None:
    """Make each of these parts continue behind what was published of it.

    Raises TaskConflict if nobody can know that any more.
    """
    stretches = [range(part.first_seq, part.last_seq + 1) for part in parts]
    found = await reached(backend, task, stretches)
    starts = frozen.starts(manifest.parts)
    for part, last in zip(parts, found, strict=True):
        starts[part.first_seq] = max(starts[part.first_seq], last + 1)
    frozen.store_starts(starts)
