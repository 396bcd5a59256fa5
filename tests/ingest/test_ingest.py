"""Records become pushes, each once, whoever reads them and however often."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from pushlane import Settings
from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_PUSH_BYTES
from pushlane.ingest import ingest, lane
from pushlane.ingest.bad_records import BadRecords
from pushlane.ingest.ingest import OnGap
from pushlane.ingest.lane import Lost, PartitionLane
from pushlane.ingest.mapping import compiled
from pushlane.ingest.position import KIND
from pushlane.ingest.record import Record
from pushlane.ingest.source import SourceChanged
from pushlane.model.documents import Document, DocumentStore
from pushlane.model.names import submit_lease
from pushlane.producers.producer import Content
from tests.core.support import MemorySink, Wrapped, drain, until
from tests.ingest.sources import STREAM, Log, pushes, reading, recipients, tasks, value


def devices(first: int, last: int) -> list[bytes]:
    return [value(f"d{n}") for n in range(first, last)]


async def test_each_record_is_a_push_and_what_is_done_is_committed(settings: Settings) -> None:
    log = Log()
    log.add("0", *devices(0, 1_000))
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()

        [task] = await tasks(backend)
        assert await recipients(backend) == [f"d{n}" for n in range(1_000)]
        assert (task.state, task.total, task.is_fed) == ("running", None, True)
        assert reader.source.committed == {"0": 1_000}


SPAN = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.mark.parametrize(
    ("headers", "own", "trace_id"),
    [
        ([("traceparent", SPAN.encode())], "", SPAN),
        ([("traceparent", SPAN.encode())], "order 7", "order 7"),
        ([("traceparent", b"none"), ("traceparent", SPAN.encode())], "", SPAN),
        ([("traceparent", None)], "", ""),
        ([("traceparent", SPAN.upper().encode())], "", ""),
        ([("traceparent", SPAN.replace("a", "0").encode())], "", ""),
        ([("traceparent", b"ff" + SPAN.encode()[2:])], "", ""),
        ([("traceparent", b"\xff" * 2_048)], "", ""),
    ],
)
async def test_a_record_goes_on_in_the_trace_of_its_header(
    settings: Settings, headers: list[tuple[str, bytes | None]], own: str, trace_id: str
) -> None:
    log = Log()
    log.of["0"] = [Record("0", 0, value("a", trace=own), headers=headers)]
    mapping = compiled({"recipient": "device", "trace_id": "trace"}, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()

        assert [push.trace_id for push in await pushes(backend)] == [trace_id]


@pytest.mark.parametrize(
    ("own", "states", "kept"),
    [
        ("", [b"a=1", b"b=2"], "a=1,b=2"),
        ("", [None], ""),
        ("", [b"\xff=1"], ""),
        ("order 7", [b"a=1"], ""),
    ],
)
async def test_a_record_s_tracestate_goes_along(
    settings: Settings, own: str, states: list[bytes | None], kept: str
) -> None:
    log, named = Log(), [("tracestate", one) for one in states]
    headers = [("traceparent", SPAN.encode()), *named]
    log.of["0"] = [Record("0", 0, value("a", trace=own), headers=headers)]
    mapping = compiled({"recipient": "device", "trace_id": "trace"}, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()

        assert [(one.trace_id, one.tracestate) for one in await pushes(backend)] == [
            (own or SPAN, kept)
        ]


async def test_a_header_that_a_push_has_no_room_for_is_left_out(settings: Settings) -> None:
    log = Log()
    log.of["0"] = [
        Record("0", n, value("a", text="x" * size), headers=[("traceparent", SPAN.encode())])
        for n, size in enumerate((MAX_PUSH_BYTES - 200, MAX_PUSH_BYTES - 80))
    ]
    mapping = compiled({"recipient": "device", "body": "text"}, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()

        assert [push.trace_id for push in await pushes(backend)] == [SPAN, ""]


async def test_the_next_process_goes_on_with_the_same_task(settings: Settings) -> None:
    log = Log()
    log.add("0", *devices(0, 100), step=3)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
        log.add("0", *devices(100, 150))
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()

        found = await pushes(backend)
        assert [push.recipient for push in found] == [f"d{n}" for n in range(150)]
        assert [push.seq for push in found][:3] == [1, 4, 7]
        assert len(await tasks(backend)) == 1


async def test_a_kill_puts_nothing_on_the_lane_twice(settings: Settings) -> None:
    log = Log()
    log.add("0", *devices(0, 700))
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
            await reader.kill(backend)  # nothing was kept or committed but the task's beginning
        log.add("0", *devices(700, 800))
        async with reading(backend, settings, log, "0") as reader:
            started_at = reader.source.at["0"]
            await reader.read()

        assert started_at == 0
        assert await recipients(backend) == [f"d{n}" for n in range(800)]
        assert reader.ingest.counted.repeated == 700


@pytest.mark.parametrize("why", ["another mapping", "a day is over", "other options"])
async def test_a_kill_puts_nothing_on_the_lane_twice_where_another_task_follows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    log = Log()
    log.add("0", *devices(0, 700))
    other: dict[str, Any] = {"stream": STREAM}
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
            await reader.kill(backend)
        log.add("0", *devices(700, 800))
        if why == "another mapping":
            made = compiled({"recipient": "device", "title": {"value": "Hi"}}, "other")
            other = {"mapping": made, "change": True}
        elif why == "a day is over":
            monkeypatch.setattr(lane, "LONGEST_S", 0.0)
        else:
            other = {"stream": msgspec.structs.replace(STREAM, max_attempts=7)}
        async with reading(backend, settings, log, "0", **other) as reader:
            await reader.read()

        assert await recipients(backend) == [f"d{n}" for n in range(800)]
        first = (await tasks(backend))[-1]
        assert (first.total, first.highest_seq) == (700, 700)


async def test_what_is_left_out_takes_a_number_and_no_push(
    settings: Settings, tmp_path: Path
) -> None:
    log = Log()
    log.add("0", value("a", paid=True), value("b"), None, b"no json", value("c", paid=True))
    mapping = compiled({"recipient": "device", "when": {"paid": True}}, "one")
    bad = tmp_path / "bad.jsonl"
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping, bad=bad) as reader:
            await reader.read()
            [held] = reader.ingest.held.values()
            await held.partition.lane.seal()

        [task] = await tasks(backend)
        found = await pushes(backend)
        assert [(push.recipient, push.seq) for push in found] == [("a", 1), ("c", 5)]
        assert (task.total, task.highest_seq) == (2, 5)
        [line] = map(msgspec.json.decode, bad.read_bytes().splitlines())
        assert (line["partition"], line["offset"], line["reason"]) == ("0", 3, "is not JSON")
        assert reader.source.committed == {"0": 5}


async def test_a_bad_record_stops_it_unless_there_is_a_file(settings: Settings) -> None:
    log = Log()
    log.add("0", value("a"), b"[]")
    async with connect(settings) as backend:
        with pytest.raises(BadRecords, match=r"record 1 of partition 0 .* is a list, not a JSON"):
            async with reading(backend, settings, log, "0") as reader:
                await reader.read()
        assert reader.source.committed.get("0", 0) <= 1


async def test_what_is_behind_in_progress_and_bad_is_kept_for_who_looks(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.01)
    log = Log()
    log.add("0", *devices(0, 10), b"[]")
    bad = tmp_path / "bad.jsonl"
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", bad=bad) as reader:
            await reader.read()
            log.add("0", *devices(10, 15))
            kept = reader.ingest.held["0"].partition.lane.kept
            await until(lambda: (found := kept.position) and found.seen and found.seen.end == 16)
            behind = kept.position
        async with reading(backend, settings, log, "0", bad=bad) as reader:
            log.add("0", b"5")
            await reader.read()
            kept = reader.ingest.held["0"].partition.lane.kept
            await until(lambda: (found := kept.position) and found.seen and found.seen.bad == 2)

    assert behind is not None
    assert behind.seen is not None
    assert (behind.at, behind.seen.bad, behind.seen.in_progress) == (11, 1, 0)
    assert behind.seen.per_s > 0


async def test_who_had_a_partition_long_ago_knows_an_old_end_of_it(settings: Settings) -> None:
    log = Log()
    log.add("0", *devices(0, 5))
    async with (
        connect(settings) as backend,
        reading(backend, settings, log, "0") as frozen,
    ):
        await frozen.read()
        lane = frozen.ingest.held["0"].partition.lane
        await backend.lease.release(submit_lease(lane.position.task_id), lane.holder)
        log.add("0", *devices(5, 20))
        async with reading(backend, settings, log, "0") as other:
            await other.read()
        held = frozen.ingest.held["0"]
        frozen.ingest._again_soon(held.given, held.partition, Lost("gone"))
        await until(lambda: frozen.ingest.held["0"].partition is not held.partition)

        assert frozen.ingest.held["0"].partition.lane.at == 20
        assert not frozen.running.done()


async def test_another_source_of_the_name_stops_it(settings: Settings) -> None:
    log = Log()
    log.add("0", *devices(0, 10))
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
        anew = Log("second")
        anew.add("0", *devices(0, 3))
        with pytest.raises(SourceChanged, match="recreated after it was read up to 10"):
            async with reading(backend, settings, anew, "0"):
                pass
        cut = Log()
        cut.add("0", *devices(0, 3))
        with pytest.raises(SourceChanged, match="ends at 3, and was read up to 10"):
            async with reading(backend, settings, cut, "0"):
                pass


async def test_records_that_are_gone_stop_it_unless_they_may_be(settings: Settings) -> None:
    log = Log()
    log.add("0", *devices(0, 10))
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
        log.add("0", *devices(10, 20))
        log.low["0"] = 15
        with pytest.raises(BadInput, match="the 5 records between are gone"):
            async with reading(backend, settings, log, "0"):
                pass
        async with reading(backend, settings, log, "0", on_gap=OnGap.GO) as reader:
            reader.source.at["0"] = 15  # where the source has the first one
            await reader.read()

        assert await recipients(backend) == [f"d{n}" for n in (*range(10), *range(15, 20))]


BY_ORDER = {"recipient": "device", "ordered_by": "order"}


async def test_pushes_of_one_key_go_one_after_another_over_a_kill(settings: Settings) -> None:
    log = Log()
    log.add("0", value("a", order="x"), value("b", order="y"), value("c", order="x"))
    mapping = compiled(BY_ORDER, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()
        log.add("0", value("d", order="y"), value("e", order=7))
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()
            await reader.kill(backend)
        log.add("0", value("f", order="x"), value("g", order="7"), value("h", order="y"))
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()

        [task] = await tasks(backend)
        after = {push.recipient: push.after_seq for push in await pushes(backend)}
        assert task.ordered
        assert after == {"a": 0, "b": 0, "c": 1, "d": 2, "e": 0, "f": 3, "g": 5, "h": 4}


async def test_a_kill_leaves_no_push_that_waits_for_a_bad_record(
    settings: Settings, tmp_path: Path
) -> None:
    log = Log()
    log.add("0", value("a", order="x"), value(" ", order="x"), value("b", order="x"))
    options: dict[str, Any] = {"mapping": compiled(BY_ORDER, "one"), "bad": tmp_path / "bad.jsonl"}
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", **options) as reader:
            await reader.read()
            await reader.kill(backend)
        log.add("0", value("c", order="x"))
        async with reading(backend, settings, log, "0", **options) as reader:
            await reader.read()
            [held] = reader.ingest.held.values()
            await held.partition.lane.seal()

        [task] = await tasks(backend)
        found = await pushes(backend)
        assert [(push.seq, push.after_seq) for push in found] == [(1, 0), (3, 1), (4, 3)]
        assert task.total == 3


async def test_what_is_kept_of_an_order_is_on_the_lane(settings: Settings) -> None:
    log = Log()
    log.add("0", value("a", order="x"))
    mapping = compiled(BY_ORDER, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()
            lane = reader.ingest.held["0"].partition.lane
            await lane.ready(1)
            content = mapping.of(Record("0", 1, value("b", order="x")))
            assert isinstance(content, Content)
            lane.encoded(1, content, 0)
            await lane.save()
            await reader.kill(backend)
        log.add("0", value("b", order="x"), value("c", order="x"))
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()

        assert [push.after_seq for push in await pushes(backend)] == [0, 1, 2]


async def test_another_task_begins_another_order(settings: Settings) -> None:
    log = Log()
    log.add("0", value("a", order="x"))
    mapping = compiled(BY_ORDER, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=mapping) as reader:
            await reader.read()
            [held] = reader.ingest.held.values()
            await held.partition.lane.seal()
            log.add("0", value("b", order="x"), value("c", order="x"))
            await reader.read()

        found = await pushes(backend)
        assert [(push.recipient, push.seq, push.after_seq) for push in found] == [
            ("a", 1, 0),
            ("b", 1, 0),
            ("c", 2, 1),
        ]


class CountingDocuments(Wrapped):
    """Counts the questions for positions, and how many positions are put at a time at most."""

    def __init__(self, real: DocumentStore) -> None:
        super().__init__(real)
        self.asked = self.now = self.most = 0

    async def get(self, kind: str, name: str) -> Document | None:
        self.asked += kind.startswith(KIND)
        return cast("Document | None", await self._real.get(kind, name))

    async def list(self, kind: str) -> list[Document]:
        self.asked += kind.startswith(KIND)
        return cast("list[Document]", await self._real.list(kind))

    async def put(self, kind: str, name: str, body: bytes, expected: int | None) -> int | None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return cast("int | None", await self._real.put(kind, name, body, expected))
        finally:
            self.now -= 1


async def test_many_partitions_are_taken_over_and_let_go_of_together(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 3_600.0)
    log, names = Log(), [str(n) for n in range(30)]
    asked, at_once = [], []
    async with connect(settings) as real:
        documents = CountingDocuments(real.documents)
        backend = replace(real, documents=documents)
        for some in (names[:1], names, names):  # one, new ones, and known ones
            for name in some:
                log.add(name, *devices(0, 3))
            async with reading(backend, settings, log) as reader:
                documents.asked = 0
                await reader.source.give(*some)
                asked.append(documents.asked)
                await reader.read()
                documents.most = 0
                await reader.source.take_away(*some)
                at_once.append(documents.most)

    assert asked == [4, 4, 4]
    assert at_once == [1, 30, 30]
    assert reader.source.committed == {name: log.end(name) for name in names}


@pytest.mark.parametrize("is_told", [True, False], ids=["let go", "lost"])
async def test_a_partition_that_is_lost_as_it_is_taken_away_does_not_come_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    monkeypatch.setattr(ingest, "_AGAIN_S", 0.0)
    goes_on = asyncio.Event()

    async def lost(_: object) -> None:
        with suppress(asyncio.CancelledError):
            await goes_on.wait()
        raise Lost("partition 0 is read by another process")

    log = Log()
    log.add("0", *devices(0, 5))
    async with connect(settings) as backend, reading(backend, settings, log) as reader:
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLane, "open", lost)
            await reader.source.give("0")
            working = reader.ingest.held["0"].running
            await asyncio.sleep(0)
            if is_told:
                taking = asyncio.create_task(reader.source.take_away("0"))
                await asyncio.sleep(0)
                goes_on.set()
                await taking
            else:
                reader.ingest.lost(["0"])
            await asyncio.wait({working})
        await until(lambda: not any(t.get_name() == "again 0" for t in asyncio.all_tasks()))

        assert reader.ingest.held == {}


async def test_positions_and_leases_are_kept_while_a_commit_takes_long(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.01)
    monkeypatch.setattr(ingest, "HELD_S", 0.0)
    commits = asyncio.Event()
    renewed: list[bool] = []
    renew = PartitionLane.renew

    async def long(_: object) -> None:
        commits.set()
        await asyncio.Event().wait()

    async def noted(lane: PartitionLane) -> None:
        renewed.append(commits.is_set())
        await renew(lane)

    log = Log()
    log.add("0", *devices(0, 5))
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:
        monkeypatch.setattr(reader.source, "commit", long)
        monkeypatch.setattr(PartitionLane, "renew", noted)
        await commits.wait()
        await reader.read()
        kept = reader.ingest.held["0"].partition.lane.kept

        await until(lambda: (found := kept.position) and found.at == 5 and any(renewed))


async def test_a_source_that_was_made_anew_ends_it_by_the_next_commit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.01)

    async def changed(_: object) -> None:
        raise SourceChanged("log was recreated")

    log = Log()
    log.add("0", *devices(0, 5))
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:
        monkeypatch.setattr(reader.source, "commit", changed)
        with pytest.raises(SourceChanged, match="log was recreated"):
            await reader.running


async def test_of_the_records_with_one_key_one_is_sent_whatever_partition_has_them(
    settings: Settings, tmp_path: Path
) -> None:
    log, bad, sink = Log(), tmp_path / "bad.jsonl", MemorySink()
    log.add("0", value("a", id="e1"), value("b", id="e2"), value("a", id="e1"))
    log.add(
        "1", value("b", id="e2"), value("c", id=""), value("c", id=""), value("d", id="e" * 201)
    )
    mapping = compiled({"recipient": "device", "key": "id"}, "one")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", "1", mapping=mapping, bad=bad) as reader:
            await reader.read()
            for held in reader.ingest.held.values():
                await held.partition.lane.seal()
        await drain(backend, sink, settings)

        dropped = [
            one.dropped
            for one in await backend.registry.progress([task.id for task in await tasks(backend)])
        ]
    [line] = map(msgspec.json.decode, bad.read_bytes().splitlines())
    assert sorted(one.push.recipient for one in sink.received) == ["a", "b", "c", "c"]
    assert sum(dropped) == 2
    assert line["reason"].startswith("is not a push: key of a push has 201 characters")
