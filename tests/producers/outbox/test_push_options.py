"""What a push may have of its own, as a row of a file has it: times, zone, order, collapse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.names import own_lane
from pushlane.core.task import Level, now_ms
from pushlane.producers import producer as producer_module
from pushlane.producers.outbox.buffer import Buffer
from pushlane.producers.outbox.store import Batch, ProducerOptions
from pushlane.producers.predecessors import bucket_of
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.lane_content import pushes_of, task_of

AT = datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)
AT_MS = 2_000_000_000_000
EARLIER_MS = 1_000_000_000_000


@pytest.fixture
def make(settings: Settings, tmp_path: Path) -> Callable[..., Producer]:
    """A producer of this store and the test's spool."""
    return lambda **options: Producer(
        "orders", spool=tmp_path / "spool", settings=settings, **options
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [(AT, AT_MS), (AT_MS, AT_MS), (str(AT_MS), AT_MS), (AT.isoformat(), AT_MS), (0, 0)],
)
def test_a_start_is_taken_as_people_write_it(make, settings, given: Any, kept: int) -> None:
    with make() as producer:
        producer.push("user", title="Paid", not_before_ms=given)

    assert [push.not_before_ms for push in pushes_of(settings, producer.task_id)] == [kept]


@pytest.mark.parametrize("given", ["10m", timedelta(minutes=10)])
def test_a_delay_is_from_now_on(make, settings, given: Any) -> None:
    before_ms = now_ms()
    with make() as producer:
        producer.push("user", title="Paid", not_before_ms=given, expires_at_ms="2h")

    [push] = pushes_of(settings, producer.task_id)
    assert before_ms <= push.not_before_ms - 600_000 <= now_ms()
    assert before_ms <= push.expires_at_ms - 7_200_000 <= now_ms()


def test_a_start_that_has_passed_is_at_once(make, settings) -> None:
    with make() as producer:
        producer.push("user", title="Paid", not_before_ms=EARLIER_MS)

    assert [push.not_before_ms for push in pushes_of(settings, producer.task_id)] == [EARLIER_MS]


