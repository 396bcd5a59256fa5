"""Whatever numbers and texts a foreign writer puts on a lane: no push ends a process."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from pushlane.backends.backend import Backend
from pushlane.core.push import DELIVERED, Outcome, Push, Scope, decode, encode
from pushlane.core.task import DeliveryMode, Level, Span, Task
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.model.receipt import ReceiptBatch, decode_receipts
from pushlane.model.times import LAST_DATE_MS
from pushlane.settings import Settings
from tests.core.support import DEADLINE_S, MemorySink, add_task, backend_in

DAY_MS = 86_400_000
EDGES = [
    0, 1, -1, 2**31, -(2**31), 2**53, LAST_DATE_MS, LAST_DATE_MS + 1, 32_503_680_000_000,
    1_700_000_000_000_000, 2**63 - 1, -(2**63), 2**64 - 1,
]  # fmt: skip
numbers = st.sampled_from(EDGES) | st.integers(-(2**63), 2**64 - 1)
moments = numbers | st.sampled_from([1_700_000_000_000, 4_000_000_000_000])
texts = st.text(max_size=12)
zones = st.sampled_from(["", "Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12", "no\0zone"])
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | texts | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
labels = st.none() | st.dictionaries(texts, texts, max_size=3)
maps = st.none() | st.dictionaries(texts, anything, max_size=3)

FIELDS = {
    "recipient": texts,
    "title": texts,
    "body": texts,
    "data": maps,
    "expires_at_ms": moments,
    "submitted_at_ms": moments,
    "attempt": numbers,
    "not_before_ms": moments,
    "zone": zones | texts,
    "after_seq": st.integers(0, 8) | st.just(2**32 - 1),
    "collapse": st.sampled_from(["", "cart"]) | texts,
    "strikes": numbers,
    "attributes": labels,
    "trace_id": texts,
    "due_at_ms": moments,
    "addresses": labels,
    "payloads": maps,
    "key": st.sampled_from(["", "order-7"]) | texts,
    "waits": st.none() | st.binary(max_size=30),
    "tracestate": st.sampled_from(["", "a=1"]) | texts,
}
"""Draws for each field of docs/wire.md behind task id and seq, in its order."""

waits = st.sampled_from([None, 0.0, -1.0, -math.inf, math.inf, math.nan, 1e300, -1e300, 10**400])
gone_since = numbers | st.just(10**30)
answers = st.one_of(
    st.just(DELIVERED),
    st.just(Outcome.dead("no such device")),
    st.builds(Outcome.retry, st.just("busy"), waits),
    st.builds(Outcome.gone, st.just("unregistered"), gone_since),
    st.just(Outcome.throttled("slow down", math.inf, Scope.RECIPIENT)),
)


class Way(NamedTuple):
    """The settings that a task is sent with."""

    receipts: str = "on"
    quiet: str = ""
    zone: str = ""
    ordered: bool = False
    delivery: DeliveryMode = DeliveryMode.AT_LEAST_ONCE
    hosts_code: bool = False


ways = st.builds(
    Way,
    st.sampled_from(["on", "off"]),
    st.sampled_from(["", "22:00-08:00", "08:00-22:00", "23:59-00:01"]),
    zones.filter(lambda name: "\0" not in name),
    st.booleans(),
    st.sampled_from(list(DeliveryMode)),
    st.booleans(),
)


@st.composite
def foreign_pushes(draw: st.DrawFn) -> list[Any]:
    """The fields of a push behind its seq: perhaps fewer, perhaps one of a wrong type."""
    values = [draw(drawn) for drawn in FIELDS.values()]
    if draw(st.integers(0, 5)) == 0:
        values[draw(st.integers(0, len(values) - 1))] = draw(anything)
    return values[: draw(st.integers(1, len(values)))]


WORST = [["to", "", "", None, 0, value, 1, 0, ""] for value in EDGES]
CIRCLE = [["to", "", "", None, 0, 0, 1, 0, "", after] for after in (2, 1, 3)]


@given(st.fixed_dictionaries(FIELDS))
def test_each_field_arrives_as_it_was_written(values: dict[str, Any]) -> None:
    push = Push("t", 7, **values)

    again = decode(encode(push))

    assert encode(again) == encode(push)
    assert msgspec.structs.asdict(again).keys() == {"task_id", "seq", *FIELDS}


@given(st.lists(foreign_pushes(), min_size=1, max_size=8), st.lists(answers, min_size=8), ways)
@example(WORST, [DELIVERED] * 8, Way(quiet="22:00-08:00"))
@example(WORST, [DELIVERED] * 8, Way(quiet="08:00-22:00", ordered=True))
@example(CIRCLE, [DELIVERED] * 8, Way(ordered=True))
@example(WORST, [Outcome.retry("busy", -1e300)] * 8, Way(delivery=DeliveryMode.ONCE))
@example(WORST, [Outcome.retry("busy", -math.inf)] * 8, Way(receipts="off"))
def test_no_push_ends_a_process(pushes: list[list[Any]], said: list[Outcome], way: Way) -> None:
    """Each push is delivered, expired, dead, or waits for its time; its receipt can be read."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_all_are_settled(Path(folder), pushes, said, way))


