"""Dead pushes are found, retried in a new task, or purged; a crash anywhere doubles none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.ports import listed
from pushlane.backends.queries import Browser
from pushlane.core.errors import TaskConflict, UnknownFormat
from pushlane.core.names import DEAD_LANE, dead_lane
from pushlane.core.ports import Delivery, Source, Taken
from pushlane.core.push import DELIVERED, DeadPush, Outcome, Push, encode, encode_dead
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import RETRIED_LANE
from pushlane.producers.dead import DeadLetters, DeadRetry, Retried, Selection
from pushlane.settings import Settings
from pushlane.wire import bodies_of
from tests.core.support import MemorySink, add_task, backend_in, drain

AN_HOUR_MS = 3_600_000


def seqs_of(letters: Sequence[Any]) -> list[int]:
    return [letter.dead.seq for letter in letters]


async def ended(backend: Backend, level: Level = Level.HIGH, pushes: int = 6, **more: Any) -> Task:
    """A task all of whose pushes are delivered but those that `bury` puts on its dead lane."""
    task = await add_task(backend, level, pushes, **more)
    return await backend.registry.change(task.id, task_changes.finish(State.DONE))


async def bury(
    backend: Backend, task: Task, *seqs: int, reason: str = "gone", ago_ms: int = 0
) -> None:
    lane = DEAD_LANE if task.pooled else dead_lane(task.id)
    await backend.broker.open_lane(lane)
    died_at_ms = task_changes.now_ms() - ago_ms
    bodies = [
        encode_dead(
            DeadPush(
                task.id,
                seq,
                3,
                reason,
                died_at_ms,
                encode(Push(task.id, seq, f"to-{seq}", attempt=3)),
            )
        )
        for seq in seqs
    ]
    await backend.broker.publish(lane, bodies)


async def find(backend: Backend, **chosen: Any) -> list[int]:
    return seqs_of((await DeadLetters(backend).find(Selection(**chosen))).letters)


async def retry(backend: Backend, most_held: int = 1_000, **chosen: Any) -> list[Retried]:
    letters = DeadLetters(backend, most_held)
    return await DeadRetry(backend, Settings(), letters).run(Selection(**chosen))


async def delivered(backend: Backend, settings: Settings) -> Counter[str]:
    """Recipients, and how often each got something, once all is sent."""
    sink = MemorySink()
    await drain(backend, sink, settings)
    return Counter(delivery.push.recipient for delivery in sink.received)


async def test_a_task_of_its_own_lane_has_its_dead_on_a_lane_of_their_own(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        high = await add_task(backend, Level.HIGH, 3)
        low = await add_task(backend, Level.LOW, 2)

        await drain(backend, MemorySink(lambda _: Outcome.dead("no such device")), settings)

        backlog = backend.broker.backlog
        assert (await backlog(dead_lane(high.id)), await backlog(DEAD_LANE)) == (3, 2)
        assert await find(backend, task=low.id) == [1, 2]


async def test_dead_pushes_outlive_the_lane_of_their_task(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 3)
        await drain(backend, MemorySink(lambda _: Outcome.dead("no such device")), settings)
        await backend.broker.drop_lane(task.lane)

        assert await find(backend, task=task.id) == [1, 2, 3]


@pytest.mark.parametrize(
    ("chosen", "seqs"),
    [
        ({}, [1, 2, 3, 4]),
        ({"reason": "HTTP 4"}, [3, 4]),
        ({"reason": "http 404"}, [4]),
        ({"died_before_ms": -AN_HOUR_MS}, [1]),
        ({"died_after_ms": -AN_HOUR_MS}, [2, 3, 4]),
        ({"limit": 2}, [1, 2]),
        ({"reason": "gone", "died_after_ms": -AN_HOUR_MS}, [2]),
        ({"task": "another"}, []),
    ],
)
async def test_they_are_found_by_reason_and_age_up_to_a_limit(
    tmp_path: Path, chosen: dict[str, Any], seqs: list[int]
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await bury(backend, task, 1, ago_ms=2 * AN_HOUR_MS)
        await bury(backend, task, 2)
        await bury(backend, task, 3, reason="HTTP 410")
        await bury(backend, task, 4, reason="HTTP 404")
        now = task_changes.now_ms()
        times = {name: now + age for name, age in chosen.items() if name.startswith("died")}

        assert await find(backend, **{**chosen, **times}) == seqs


async def test_what_cannot_be_looked_through_at_once_is_told(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await bury(backend, task, 1, 2, 3, 4)

        found = await DeadLetters(backend, most_held=3).find(Selection())

        assert (seqs_of(found.letters), found.cut) == ([1, 2, 3], [dead_lane(task.id)])


async def test_only_what_is_meant_is_purged(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        one, other = await ended(backend), await ended(backend)
        await bury(backend, one, 1, 2, 3, 4)
        await bury(backend, other, 5)

        purged = await DeadLetters(backend).purge(
            Selection(pushes=frozenset([f"{one.id}-2", f"{one.id}-4", f"{one.id}-6"]))
        )

        assert purged == 2
        assert sorted(await find(backend)) == [1, 3, 5]


async def test_more_can_be_purged_than_can_be_held_at_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await bury(backend, task, *range(1, 21))

        assert await DeadLetters(backend, most_held=3).purge(Selection()) == 20
        assert await find(backend) == []


async def test_a_retry_is_a_new_task_with_the_old_ones_options_and_counts(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        old = await ended(backend, Level.MEDIUM, name="sale", quota=7, max_attempts=9)
        await bury(backend, old, 2, 5)

        [retried] = await retry(backend)
        sink = MemorySink()
        await drain(backend, sink, settings)

        new = await backend.registry.get(retried.retried_as)
        [counts] = await backend.registry.progress([new.id])
        assert (new.name, new.level, new.quota, new.max_attempts) == (
            "sale (retried)",
            Level.MEDIUM,
            7,
            9,
        )
        assert (new.state, new.total, counts.delivered, retried.count) == (State.DONE, 2, 2, 2)
        assert [(d.push.seq, d.push.recipient, d.push.attempt) for d in sink.received] == [
            (1, "to-2", 1),
            (2, "to-5", 1),
        ]
        assert await find(backend) == []
        assert await backend.broker.backlog(RETRIED_LANE) == 0


async def test_what_dies_again_can_be_retried_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await bury(backend, await ended(backend), 2)
        [first] = await retry(backend)
        await drain(backend, MemorySink(lambda _: Outcome.dead("gone")), settings)

        [second] = await retry(backend)

        assert second.task_id == first.retried_as
        assert await delivered(backend, settings) == {"to-2": 1}


async def test_a_push_that_died_twice_is_retried_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await ended(backend)
        await bury(backend, task, 2, 3)
        await bury(backend, task, 2)

        await retry(backend)

        assert await delivered(backend, settings) == {"to-2": 1, "to-3": 1}


async def test_more_than_can_be_held_are_retried_in_several_tasks(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await bury(backend, await ended(backend, pushes=20), *range(1, 21))

        retried = await retry(backend, most_held=8)

        assert [one.count for one in retried] == [8, 8, 4]
        assert await delivered(backend, settings) == {f"to-{seq}": 1 for seq in range(1, 21)}


async def test_a_retry_takes_no_more_than_its_limit(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await bury(backend, await ended(backend), 1, 2, 3)
        await bury(backend, await ended(backend), 4, 5)

        retried = await retry(backend, limit=4)

        assert sum(one.count for one in retried) == 4
        assert len(await find(backend)) == 1


async def test_what_is_no_push_cannot_be_retried_and_stays(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await backend.broker.open_lane(DEAD_LANE)
        await backend.broker.publish(
            DEAD_LANE, [b"\xffnonsense", encode_dead(DeadPush("", 0, 0, "malformed", 1, b"x"))]
        )

        [retried] = await retry(backend)

        assert (retried.count, retried.retried_as) == (2, "")
        assert "purged" in retried.problem
        assert len(await find(backend, task="-")) == 2


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (b"\xff secret nonsense", "dead show"),
        (msgspec.msgpack.encode([99, "of a later format"]), "upgrade this process"),
    ],
)
async def test_one_that_cannot_be_read_keeps_no_other_from_its_retry(
    tmp_path: Path, body: bytes, advice: str
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await ended(backend)
        await bury(backend, task, 1, 4)
        dead = DeadPush(task.id, 3, 1, "gone", task_changes.now_ms(), body)
        await backend.broker.publish(dead_lane(task.id), [encode_dead(dead)])

        retried, left = await retry(backend)

        assert (retried.count, retried.problem) == (2, "")
        assert (left.task_id, left.count, left.retried_as) == (task.id, 1, "")
        assert advice in left.problem
        assert "secret" not in left.problem
        assert await find(backend) == [3]
        assert await delivered(backend, settings) == {"to-1": 1, "to-4": 1}


async def test_a_task_of_a_newer_version_keeps_no_other_from_its_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        newer, known = await ended(backend), await ended(backend)
        await bury(backend, newer, 1, 2)
        await bury(backend, known, 3)
        get = backend.registry.get

        async def get_known(task: str) -> Task:
            if task == newer.id:
                raise UnknownFormat(9, f"task {task}")
            return await get(task)

        monkeypatch.setattr(backend.registry, "get", get_known)

        retried = {one.task_id: one for one in await retry(backend)}

        assert (retried[newer.id].count, retried[newer.id].retried_as) == (2, "")
        assert "upgrade this process" in retried[newer.id].problem
        assert retried[known.id].retried_as
        assert await find(backend) == [1, 2]


async def test_those_that_cannot_be_read_are_in_the_way_of_no_later_ones(tmp_path: Path) -> None:
    """A look holds so many, and what it leaves counts."""
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await backend.broker.open_lane(dead_lane(task.id))
        malformed = [encode_dead(DeadPush(task.id, seq, 1, "gone", 1, b"x")) for seq in (1, 2)]
        await backend.broker.publish(dead_lane(task.id), malformed)
        await bury(backend, task, *range(3, 13))

        retried = await retry(backend, most_held=4)

        assert sum(one.count for one in retried if one.retried_as) == 10
        assert sum(one.count for one in retried if one.problem) == 2
        assert await find(backend) == [1, 2]


@pytest.mark.parametrize("fields", [[5], ["t", 7, "somebody else"]], ids=["a number", "a push"])
async def test_what_is_left_of_a_bundle_is_not_read_as_a_push(
    tmp_path: Path, fields: list[Any]
) -> None:
    """The dead letter of a bundle's malformed push holds no task and no seq, only what follows."""
    async with backend_in(tmp_path) as (backend, settings):
        task = await ended(backend)
        await bury(backend, task, 1)
        fragment = msgspec.msgpack.encode(fields)
        letter = DeadPush(task.id, 2, 0, "malformed: 9 bytes", 1, fragment)
        await backend.broker.publish(dead_lane(task.id), [encode_dead(letter)])

        retried, left = await retry(backend)

        assert (retried.count, retried.problem) == (1, "")
        assert (left.count, left.retried_as) == (1, "")
        assert "damaged" in left.problem
        assert await find(backend) == [2]
        assert await delivered(backend, settings) == {"to-1": 1}