QUIET = {"quiet": "22:00-08:00"}
ORDERED = {"ordered": True}
NAIVE = AT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("options", "given", "told"),
    [
        ({}, {"not_before_ms": NAIVE}, "not_before_ms 2033-05-18 03:33:20 has no time zone"),
        ({}, {"not_before_ms": 2_000_000_000}, "not_before_ms is 2000000000, which is not from"),
        ({}, {"not_before_ms": 1.5}, "not_before_ms 1.5 is not a time"),
        ({}, {"not_before_ms": True}, "not_before_ms True is not a time"),
        ({}, {"not_before_ms": "tomorrow"}, "not_before_ms 'tomorrow' is not a time"),
        ({}, {"not_before_ms": "2h", "expires_at_ms": "1h"}, "is not after its not_before_ms"),
        ({}, {"zone": "Europe/Berlin"}, r"zone .* without quiet hours; make the producer with"),
        (QUIET, {"zone": "Europe/Berln"}, r"unknown time zone 'Europe/Berln'.*Europe/Berlin"),
        (QUIET, {"zone": ""}, "unknown time zone ''"),
        (QUIET, {"zone": 1}, "zone of a push is of type int; give a text"),
        ({}, {"ordered_by": "a"}, r"make it with Producer\(\.\.\., ordered=True\)"),
        (ORDERED, {"ordered_by": " "}, "ordered_by of a push is blank; .* such as account-7"),
        (ORDERED, {"ordered_by": 7}, "ordered_by of a push is of type int; give a text"),
        (ORDERED, {"ordered_by": "k" * 2**20}, "ordered_by of a push has 1,048,576 characters"),
        (ORDERED, {"ordered_by": "\ud800"}, "ordered_by .* a character that UTF-8 cannot"),
        (ORDERED, {"collapse": "a"}, "collapse of a push contradicts ordered=True"),
        ({}, {"collapse": ""}, "collapse of a push is blank; .* such as score-7"),
        ({}, {"collapse": b"a"}, "collapse of a push is of type bytes; give a text"),
        ({}, {"collapse": "k" * 201}, "collapse of a push has 201 characters; .* 1 to 200"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_takes_no_seq(
    make, options: dict[str, Any], given: dict[str, Any], told: str
) -> None:
    with make(**options) as producer:
        with pytest.raises(BadInput, match=told) as raised:
            producer.push("user", title="Paid", **given)
        assert len(str(raised.value)) < 250
        assert producer.push("user", title="Paid").endswith("-1")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"quiet": "22-8"}, "quiet hours '22-8' are not of the form"),
        ({"quiet": 22}, "quiet is of type int; give a text"),
        ({"zone": "Europe/Berlin"}, "a time zone has no effect without quiet hours"),
        ({**QUIET, "zone": "Berlin"}, "unknown time zone 'Berlin'"),
        ({"max_attempts": 0}, "max_attempts 0 is not from 1 to 100"),
        ({"max_attempts": 2.5}, r"max_attempts 2\.5 is not a whole number"),
        ({"ordered": "yes"}, "ordered is of type str; give a bool"),
    ],
)
def test_an_option_of_the_task_that_cannot_be_is_refused_by_name(make, options, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        make(**options)


def test_its_task_has_quiet_hours_a_zone_and_attempts(make, settings) -> None:
    with make(quiet="22:00-8:00", zone="Europe/Berlin", max_attempts="3") as producer:
        producer.push("user", title="Paid", zone="Asia/Tokyo")
        producer.push("user", title="Paid")

    task = task_of(settings, producer.task_id)
    assert (task.quiet, task.zone, task.max_attempts) == ("22:00-08:00", "Europe/Berlin", 3)
    assert not task.ordered
    assert [push.zone for push in pushes_of(settings, task.id)] == ["Asia/Tokyo", ""]


@pytest.mark.parametrize(
    "other", [ORDERED, QUIET, {**QUIET, "zone": "UTC"}, {"max_attempts": 3}], ids=str
)
def test_other_options_begin_a_new_task_and_the_same_ones_do_not(make, other) -> None:
    with make() as first:
        pass
    with make(**other) as second:
        pass
    with make(**other) as third:
        pass

    assert first.task_id != second.task_id == third.task_id


@pytest.mark.parametrize("level", list(Level))
def test_its_pushes_that_wait_hold_up_no_other_task_of_a_lane(make, settings, level) -> None:
    with make(level=level) as producer:
        assert producer.flush()

    assert task_of(settings, producer.task_id).lane == own_lane(producer.task_id)


def afters(settings: Settings, task_id: str) -> list[int]:
    return [push.after_seq for push in pushes_of(settings, task_id)]


@pytest.mark.parametrize("spool", [True, False])
def test_each_push_names_the_one_before_it_of_its_key(settings, tmp_path, spool: bool) -> None:
    folder = tmp_path / "spool" if spool else None
    with Producer("orders", ordered=True, spool=folder, settings=settings) as producer:
        for key in ("a", "b", None, "a", " a ", "b"):
            producer.push("user", title="Paid", ordered_by=key)

    assert task_of(settings, producer.task_id).ordered
    assert afters(settings, producer.task_id) == [0, 0, 0, 1, 4, 2]


def test_the_next_producer_of_the_spool_goes_on_behind_it(make, settings) -> None:
    for _ in range(3):
        with make(ordered=True) as producer:
            producer.push("user", title="Paid", ordered_by="a")
            producer.push("user", title="Paid", ordered_by="b")

    assert afters(settings, producer.task_id) == [0, 0, 1, 2, 3, 4]


async def test_an_event_loop_has_the_same(make, settings) -> None:
    async with make(ordered=True) as producer:
        await producer.apush("user", title="Paid", ordered_by="a")
        await producer.apush("user", title="Paid", ordered_by="a", not_before_ms=AT)
        with pytest.raises(BadInput, match="ordered_by"):
            await producer.apush("user", title="Paid", ordered_by="")


def test_a_push_that_is_refused_is_no_predecessor(make, settings) -> None:
    with make(ordered=True) as producer:
        producer.push("user", title="Paid", ordered_by="a")
        with pytest.raises(BadInput):
            producer.push("user", data={"at": object()}, ordered_by="a")
        producer.push("user", title="Paid", ordered_by="a")

    assert afters(settings, producer.task_id) == [0, 1]


def test_a_batch_has_the_last_seqs_of_its_keys() -> None:
    now_s = 100.0
    buffer = Buffer(ProducerOptions(), 4, 1, lambda: None, clock_s=lambda: now_s)

    for key in ("a", "b", "", "a", "b"):
        buffer.put(lambda seq, after_seq: b"%d after %d" % (seq, after_seq), 0.0, key)
    [full] = buffer.cut()
    now_s += 1
    [due] = buffer.cut()

    a, b = bucket_of("a"), bucket_of("b")
    bodies = [b"1 after 0", b"2 after 0", b"3 after 0", b"4 after 1"]
    assert full == Batch(1, bodies, ((a, 4), (b, 2)))
    assert due == Batch(5, [b"5 after 2"], ((b, 5),))


def test_of_pushes_that_collapse_a_later_one_is_newer_though_the_clock_is_set_back(
    make, settings, monkeypatch
) -> None:
    clock_ms = [AT_MS]
    monkeypatch.setattr(producer_module, "now_ms", lambda: clock_ms[0])
    with make() as producer:
        for clock_ms[0] in (AT_MS, AT_MS - 3_600_000, AT_MS + 1):
            producer.push("user", title="Goal", collapse="score-7")
        clock_ms[0] = AT_MS - 1
        producer.push("user", title="Paid")

    submitted = [push.submitted_at_ms for push in pushes_of(settings, producer.task_id)]
    assert submitted == [AT_MS, AT_MS, AT_MS + 1, AT_MS - 1]
