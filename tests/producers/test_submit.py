"""Submitting a file: checked whole, published once, resumed by key, with trouble told clearly."""

import asyncio
import dataclasses
import gzip
import io
import json
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from threading import Thread

import msgspec
import pytest

from pushlane.backends import backend as backend_module
from pushlane.backends.backend import Backend, connect
from pushlane.backends.formats import set_min_format
from pushlane.backends.guard_ports import RecipientTurn
from pushlane.backends.ports import listed
from pushlane.core.errors import BadInput, TaskConflict, Unreachable
from pushlane.core.names import own_lane
from pushlane.core.publish import chunk_size
from pushlane.core.push import FORMAT, MAX_PUSH_BYTES, Kind, Push, decode, encode
from pushlane.core.task import Finished, Level, State, Task
from pushlane.model import task_changes
from pushlane.model.recipients import collapse_mark
from pushlane.producers.request import SubmitRequest, SubmitStage
from pushlane.producers.submit import submit
from pushlane.settings import Settings
from pushlane.util.errors import OversizedPush, StorageFull
from pushlane.wire import bodies_of


class Fixture:
    """An embedded backend in a folder of its own, and what a test asks of it."""

    def __init__(self, folder, backend):
        self.folder = folder
        self.backend = backend
        self.settings = Settings(data_dir=folder, batch=10)
        self.progress = []
        self.standard = self.file("standard.csv")

    def file(self, name="in.csv", text=None, rows=25):
        path = self.folder / name
        lines = [f"user{number}@x,Name{number}" for number in range(1, rows + 1)]
        path.write_text("\n".join(["recipient,name", *lines, ""]) if text is None else text)
        return path

    def request(self, source=None, **options):
        source = self.standard if source is None else source
        return replace(SubmitRequest(source=source, level=Level.HIGH, silent=True), **options)

    async def submit(self, source=None, backend=None, sleep=None, **options):
        request = self.request(source, **options)
        return await submit(
            backend or self.backend,
            self.settings,
            request,
            self.progress.append,
            sleep=sleep or no_wait,
        )

    async def pushes(self, lane):
        """All that is on the lane, in the order it is taken."""
        return [decode(body) for one in await self.messages(lane) for body in bodies_of(one)]

    async def sizes(self, lane):
        """How many pushes each message on the lane has."""
        return [len(list(bodies_of(one))) for one in await self.messages(lane)]

    async def messages(self, lane):
        """The bodies on the lane; a last push of ours marks the end."""
        end = encode(Push("end", 1, "end"))
        await self.backend.broker.publish(lane, [end])
        ready = asyncio.Event()
        reader = await self.backend.broker.read(lane, lambda _: ready.set())
        found = []
        try:
            while not found or found[-1] != end:
                taken = reader.take()
                if taken is None:
                    await ready.wait()
                    ready.clear()
                    continue
                found.append(taken.body)
                await self.backend.broker.ack([taken])
        finally:
            await reader.close()
        return found[:-1]

    async def tasks(self):
        return await listed(self.backend.registry)

    def notes(self):
        return [progress.note for progress in self.progress if progress.note]


async def no_wait(wait_s):
    await asyncio.sleep(0)


@asynccontextmanager
async def submitting(tmp_path):
    """A `Fixture` on an embedded backend."""
    async with connect(Settings(data_dir=tmp_path)) as backend:
        yield Fixture(tmp_path, backend)


@pytest.fixture
def small_chunks(monkeypatch):
    """Three of them in a thousand rows."""
    monkeypatch.setattr("pushlane.core.publish._CHUNK_ROWS", 400)


class Faulty:
    """A real port with one method wrapped."""

    def __init__(self, port, **wrapped):
        self._port = port
        for name, wrap in wrapped.items():
            setattr(self, name, wrap(getattr(port, name)))

    def __getattr__(self, name):
        return getattr(self._port, name)


def failing_first(times, error):
    """Fails so many calls, then passes them on."""

    def wrap(method):
        left = [times]

        async def call(*args, **options):
            if left[0] > 0:
                left[0] -= 1
                raise error
            return await method(*args, **options)

        return call

    return wrap


def failing_after(times, error):
    """Passes so many calls on, then fails all."""

    def wrap(method):
        left = [times]

        async def call(*args, **options):
            if left[0] == 0:
                raise error
            left[0] -= 1
            return await method(*args, **options)

        return call

    return wrap


def with_broker(backend, **wrapped):
    return dataclasses.replace(backend, broker=Faulty(backend.broker, **wrapped))


