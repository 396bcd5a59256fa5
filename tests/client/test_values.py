"""Values as people write them, wherever the Python API takes them: one table for all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pushlane import (
    BadInput,
    Client,
    MemoryBackend,
    Producer,
    ProducerOptions,
    Settings,
    SubmitRequest,
)
from pushlane.core.task import now_ms
from pushlane.model.limits import Limit

AT = datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)
AT_MS = 2_000_000_000_000


def request(**given: Any) -> SubmitRequest:
    return SubmitRequest(
        **{"source": [{"recipient": "ada"}], "level": "high", "title": "Hi"} | given
    )


def kept(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(request(**{name: value}), name)


def of_producer(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(ProducerOptions(**{name: value}), name)


TAKEN: list[tuple[Callable[[Any], Any], Any, Any]] = [
    (kept("not_before_ms"), AT, AT_MS),
    (kept("not_before_ms"), AT.isoformat(), AT_MS),
    (kept("not_before_ms"), AT_MS, AT_MS),
    (kept("expires_at_ms"), AT.astimezone(), AT_MS),
    (kept("retention_s"), timedelta(hours=2), 7200),
    (kept("retention_s"), "2h", 7200),
    (kept("retention_s"), 7200, 7200),
    (kept("rate_per_s"), "600/min", 10.0),
    (kept("rate_per_s"), 10, 10),
    (kept("quota"), 3.0, 3),
    (kept("sink"), "fcm,sms", ("fcm", "sms")),
    (kept("level"), "HIGH", "high"),
    (kept("stop_if_dead"), "5%", "5%"),
    (kept("source"), "sale.csv", Path("sale.csv")),
    (kept("payload"), "payload.json", Path("payload.json")),
    (kept("rejects"), "bad.jsonl", Path("bad.jsonl")),
    (of_producer("linger_s"), timedelta(milliseconds=5), 0.005),
    (of_producer("max_block_s"), "2s", 2),
    (of_producer("max_batch"), "100", 100),
]


@pytest.mark.parametrize(("take", "value", "is_kept"), TAKEN)
def test_what_people_write_is_taken(take: Any, value: Any, is_kept: Any) -> None:
    assert take(value) == is_kept


@pytest.mark.parametrize(("value", "length_s"), [("2h", 7200), (timedelta(days=1), 86_400)])
@pytest.mark.parametrize("name", ["not_before_ms", "expires_at_ms"])
def test_a_length_is_from_now_on(name: str, value: Any, length_s: int) -> None:
    before = now_ms()

    assert before <= kept(name)(value) - 1000 * length_s <= now_ms()


def test_a_time_of_day_is_the_next_one() -> None:
    at_ms = kept("not_before_ms")("21:00")

    assert datetime.fromtimestamp(at_ms / 1000).strftime("%H:%M") == "21:00"
    assert 0 <= at_ms - now_ms() <= 25 * 3_600_000


NAIVE = AT.replace(tzinfo=None)
REFUSED: list[tuple[Callable[[Any], Any], Any, str]] = [
    (kept("not_before_ms"), NAIVE, "not_before_ms 2033-05-18 03:33:20 has no time zone; give it"),
    (kept("expires_at_ms"), NAIVE, "expires_at_ms 2033-05-18 03:33:20 has no time zone; give it"),
    (kept("expires_at_ms"), AT.date(), r"expires_at_ms datetime.date\(2033, 5, 18\) is not a time"),
    (kept("quota"), 5 / 2, "quota 2.5 is not a whole number"),
    (kept("retention_s"), "soon", "retention_s 'soon' is not a duration"),
    (kept("rate_per_s"), "100/year", "rate '100/year' is not a rate"),
    (
        kept("payload"),
        '{"*": {"to": "ada"}}',
        "^payload is JSON as a text; give a mapping",
    ),
    (kept("payload"), 5, "payload is of type int; give a mapping by sink, or the path of a file"),
    (of_producer("linger_s"), "soon", "linger_s 'soon' of a producer is not a duration"),
    (of_producer("max_batch"), 2.5, "max_batch 2.5 of a producer is not a whole number"),
]


@pytest.mark.parametrize(("take", "value", "told"), REFUSED)
def test_what_has_no_one_meaning_is_refused(take: Any, value: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        take(value)


async def test_operations_take_the_same() -> None:
    async with Client(Settings(), connect=MemoryBackend().connect) as client:
        task = (await client.submit(request(retention_s="1d"))).task
        for since in (timedelta(hours=1), "1h", datetime.now(UTC) - timedelta(hours=1)):
            assert (await client.replay(task.id, since)).published == 1
        with pytest.raises(BadInput, match="since_ms 2033-05-18 03:33:20 has no time zone"):
            await client.replay(task.id, NAIVE)
        limited = await client.set_limit("app/a", rate_per_s="100/s")
        assert limited.limit == Limit(rate_per_s=100)
        with pytest.raises(BadInput, match=r"quota 2\.5 is not a whole number"):
            await client.set_quota(task.id, 5 / 2)  # type: ignore[arg-type]


def test_a_producer_takes_the_same(tmp_path: Path) -> None:
    memory = MemoryBackend()
    with Producer("a", spool=str(tmp_path / "spool"), connect=memory.connect) as producer:
        for expiry in (AT, timedelta(hours=1), "1h", AT_MS):
            producer.push("ada", title="Hi", expires_at_ms=expiry)
        for start in (AT, timedelta(hours=1), "1h", "21:00", AT_MS):
            producer.push("ada", title="Hi", not_before_ms=start)
        for name in ("expires_at_ms", "not_before_ms"):
            with pytest.raises(BadInput, match=f"{name} 2033-05-18 03:33:20 has no time zone"):
                producer.push("ada", title="Hi", **{name: NAIVE})
        assert producer.flush(timedelta(minutes=1))
        producer.close(timeout_s="1m")