async def _all_are_settled(
    folder: Path, pushes: list[list[Any]], said: list[Outcome], way: Way
) -> None:
    asked: Counter[int] = Counter()

    def answer(delivery: Any) -> Outcome:
        asked[delivery.push.seq] += 1
        is_first = asked[delivery.push.seq] == 1
        return said[delivery.push.seq % len(said)] if is_first else DELIVERED

    given_settings = {"receipts": way.receipts, "order_timeout_s": 0.05, "retry_first_s": 0.01}
    async with backend_in(folder, **given_settings) as (backend, settings):
        fields = {"quiet": way.quiet, "zone": way.zone, "ordered": way.ordered}
        task = await add_task(
            backend, Level.HIGH, 0, seal=False, bundle=32, delivery=way.delivery, **fields
        )
        fields_of = [msgspec.msgpack.encode(fields) for fields in pushes]
        bundle = msgspec.msgpack.encode([2, task.id, 1, len(pushes), fields_of])
        await backend.broker.publish(task.lane, [bundle])
        await backend.registry.change(task.id, task_changes.seal(len(pushes)))
        sink = MemorySink(answer, hosts_code=way.hosts_code)

        await _run_until_settled(backend, sink, settings, task, len(pushes))

        finished = (await backend.registry.progress([task.id]))[0]
        receipts = [batch async for batch in _batches(backend)]
        assert sum(map(len, receipts)) >= finished.finished * (way.receipts == "on")
        for batch in receipts:
            assert 0 <= min(batch.attempt) <= max(batch.attempt) < 2**31
            for column in (batch.submitted_at_ms, batch.eligible_at_ms):
                assert 0 <= min(column) <= max(column) <= LAST_DATE_MS


async def _run_until_settled(
    backend: Backend, sink: MemorySink, settings: Settings, task: Task, pushes: int
) -> None:
    """Dispatch until each push is finished, or waits on another lane; then stop gently."""
    dispatcher = Dispatcher(backend, sink, settings)
    running = asyncio.create_task(dispatcher.run())
    whole = Span(task.id, 1, pushes, moves=True)
    async with asyncio.timeout(DEADLINE_S):
        while not running.done():
            [bits] = await backend.registry.gone([whole])
            if bits.bit_count() == pushes:
                dispatcher.stop()
                break
        await running


async def _batches(backend: Backend) -> Any:
    start = await backend.receipts.first()
    end = await backend.receipts.advance(start)
    for partition in range(len(start)):
        async for page in backend.receipts.read(partition, start[partition], end[partition]):
            for body in page:
                batch: ReceiptBatch = decode_receipts(body)
                yield batch
