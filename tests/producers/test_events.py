"""Events of pushes go into the log of receipts, or are refused with their line and why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.client.client import Client
from pushlane.core.errors import BadInput
from pushlane.core.task import Level, Task
from pushlane.model.receipt import ReceiptBatch, decode_receipts
from pushlane.producers.device_events import MOST_A_BODY, PushEvent, parse_event
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from tests.command import Command

AT_MS = 2_000_000_000_000


@pytest.fixture
def task(settings: Settings) -> Task:
    """A task of 1,000 pushes."""

    async def make() -> Task:
        async with connect(settings) as backend:
            given = Task(id="t1", level=Level.HIGH, lane="x", app="shop", quota=7, total=1_000)
            return await backend.registry.add(given)

    return asyncio.run(make())


def logged(settings: Settings) -> list[ReceiptBatch]:
    async def read() -> list[ReceiptBatch]:
        async with connect(settings) as backend:
            log = backend.receipts
            start = await log.first()
            end = await log.advance(start)
            return [
                decode_receipts(body)
                for partition in range(len(start))
                async for page in log.read(partition, start[partition], end[partition])
                for body in page
            ]

    return asyncio.run(read())


def record(settings: Settings, events: list[PushEvent]) -> int:
    async def work() -> int:
        async with Client(settings) as client:
            return await client.record_events(events)

    return asyncio.run(work())


def lines_file(folder: Path, *lines: object) -> Path:
    path = folder / "events.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_an_event_becomes_a_receipt_with_what_its_task_is(settings: Settings, task: Task) -> None:
    event = PushEvent("t1-5", "clicked", AT_MS, {"button": "buy"}, "trace")

    assert record(settings, [event]) == 1

    [batch] = logged(settings)
    assert (batch.tasks[0].task_id, batch.tasks[0].app, batch.level) == ("t1", "shop", ["high"])
    assert (batch.seq, batch.outcome, batch.attempt) == ([5], ["clicked"], [0])
    assert (batch.responded_at_ms, batch.quota, batch.weight) == ([AT_MS], [7], [6])
    assert (batch.attributes, batch.trace_ids) == ([{"button": "buy"}], ["trace"])
    assert batch.waits is None


def test_many_events_go_in_batches(settings: Settings, task: Task) -> None:
    events = [PushEvent(f"t1-{seq}", "displayed", AT_MS) for seq in range(1, 1_001)]

    assert record(settings, events) == 1_000

    batches = logged(settings)
    assert [len(batch) for batch in batches] == [MOST_A_BODY] * 2
    assert len({batch.batch_id for batch in batches}) == 2


def test_an_event_of_an_unknown_task_is_refused_by_name(settings: Settings, task: Task) -> None:
    with pytest.raises(UnknownTask, match="other"):
        record(settings, [PushEvent("other-1", "clicked", AT_MS)])


def test_an_event_of_a_push_that_never_was_is_refused(settings: Settings, task: Task) -> None:
    with pytest.raises(BadInput, match=r"task t1 has 1,000 pushes, so none is t1-1001"):
        record(settings, [PushEvent("t1-1001", "clicked", AT_MS)])


def test_without_receipts_there_are_no_events(settings: Settings, task: Task) -> None:
    off = settings.but(**{"receipts": "off"})

    with pytest.raises(BadInput, match="receipts=on"):
        record(off, [PushEvent("t1-1", "clicked", AT_MS)])


@pytest.mark.parametrize(
    ("at", "at_ms"),
    [
        ("2033-05-18T03:33:20Z", AT_MS),
        ("2033-05-18T05:33:20+02:00", AT_MS),
        (2_000_000_000, AT_MS),
        (2_000_000_000.5, AT_MS + 500),
        (AT_MS, AT_MS),
        (str(AT_MS // 1000), AT_MS),
    ],
)
def test_a_time_is_iso_or_unix_seconds_or_milliseconds(at: object, at_ms: int) -> None:
    line = json.dumps({"task_id": "t1", "seq": 3, "event": "clicked", "at": at})

    assert parse_event(line.encode()) == PushEvent("t1-3", "clicked", at_ms)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("clicked", "not one JSON object"),
        ('{"push_id": "t1", "event": "clicked", "at": 2000000000}', "push_id is not the id"),
        ('{"push_id": "t1-0", "event": "clicked", "at": 2000000000}', "push_id is not the id"),
        (
            f'{{"push_id": "t1-{"1" * 5000}", "event": "clicked", "at": 2000000000}}',
            "push_id is not the id",
        ),
        ('{"event": "clicked", "at": 2000000000}', "no push_id, nor task_id and seq"),
        ('{"push_id": "t1-1", "event": "clicke", "at": 2000000000}', "did you mean 'clicked'"),
        ('{"push_id": "t1-1", "event": "clicked"}', "no time in 'at'"),
        ('{"push_id": "t1-1", "event": "clicked", "at": 7}', "no time in 'at'"),
        (
            '{"push_id": "t1-1", "event": "clicked", "at": 2000000000, "attr": {}}',
            "no field 'attr'",
        ),
        (
            '{"push_id": "t1-1", "event": "clicked", "at": 2000000000, "attributes": {"a": 1}}',
            "map texts to texts",
        ),
    ],
)
def test_a_line_of_no_use_says_why(line: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_event(line.encode())


def test_the_command_records_a_file_and_says_how_many(
    settings: Settings, task: Task, tmp_path: Path
) -> None:
    file = lines_file(
        tmp_path,
        {"push_id": "t1-1", "event": "displayed", "at": AT_MS},
        {"task_id": "t1", "seq": 1, "event": "clicked", "at": AT_MS},
    )

    result = Command(tmp_path)("receipts", "add", file, "--data-dir", settings.data_dir)

    assert result.exit_code == 0
    assert "2 events recorded" in result.stdout
    assert sorted(batch.outcome for batch in logged(settings)) == [["displayed", "clicked"]]


def test_a_bad_line_stops_it_with_its_number_and_what_came_before(
    settings: Settings, task: Task, tmp_path: Path
) -> None:
    good = {"push_id": "t1-1", "event": "displayed", "at": AT_MS}
    file = lines_file(tmp_path, good, {**good, "push_id": "nobody-1"}, good)

    result = Command(tmp_path)("receipts", "add", file, "--data-dir", settings.data_dir)

    assert result.exit_code == 1
    assert f"{file}:2: " in result.stderr
    assert "Recorded before it: 1," in result.stderr
    assert sum(map(len, logged(settings))) == 1


def test_bad_lines_can_be_left_out(settings: Settings, task: Task, tmp_path: Path) -> None:
    good = {"push_id": "t1-1", "event": "displayed", "at": AT_MS}
    file = lines_file(tmp_path, good, {**good, "event": "seen"}, {**good, "push_id": "t1-2"})

    options = ("--bad-rows", "skip", "--json", "--data-dir", settings.data_dir)
    result = Command(tmp_path)("receipts", "add", file, *options)

    assert json.loads(result.stdout) == {"recorded": 2, "rejected": 1}
    assert f"{file}:2: unknown event 'seen'" in result.stderr