async def test_every_row_becomes_a_push_in_file_order(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(title="Hi {name}", body="{name}: {recipient}", data=("name",))
        pushes = await f.pushes(result.task.lane)

    assert [push.seq for push in pushes] == list(range(1, 26))
    first = pushes[0]
    assert (first.recipient, first.title, first.body) == ("user1@x", "Hi Name1", "Name1: user1@x")
    assert first.data == {"name": "Name1"}
    assert result.published == 25


async def test_the_task_runs_and_is_sealed_with_its_total(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(name="spring", quota=3, max_attempts=2)
        task, tasks = result.task, await f.tasks()

    assert tasks == [task]
    assert (task.state, task.total, task.quota, task.max_attempts) == (State.RUNNING, 25, 3, 2)
    assert task.lane == own_lane(task.id)


@pytest.mark.parametrize(
    ("file", "given", "name"),
    [
        ("sale.parquet.csv", {}, "sale.parquet"),
        ("sale.csv.gz", {}, "sale"),
        ("sale.csv", {"name": "spring"}, "spring"),
        (" sale .csv", {}, "sale"),
        ("sa\x1b[31mle.csv", {}, ""),
        (f"{'x' * 201}.csv", {}, ""),
    ],
)
async def test_a_task_has_the_name_of_its_file_unless_it_is_given_one(tmp_path, file, given, name):
    async with submitting(tmp_path) as f:
        result = await f.submit(f.file(file), **given)

    assert result.task.name == name


@pytest.mark.parametrize("source", [[{"recipient": "a"}], io.BytesIO(b"recipient\na\n")])
async def test_what_comes_from_no_file_has_no_name(tmp_path, source):
    async with submitting(tmp_path) as f:
        result = await f.submit(source, format="csv")

    assert result.task.name == ""


async def test_a_key_of_a_submit_without_a_name_is_the_same_with_one(tmp_path):
    async with submitting(tmp_path) as f:
        first = await f.submit(key="k", name="old")
        again = await f.submit(key="k")

    assert (again.already_done, again.task) == (True, first.task)


async def test_a_low_task_goes_to_a_pool_lane(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(level=Level.LOW)
        task, pushes = result.task, await f.pushes(result.task.lane)

    assert task.pooled
    assert {push.task_id for push in pushes} == {task.id}


async def test_chunks_are_whole_bundles_but_for_the_last(tmp_path):
    """Each bundle is numbered by its last push."""
    published = []

    def noting(publish):
        async def call(lane, bodies, *, source):
            opened = [[decode(body).seq for body in bodies_of(message)] for message in bodies]
            published.append(opened)
            assert list(source.numbers) == [seqs[-1] for seqs in opened]
            await publish(lane, bodies, source=source)

        return call

    async with submitting(tmp_path) as f:
        await f.submit(f.file(rows=5003), backend=with_broker(f.backend, publish=noting))

    def tens(first, end):
        return [list(range(seq, seq + 10)) for seq in range(first, end, 10)]

    assert published == [tens(1, 4091), [*tens(4091, 5001), [5001, 5002, 5003]]]


async def test_a_bundle_has_as_many_pushes_as_the_setting_says(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit()
        sizes = await f.sizes(result.task.lane)

    assert result.task.bundle == 10
    assert sizes == [10, 10, 5]


@pytest.mark.parametrize(("level", "most"), [(Level.HIGH, 512), (Level.LOW, 32)])
async def test_a_bundle_has_at_most_what_a_lane_allows(tmp_path, level, most):
    """On a lane that tasks share none waits long behind another's."""
    async with submitting(tmp_path) as f:
        f.settings = Settings(data_dir=tmp_path, batch=1_000)
        result = await f.submit(f.file(rows=1_100), level=level)
        sizes = await f.sizes(result.task.lane)

    assert result.task.bundle == most
    assert sizes == [most] * (1_100 // most) + [1_100 % most]


async def test_a_task_of_many_pushes_has_four_times_as_many_in_a_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr(backend_module, "MANY_PUSHES", 100)
    async with submitting(tmp_path) as f:
        few = (await f.submit(f.file(rows=99))).task
        many = (await f.submit(f.file(rows=100))).task
        pooled = (await f.submit(f.file(rows=100), level=Level.LOW)).task
        sizes = await f.sizes(many.lane)
        f.settings = Settings(data_dir=tmp_path, batch=1)
        alone = (await f.submit(f.file(rows=100))).task

    assert [task.bundle for task in (few, many, pooled, alone)] == [10, 40, 32, 1]
    assert sizes == [40, 40, 20]


@pytest.mark.parametrize("batch", [10, 48])
async def test_a_repeat_cuts_the_bundles_of_many_pushes_alike(tmp_path, monkeypatch, batch):
    monkeypatch.setattr(backend_module, "MANY_PUSHES", 100)
    async with submitting(tmp_path) as f:
        f.settings = Settings(data_dir=tmp_path, batch=batch)
        path, cut = f.file(rows=9_000), failing_after(1, StorageFull("full"))
        with pytest.raises(StorageFull):
            await f.submit(path, key="spring", backend=with_broker(f.backend, publish=cut))
        result = await f.submit(path, key="spring")
        sizes = await f.sizes(result.task.lane)

    most = 4 * batch
    assert sizes == [most] * (9_000 // most) + [9_000 % most] * bool(9_000 % most)


async def set_to_1(backend):
    await set_min_format(backend.documents, backend.presence, 1)


async def begin_before_there_were_formats(backend):
    await backend.registry.add(Task(id="older", level=Level.HIGH, lane="task-older"))


@pytest.mark.parametrize("prepare", [set_to_1, begin_before_there_were_formats])
async def test_pushes_go_alone_until_every_process_is_known_to_read_bundles(tmp_path, prepare):
    async with submitting(tmp_path) as f:
        await prepare(f.backend)
        alone = (await f.submit()).task
        messages = await f.messages(alone.lane)
        await set_min_format(f.backend.documents, f.backend.presence, FORMAT)
        bundled = (await f.submit()).task
        sizes = await f.sizes(bundled.lane)

    assert (alone.bundle, bundled.bundle) == (1, 10)
    assert [decode(message).seq for message in messages] == list(range(1, 26))
    assert sizes == [10, 10, 5]


async def test_the_lane_is_open_before_anything_is_published(tmp_path):
    calls = []

    def noting(name):
        def wrap(method):
            async def call(*args, **options):
                calls.append(name)
                return await method(*args, **options)

            return call

        return wrap

    async with submitting(tmp_path) as f:
        broker = Faulty(f.backend.broker, open_lane=noting("open"), publish=noting("publish"))
        registry = Faulty(f.backend.registry, add=noting("add"), change=noting("change"))
        await f.submit(backend=dataclasses.replace(f.backend, broker=broker, registry=registry))

    assert calls == ["add", "open", "change", "publish", "change"]


async def test_rows_in_memory_are_submitted_like_a_file(tmp_path):
    async with submitting(tmp_path) as f:
        rows = ({"recipient": f"u{number}", "n": number} for number in range(3))
        result = await f.submit(rows, title="{n}")
        assert [(push.recipient, push.title) for push in await f.pushes(result.task.lane)] == [
            ("u0", "0"),
            ("u1", "1"),
            ("u2", "2"),
        ]


async def test_a_stream_is_submitted_like_a_file(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(io.BytesIO(b"recipient\na@x\n"), format="csv")
        assert [push.recipient for push in await f.pushes(result.task.lane)] == ["a@x"]


async def test_a_named_pipe_is_submitted_like_a_stream(tmp_path):
    async with submitting(tmp_path) as f:
        pipe = f.folder / "pipe"
        os.mkfifo(pipe)
        writing = Thread(target=pipe.write_text, args=["recipient\na@x\n"])
        writing.start()
        result = await f.submit(pipe, format="csv")
        writing.join()
        assert [push.recipient for push in await f.pushes(result.task.lane)] == ["a@x"]


async def test_a_named_pipe_that_nobody_writes_to_is_given_up_when_told_so(tmp_path):
    async with submitting(tmp_path) as f:
        pipe = f.folder / "pipe"
        os.mkfifo(pipe)
        async with asyncio.timeout(20):
            submitting_it = asyncio.create_task(f.submit(pipe, format="csv"))
            while not f.progress:
                await asyncio.to_thread(int)
            submitting_it.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting_it
        assert await listed(f.backend.registry) == []


async def test_progress_names_the_task_and_its_total(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit()
        task, progress = result.task, f.progress

    assert [step.stage for step in progress] == [SubmitStage.CHECKING, SubmitStage.PUBLISHING]
    assert (progress[-1].rows, progress[-1].total, progress[-1].task_id) == (25, 25, task.id)


async def test_the_same_key_again_does_nothing(tmp_path):
    async with submitting(tmp_path) as f:
        first = await f.submit(key="spring")
        again = await f.submit(key="spring")
        pushes = await f.pushes(first.task.lane)

    assert again.already_done
    assert (again.task.id, again.published, again.resumed) == (first.task.id, 0, False)
    assert len(pushes) == 25


@pytest.mark.parametrize("published_chunks", [0, 1, 2])
async def test_a_submit_cut_off_goes_on_where_it_stopped(tmp_path, small_chunks, published_chunks):
    async with submitting(tmp_path) as f:
        cut = failing_after(published_chunks, StorageFull("full"))
        path = f.file(rows=1_000)
        with pytest.raises(StorageFull):
            await f.submit(path, key="spring", backend=with_broker(f.backend, publish=cut))
        before = await f.tasks()
        result = await f.submit(path, key="spring")
        pushes = await f.pushes(result.task.lane)

    assert [task.total for task in before] == [None]
    assert result.resumed
    assert result.task.id == before[0].id
    assert sorted(push.seq for push in pushes) == list(range(1, 1_001))


def forgetful(publish):
    """A broker that has forgotten every producer: whatever is published is kept."""

    async def call(lane, bodies, *, delay_s=0, source=None):
        await publish(lane, bodies, delay_s=delay_s)

    return call


@pytest.mark.parametrize("published_chunks", [0, 1, 2])
@pytest.mark.parametrize("finished", [0, 450])
async def test_a_submit_that_the_broker_has_forgotten_goes_on_behind_what_it_published(
    tmp_path, small_chunks, published_chunks, finished
):
    """Be it on the lane still or finished long ago."""
    chunk = chunk_size(10)
    async with submitting(tmp_path) as f:
        cut = failing_after(published_chunks, StorageFull("full"))
        path = f.file(rows=1_000)
        with pytest.raises(StorageFull):
            await f.submit(path, key="spring", backend=with_broker(f.backend, publish=cut))
        [task] = await f.tasks()
        seqs = range(1, finished + 1)
        await f.backend.registry.record([Finished(task.id, Kind.DELIVERED, seqs)])
        f.settings = Settings(broker="pulsar://unused", dedup_window_s=0.001, batch=10)
        backend = with_broker(f.backend, publish=forgetful)
        result = await f.submit(path, key="spring", backend=backend)
        pushes = await f.pushes(result.task.lane)
        notes = f.notes()

    gone = range(published_chunks * chunk + 1, finished + 1)
    assert sorted(push.seq for push in pushes) == [n for n in range(1, 1_001) if n not in gone]
    assert notes == ["the broker may have forgotten this submit: reading its lane"]


async def test_what_a_version_before_0_2_0_began_is_refused_and_stays(tmp_path):
    """It numbered messages in another way: what it published would be published again."""

    async def unsized(backend, task, settings, pushes):
        return task

    async with submitting(tmp_path) as f:
        path = f.file(rows=10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Backend, "sized", unsized)
            with pytest.raises(TaskConflict, match=r"before 0\.2\.0.*end its submit with release"):
                await f.submit(path, key="spring")
        [begun] = await f.tasks()
        with pytest.raises(TaskConflict, match=f"task {begun.id} was begun by a version"):
            await f.submit(path, key="spring")
        [task] = await f.tasks()

    assert (task.bundle, task.total, task.state) == (0, None, State.SUBMITTED)


async def test_a_submit_of_bundles_that_is_young_needs_no_look_at_its_lane(tmp_path, small_chunks):
    async with submitting(tmp_path) as f:
        cut = failing_after(1, StorageFull("full"))
        path = f.file(rows=1_000)
        with pytest.raises(StorageFull):
            await f.submit(path, key="spring", backend=with_broker(f.backend, publish=cut))
        f.settings = Settings(broker="pulsar://unused", batch=10)
        result = await f.submit(path, key="spring")
        sizes, notes = await f.sizes(result.task.lane), f.notes()

    assert sizes == [10] * 100
    assert notes == []


async def test_a_submit_of_which_nobody_knows_what_was_published_is_refused(tmp_path, monkeypatch):
    async def lost_since(_):
        return task_changes.now_ms() + 1

    async with submitting(tmp_path) as f:
        cut = failing_after(0, StorageFull("full"))
        with pytest.raises(StorageFull):
            await f.submit(key="spring", backend=with_broker(f.backend, publish=cut))
        f.settings = Settings(broker="pulsar://unused", dedup_window_s=0.001, batch=10)
        monkeypatch.setattr(type(f.backend.registry), "counted_since_ms", lost_since)
        with pytest.raises(TaskConflict, match=r"stopped too long ago.*another --key"):
            await f.submit(key="spring")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"title": "other"}, "title"),
        ({"quota": 2}, "quota"),
        ({"level": Level.LOW}, "level"),
        ({"delivery": "once"}, "delivery"),
        ({"ordered_by": "name"}, "ordered-by"),
        ({"dedupe": "recipient"}, "dedupe"),
        ({"collapse": "score"}, "collapse"),
        ({"attributes": ("name",)}, "attribute"),
        ({"trace_id": "name"}, "trace-id"),
        ({"retention_s": 5.0}, "retention"),
        ({"title": "x", "quota": 2, "app": "shop"}, "quota, app and title"),
    ],
)
async def test_a_key_with_other_options_is_refused_by_those_that_differ(tmp_path, change, named):
    async with submitting(tmp_path) as f:
        first = await f.submit(key="spring")
        said = f"used by task {first.task.id}, which differs in {named}; .* such as spring-2"
        with pytest.raises(TaskConflict, match=said):
            await f.submit(key="spring", **change)


async def test_a_key_with_other_rows_and_options_is_refused_by_both(tmp_path):
    async with submitting(tmp_path) as f:
        await f.submit(key="spring")
        with pytest.raises(TaskConflict, match="which differs in rows and title;"):
            await f.submit(f.file("other.csv", rows=24), key="spring", title="x")


async def test_of_a_task_of_an_older_version_all_that_may_differ_is_named(tmp_path):
    async with submitting(tmp_path) as f:
        first = await f.submit(key="spring")
        older = partial(msgspec.structs.replace, made_of=b"")
        await f.backend.registry.change(first.task.id, older)
        with pytest.raises(TaskConflict, match="with other rows or options"):
            await f.submit(key="spring", title="x")


async def test_the_key_of_a_cancelled_task_says_so_and_which_key_to_use(tmp_path):
    async with submitting(tmp_path) as f:
        task = (await f.submit(key="spring-2")).task
        await f.backend.registry.record([Finished(task.id, Kind.DELIVERED, [1, 2, 3])])
        await f.backend.registry.change(task.id, task_changes.cancel)

        said = f"{task.id}, which was cancelled: 3 of its 25 pushes .* those 3 again.* spring-3$"
        with pytest.raises(TaskConflict, match=said):
            await f.submit(key="spring-2")


async def test_the_key_of_an_expired_task_is_refused_too(tmp_path):
    async with submitting(tmp_path) as f:
        task = (await f.submit(key="spring")).task
        await f.backend.registry.change(task.id, task_changes.finish(State.EXPIRED))

        with pytest.raises(TaskConflict, match=r"has expired: 0 of its 25 .* spring-2$"):
            await f.submit(key="spring", title="another")


async def test_a_repeat_of_a_submit_tells_what_has_become_of_it(tmp_path):
    async with submitting(tmp_path) as f:
        task = (await f.submit(key="spring")).task
        await f.backend.registry.record([Finished(task.id, Kind.DEAD, [1, 2])])

        again = await f.submit(key="spring")

    assert (again.already_done, again.progress.finished, again.progress.dead) == (True, 2, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delivery": "twice"}, "unknown delivery 'twice'; use at_least_once, at_most_once, once"),
        ({"delivery": "once", "on_unknown": "drop"}, "unknown on_unknown 'drop'; use resend, bury"),
        ({"on_unknown": "bury"}, "on_unknown bury cannot be given with delivery at_least_once"),
    ],
)
async def test_a_promise_that_cannot_be_meant_is_refused(tmp_path, options, said):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match=said):
            await f.submit(**options)


async def test_a_key_with_other_rows_is_refused(tmp_path):
    async with submitting(tmp_path) as f:
        await f.submit(key="spring")
        with pytest.raises(TaskConflict, match="choose another key"):
            await f.submit(f.file(rows=26), key="spring")


async def test_a_later_expiry_of_the_same_submit_is_the_same_submit(tmp_path):
    async with submitting(tmp_path) as f:
        await f.submit(key="spring", expires_at_ms=task_changes.now_ms() + 60_000)
        again = await f.submit(key="spring", expires_at_ms=task_changes.now_ms() + 61_000)
        assert again.already_done


async def test_a_later_start_of_the_same_submit_is_the_same_submit(tmp_path):
    async with submitting(tmp_path) as f:
        start_ms = task_changes.now_ms() + 60_000
        first = await f.submit(key="spring", not_before_ms=start_ms)
        again = await f.submit(key="spring", not_before_ms=start_ms + 1_000)

    assert again.already_done
    assert first.task.not_before_ms == again.task.not_before_ms == start_ms


async def test_a_low_task_with_a_quota_is_on_a_lane_of_its_own(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(level=Level.LOW, quota=3)

    assert (result.task.pooled, result.task.quota) == (False, 3)


async def test_a_low_task_that_starts_later_is_on_a_lane_of_its_own(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(level=Level.LOW, not_before_ms=task_changes.now_ms() + 60_000)
        task, pushes = result.task, await f.pushes(own_lane(result.task.id))

    assert task.lane == own_lane(task.id)
    assert len(pushes) == 25


async def test_times_of_rows_travel_with_their_pushes(tmp_path):
    async with submitting(tmp_path) as f:
        text = (
            "recipient,at,until,tz\n"
            "a,2033-05-18T05:33:20,,Europe/Berlin\n"
            "b,,2033-05-18T03:33:20Z,\n"
        )
        columns = {"not_before_column": "at", "expires_column": "until", "zone_column": "tz"}
        result = await f.submit(
            f.file(text=text), level=Level.LOW, quiet="22:00-8:00", zone="Asia/Tokyo", **columns
        )
        task, (first, second) = result.task, await f.pushes(own_lane(result.task.id))

    at_ms = 2_000_000_000_000
    assert (first.not_before_ms, first.expires_at_ms, first.zone) == (at_ms, 0, "Europe/Berlin")
    assert (second.not_before_ms, second.expires_at_ms, second.zone) == (0, at_ms, "")
    assert (task.quiet, task.zone, task.pooled) == ("22:00-08:00", "Asia/Tokyo", False)


async def test_a_json_row_that_lacks_a_column_of_times_is_bad_and_null_is_no_time(tmp_path):
    async with submitting(tmp_path) as f:
        options = {"quiet": "22:00-08:00", "zone_column": "tz"}
        await f.submit(f.file("null.jsonl", '{"recipient":"a","tz":null}\n'), **options)
        with pytest.raises(BadInput, match=r"in\.jsonl:1 has no field 'tz'"):
            await f.submit(f.file("in.jsonl", '{"recipient":"a","zone":"UTC"}\n'), **options)


async def test_a_row_with_an_unknown_zone_names_row_column_and_value(tmp_path):
    async with submitting(tmp_path) as f:
        path = f.file(text="recipient,tz\na,UTC\nb,Europe/Berlim\n")
        with pytest.raises(BadInput, match=r"in\.csv:3 has .* 'Europe/Berlim' in 'tz'"):
            await f.submit(path, quiet="22:00-08:00", zone_column="tz")


async def test_without_a_key_each_submit_is_a_task_of_its_own(tmp_path):
    async with submitting(tmp_path) as f:
        first, second = (await f.submit()).task.id, (await f.submit()).task.id

    assert first != second


async def test_two_submits_of_one_key_at_once_the_second_is_refused(tmp_path):
    async with submitting(tmp_path) as f:
        publishing, go_on = asyncio.Event(), asyncio.Event()

        def held(publish):
            async def call(*args, **options):
                publishing.set()
                await go_on.wait()
                await publish(*args, **options)

            return call

        first = asyncio.create_task(
            f.submit(
                key="spring", backend=with_broker(f.backend, publish=held), sleep=asyncio.sleep
            )
        )
        await publishing.wait()
        with pytest.raises(TaskConflict, match="is under way"):
            await f.submit(key="spring")
        go_on.set()
        result, notes = await first, f.notes()

    assert result.task.total == 25
    assert any("waiting for it to let go" in note for note in notes)


async def test_a_submit_waits_for_the_lease_of_one_that_died(tmp_path):
    async with submitting(tmp_path) as f:
        dying = failing_after(0, StorageFull("full"))
        with pytest.raises(StorageFull):
            await f.submit(key="spring", backend=with_broker(f.backend, publish=dying))
        (task,) = await f.tasks()
        await f.backend.lease.acquire(f"submit-{task.id}", "dead", 60.0)

        async def its_time_ends(wait_s):
            await f.backend.lease.release(f"submit-{task.id}", "dead")

        result = await f.submit(key="spring", sleep=its_time_ends)

    assert (result.resumed, result.task.total) == (True, 25)


async def test_a_submit_whose_lease_is_lost_stops(tmp_path):
    async with submitting(tmp_path) as f:

        def taken_over(acquire):
            grants = [7]

            async def call(*args):
                return grants.pop() if grants else None

            return call

        def endless(publish):
            async def call(*args, **options):
                await asyncio.Event().wait()

            return call

        backend = dataclasses.replace(
            f.backend,
            broker=Faulty(f.backend.broker, publish=endless),
            lease=Faulty(f.backend.lease, acquire=taken_over),
        )
        with pytest.raises(TaskConflict, match="is under way"):
            await f.submit(backend=backend)


BAD = "recipient,name\na@x,Ann\n,Bo\nc@x\nd@x,Di\n"


async def test_one_bad_row_stops_all_before_a_task_is_made(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match=r"in\.csv:3 has no recipient.*Nothing was published"):
            await f.submit(f.file(text=BAD))
        assert await f.tasks() == []


async def test_bad_rows_are_skipped_and_listed_with_line_and_reason(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(f.file(text=BAD), bad_rows="skip")
        pushes = await f.pushes(result.task.lane)

    assert [(push.seq, push.recipient) for push in pushes] == [(1, "a@x"), (2, "d@x")]
    assert (result.published, result.rejected, result.task.total) == (2, 2, 2)
    assert result.rejects == tmp_path / "in.csv.rejects.jsonl"
    assert [json.loads(line) for line in result.rejects.read_text().splitlines()] == [
        {"line": 3, "reason": "has no recipient (text or a whole number) in 'recipient'"},
        {"line": 4, "reason": "has 1 column, the header has 2"},
    ]


async def test_no_rejects_file_is_made_when_no_row_is_bad(tmp_path):
    async with submitting(tmp_path) as f:
        result = await f.submit(bad_rows="skip", rejects=f.folder / "rejects")
        assert result.rejects is None
        assert not (f.folder / "rejects").exists()


async def test_an_ordered_push_knows_the_one_before_it_of_its_key(tmp_path):
    text = "recipient,user\na,x\nb,y\nc,x\nd,\n,x\ne,x\nf,y\n"

    async with submitting(tmp_path) as f:
        result = await f.submit(f.file(text=text), ordered_by="user", bad_rows="skip")
        task, pushes = result.task, await f.pushes(result.task.lane)

    assert task.ordered
    assert [(push.recipient, push.after_seq) for push in pushes] == [
        ("a", 0),
        ("b", 0),
        ("c", 1),
        ("d", 0),
        ("e", 3),
        ("f", 2),
    ]


async def test_an_ordered_submit_that_is_resumed_makes_the_same_pushes(tmp_path, small_chunks):
    async with submitting(tmp_path) as f:
        text = "recipient\n" + "".join(f"user{n % 7}\n" for n in range(1_000))
        path = f.file(text=text)
        cut = failing_after(1, StorageFull("full"))
        with pytest.raises(StorageFull):
            await f.submit(
                path, key="s", ordered_by="recipient", backend=with_broker(f.backend, publish=cut)
            )
        result = await f.submit(path, key="s", ordered_by="recipient")
        pushes = await f.pushes(result.task.lane)

    assert [push.after_seq for push in pushes] == [max(0, seq - 7) for seq in range(1, 1_001)]


async def test_the_collapse_key_of_a_row_is_a_template_and_a_newer_task_replaces_an_older(tmp_path):
    async with submitting(tmp_path) as f:
        older = (await f.submit(collapse="score-{name}")).task
        newer = (await f.submit(collapse="score-{name}")).task
        pushes = [await f.pushes(task.lane) for task in (older, newer)]
        marks = [[collapse_mark("default", push) for push in some[:2]] for some in pushes]
        collapse, turns = (
            pushes[0][0].collapse,
            [await f.backend.recipient_windows.enter(some, "o", 60) for some in marks],
        )

    assert collapse == "score-Name1"
    assert turns == [[RecipientTurn.OVER] * 2, [RecipientTurn.GO] * 2]


async def test_a_deduped_task_says_so(tmp_path):
    async with submitting(tmp_path) as f:
        assert (await f.submit(dedupe="recipient")).task.dedupe


async def test_an_order_by_a_column_that_is_not_there_is_refused(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match=r"no column 'nam', which is needed as key of.*name"):
            await f.submit(ordered_by="nam")


async def test_attributes_and_trace_ids_of_rows_travel_with_their_pushes(tmp_path):
    async with submitting(tmp_path) as f:
        text = "recipient,region,version,trace\na,eu,1.2,t-1\nb,,1.3,\n"
        columns = {"attributes": ("region", "version"), "trace_id": "trace"}
        result = await f.submit(f.file(text=text), **columns)
        first, second = await f.pushes(result.task.lane)

    assert (first.attributes, first.trace_id) == ({"region": "eu", "version": "1.2"}, "t-1")
    assert (second.attributes, second.trace_id) == ({"version": "1.3"}, "")
    assert first.data is None


async def test_an_attribute_over_its_bound_makes_a_bad_row(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match=r"an attribute 'region' of over 256 characters"):
            await f.submit(
                f.file(text=f"recipient,region\na,{'x' * 257}\n"), attributes=("region",)
            )


async def test_more_attributes_than_a_push_may_have_are_refused(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match=r"17 attributes; a push may have 16"):
            await f.submit(attributes=tuple(f"c{number}" for number in range(17)))


async def test_a_file_of_bad_rows_only_is_refused(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(
            BadInput, match=r"no row of .*in\.csv\.rejects\.jsonl says why for each"
        ):
            await f.submit(f.file(text="recipient,name\n,a\n,b\n"), bad_rows="skip")
        assert await f.tasks() == []


async def test_an_oversized_push_names_size_and_limit(tmp_path):
    async with submitting(tmp_path) as f:
        text = "recipient,name\n" + f"a@x,{'x' * MAX_PUSH_BYTES}\n"
        with pytest.raises(
            OversizedPush, match=rf":2 makes a push of 65\d\d\d bytes.*{MAX_PUSH_BYTES}"
        ):
            await f.submit(f.file(text=text), title="{name}")


async def test_text_that_is_not_utf8_is_a_bad_row_whose_content_is_not_shown(tmp_path):
    async with submitting(tmp_path) as f:
        path = f.folder / "in.csv"
        path.write_bytes(b"recipient,name\nanna@x,J\xfcrgen\n")
        with pytest.raises(BadInput, match=":2 holds text in 'name' that is not UTF-8") as caught:
            await f.submit(path, title="{name}")
        message = str(caught.value)

    assert "anna" not in message
    assert "rgen" not in message


async def test_a_json_row_without_a_template_field_names_row_and_field(tmp_path):
    async with submitting(tmp_path) as f:
        text = '{"recipient":"a@x","name":"Ann"}\n{"recipient":"b@x"}\n'
        with pytest.raises(BadInput, match=r"in\.jsonl:2 has no field 'name'"):
            await f.submit(f.file("in.jsonl", text), title="{name}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"recipient": "nmae"},
            "no column 'nmae'.*its columns are: recipient, name; add --recipient name",
        ),
        ({"title": "{nam}"}, "no column 'nam', .*title template.*recipient, name"),
        ({"data": ("age",)}, "no column 'age', .*data"),
        ({"quota": 0}, "quota 0 is not from 1"),
        ({"expires_at_ms": 1_000}, "s in the past"),
        ({"expires_at_ms": 10**17}, "expiry is after the year 3000"),
        ({"not_before_ms": 1_000}, "start is .* s in the past; leave it out"),
        ({"not_before_ms": 10**17}, "start is after the year 3000"),
        ({"not_before_ms": 3 * 10**12, "expires_at_ms": 2 * 10**12}, "expire .* before it starts"),
        ({"dedupe": "device"}, "unknown dedupe 'device'; use recipient, or leave it out"),
        ({"ordered_by": "name", "collapse": "x"}, "'name' and collapse 'x' contradict each other"),
        ({"collapse": "{nam}"}, "no column 'nam', .*collapse template.*recipient, name"),
        ({"not_before_column": "at"}, "no column 'at', .*start"),
        ({"expires_column": "until"}, "no column 'until', .*expiry"),
        ({"quiet": "22:00-08:00", "zone_column": "tz"}, "no column 'tz', .*time zone"),
        ({"quiet": "22:00-22:00"}, "never or always"),
        ({"quiet": "22:00-08:00", "zone": "europe/berlin"}, "did you mean 'Europe/Berlin'"),
        ({"zone": "Europe/Berlin"}, "has no effect without quiet hours"),
        ({"max_attempts": 0}, "max_attempts 0"),
        ({"max_attempts": 101}, "max_attempts 101"),
        ({"name": "x" * 201}, "name has 201 characters"),
        ({"name": "red\x1b[31m"}, "name .* control characters"),
        ({"key": " "}, "key ' ' .* space"),
        ({"app": ""}, "app is empty"),
        ({"format": "xml"}, "unknown format 'xml'; use csv, jsonl, parquet"),
        ({"source": io.BytesIO(b"x")}, "add --format"),
        ({"source": []}, "the rows given is empty"),
        ({"source": ["text"]}, "row 1 is a str, not a mapping"),
    ],
)
async def test_a_request_that_cannot_be_carried_out_says_why(tmp_path, options, message):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match=message):
            await f.submit(**options)
        assert await f.tasks() == []


async def test_a_first_line_that_holds_data_is_not_shown(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match="is the header line missing") as caught:
            await f.submit(f.file(text="anna@example.com,Anna\n"))
        assert "anna" not in str(caught.value).lower()


async def test_a_file_with_a_header_only_is_refused(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match="has no rows"):
            await f.submit(f.file(rows=0))


async def test_a_column_that_is_there_twice_is_refused(tmp_path):
    async with submitting(tmp_path) as f:
        with pytest.raises(BadInput, match="more than one column 'recipient'"):
            await f.submit(f.file(text="recipient,recipient\na,b\n"))


async def test_a_broker_lost_in_mid_publish_is_waited_for_and_told_once(tmp_path):
    waits = []

    async def wait(wait_s):
        waits.append(wait_s)
        await asyncio.sleep(0)

    async with submitting(tmp_path) as f:
        away = failing_first(3, Unreachable("pulsar://x does not answer"))
        result = await f.submit(backend=with_broker(f.backend, publish=away), sleep=wait)
        notes, pushes = f.notes(), await f.pushes(result.task.lane)

    assert notes == ["waiting: pulsar://x does not answer", "the service is back"]
    assert (result.task.total, len(pushes)) == (25, 25)


async def test_a_broker_that_is_away_at_the_start_is_an_error(tmp_path):
    async with submitting(tmp_path) as f:
        away = failing_after(0, Unreachable("pulsar://x does not answer"))
        with pytest.raises(Unreachable):
            await f.submit(backend=with_broker(f.backend, open_lane=away))


async def test_a_cancelled_submit_leaves_what_its_key_resumes(tmp_path):
    async with submitting(tmp_path) as f:
        publishing = asyncio.Event()

        def stuck(publish):
            async def call(*args, **options):
                publishing.set()
                await asyncio.Event().wait()

            return call

        backend = with_broker(f.backend, publish=stuck)
        cut = asyncio.create_task(f.submit(key="spring", backend=backend))
        await publishing.wait()
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        result = await f.submit(key="spring")

    assert (result.resumed, result.task.total) == (True, 25)


async def test_a_task_cancelled_meanwhile_is_published_no_further(tmp_path):
    async with submitting(tmp_path) as f:

        def then_cancel(publish):
            async def call(lane, bodies, **options):
                await publish(lane, bodies, **options)
                (task,) = await f.tasks()
                await f.backend.registry.change(task.id, task_changes.cancel)

            return call

        backend = with_broker(f.backend, publish=then_cancel)
        with pytest.raises(TaskConflict, match="is cancelled, after 4090 pushes"):
            await f.submit(f.file(rows=5000), backend=backend)


SALE = "recipient,name\nann@x,Jürgen\nbo@x,Zoë\n"


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (gzip.compress(SALE.encode()), {}),
        (SALE.encode("cp1252"), {"encoding": "cp1252"}),
        (gzip.compress(SALE.encode("utf-16")), {"encoding": "UTF-16"}),
    ],
    ids=["gzip", "cp1252", "gzip of UTF-16"],
)
async def test_the_same_text_packed_or_in_another_encoding_is_the_same_submit(
    tmp_path, content, more
):
    async with submitting(tmp_path) as f:
        first = await f.submit(f.file(text=SALE), key="sale", title="{name}")
        (other := tmp_path / "other.csv").write_bytes(content)
        again = await f.submit(other, key="sale", title="{name}", **more)
        stream = io.BytesIO(content)
        streamed = await f.submit(stream, key="sale", title="{name}", format="csv", **more)

    assert again.already_done
    assert again.task.id == first.task.id == streamed.task.id


async def test_the_same_bytes_between_other_delimiters_are_other_rows(tmp_path):
    async with submitting(tmp_path) as f:
        path = f.file(text="recipient,name;x\na,b;c\n")
        await f.submit(path, key="sale")
        with pytest.raises(TaskConflict, match="rows"):
            await f.submit(path, key="sale", delimiter=";", recipient="recipient,name")


async def test_what_has_no_delimiter_or_encoding_is_given_none(tmp_path):
    async with submitting(tmp_path) as f:
        for source, more, words in (
            (f.file("a.jsonl", "{}"), {"delimiter": ";"}, "--delimiter is for CSV, and this is js"),
            (f.file("a.parquet", "x"), {"delimiter": ";"}, "for CSV, and this is parquet; leave"),
            (f.file("a.parquet", "x"), {"encoding": "utf-8"}, "for CSV and JSON Lines, and this i"),
            ([{"recipient": "a"}], {"encoding": "cp1252"}, "and this is rows in memory; leave it"),
        ):
            with pytest.raises(BadInput, match=words):
                await f.submit(source, **more)
        assert await f.tasks() == []


async def test_a_packed_file_that_changes_meanwhile_cancels_the_task(tmp_path):
    async with submitting(tmp_path) as f:
        path = tmp_path / "sale.csv.gz"
        path.write_bytes(gzip.compress(SALE.encode()))

        def then_cut_off(publish):
            async def call(*args, **options):
                await publish(*args, **options)
                path.write_bytes(path.read_bytes()[:-4])

            return call

        backend = with_broker(f.backend, publish=then_cut_off)
        with pytest.raises(BadInput, match=r"changed while it was submitted.*is cancelled; 2 of"):
            await f.submit(path, backend=backend)


async def test_a_file_that_changes_meanwhile_cancels_the_task(tmp_path):
    async with submitting(tmp_path) as f:
        path = f.standard

        def then_change(publish):
            async def call(*args, **options):
                await publish(*args, **options)
                path.write_text(path.read_text() + "late@x,Late\n")

            return call

        backend = with_broker(f.backend, publish=then_change)
        with pytest.raises(BadInput, match=r"changed while it was submitted.*is cancelled; 25 of"):
            await f.submit(path, backend=backend)
        (task,) = await f.tasks()

    assert (task.state, task.total) == (State.CANCELLED, None)