async def test_pushes_of_an_expired_task_are_not_retried(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend, expires_at_ms=task_changes.now_ms() - 1)
        await bury(backend, task, 1)

        [retried] = await retry(backend)

        assert "expired" in retried.problem
        assert await find(backend) == [1]


async def test_two_commands_do_not_look_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.backends.leases.WORK_TTL_S", 1.0)

    async with backend_in(tmp_path) as (backend, _):
        await bury(backend, await ended(backend), 1)
        going = asyncio.Event()

        async def busy() -> None:
            going.set()
            await asyncio.Event().wait()

        other = asyncio.create_task(DeadLetters(backend).alone(busy))
        await going.wait()
        with pytest.raises(TaskConflict, match="another command"):
            await find(backend)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


class Crash(Exception):
    """The process ends here."""


class CrashingBroker:
    """A broker that ends the process at a step of a retry: before or after it."""

    def __init__(self, real: Any, step: str) -> None:
        self._real = real
        self._when, self._what = step.split(" ")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float = 0,
        source: Source | None = None,
    ) -> None:
        what = "mark" if lane == RETRIED_LANE else "push"
        self._crash("before", what)
        await self._real.publish(lane, bodies, delay_s=delay_s, source=source)
        self._crash("after", what)

    async def ack(self, taken: Sequence[Taken]) -> None:
        what = "mark-ack" if taken and taken[0].lane == RETRIED_LANE else "ack"
        self._crash("before", what)
        await self._real.ack(taken[: len(taken) // 2] if self._when == "amid" else taken)
        self._crash("amid", what)
        self._crash("after", what)

    def _crash(self, when: str, what: str) -> None:
        if (when, what) == (self._when, self._what):
            raise Crash


@pytest.mark.parametrize(
    "step",
    [
        "before mark",
        "after mark",
        "before push",
        "after push",
        "before ack",
        "amid ack",
        "after ack",
        "before mark-ack",
        "after mark-ack",
    ],
)
async def test_a_retry_cut_off_anywhere_sends_each_push_once_when_repeated(
    tmp_path: Path, step: str
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await ended(backend)
        await bury(backend, task, 1, 2, 3, 4)
        with pytest.raises(Crash):
            await retry(with_other(backend, broker=CrashingBroker(backend.broker, step)))
        await bury(backend, task, 5)

        await retry(backend)

        assert await delivered(backend, settings) == {f"to-{seq}": 1 for seq in range(1, 6)}
        assert await find(backend) == []
        assert await backend.broker.backlog(RETRIED_LANE) == 0


async def test_a_retry_that_never_began_sends_nothing_and_is_cancelled(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await bury(backend, await ended(backend), 1, 2)
        with pytest.raises(Crash):
            await retry(with_other(backend, broker=CrashingBroker(backend.broker, "after push")))

        [begun] = await listed(backend.registry, [State.SUBMITTED])
        assert (await find(backend), begun.total) == ([1, 2], None)

        await retry(backend)
        assert (await backend.registry.get(begun.id)).state is State.CANCELLED


async def test_ordered_pushes_that_die_together_keep_their_order(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await ended(backend, ordered=True)
        lane = dead_lane(task.id)
        await backend.broker.open_lane(lane)
        pushes = [Push(task.id, 2, "a"), Push(task.id, 5, "a", after_seq=2)]
        await backend.broker.publish(
            lane, [encode_dead(DeadPush(task.id, p.seq, 1, "gone", 1, encode(p))) for p in pushes]
        )
        await retry(backend)
        sink = MemorySink(lambda _: DELIVERED)
        await drain(backend, sink, settings)

        def order(delivery: Delivery) -> tuple[int, int]:
            return delivery.push.seq, delivery.push.after_seq

        assert [order(delivery) for delivery in sink.received] == [(1, 0), (2, 1)]


async def test_a_dead_push_of_a_later_format_stays_whatever_is_purged_or_retried(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await bury(backend, task, 1)
        later = msgspec.msgpack.encode([2, task.id, 2])
        await backend.broker.publish(dead_lane(task.id), [later])

        assert await find(backend) == [1]
        await retry(backend)
        await DeadLetters(backend).purge(Selection())

        async with Browser(backend.broker, dead_lane(task.id)) as left:
            assert [taken.body for taken in await left.page()] == [later]


async def test_what_a_newer_version_added_to_a_push_survives_its_retry(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        fields = msgspec.structs.astuple(Push(task.id, 1, "to-1", attempt=3))
        body = msgspec.msgpack.encode([*fields, "added later"])
        await backend.broker.open_lane(dead_lane(task.id))
        dead = DeadPush(task.id, 1, 3, "gone", task_changes.now_ms(), body)
        await backend.broker.publish(dead_lane(task.id), [encode_dead(dead)])

        [retried] = await retry(backend)

        [[message]] = [page async for page in backend.broker.replay(f"task-{retried.retried_as}")]
        [again] = bodies_of(message)
        assert msgspec.msgpack.decode(again)[-1] == "added later"
