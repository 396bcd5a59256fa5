"""Operations on dead pushes: what chooses them, what they show, and what the audit has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pushlane import BadInput, Settings
from pushlane.backends.backend import Backend, connect
from pushlane.backends.ports import Grant
from pushlane.backends.queries import Browser
from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.core.names import DEAD_LANE, dead_lane, is_dead, own_lane
from pushlane.core.ports import Taken
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, Task, now_ms
from pushlane.operations.dead import CountDead, GetDead, ListDead, PurgeDead, RetryDead
from pushlane.operations.doing import do
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Beside, Caller
from pushlane.operations.views import plain

ADMIN = Caller("ada", "cli")


@asynccontextmanager
async def three_dead(settings: Settings) -> AsyncIterator[Backend]:
    """Of one task, all of them an hour ago."""
    async with connect(settings) as backend:
        await bury(backend, "t")
        yield backend


async def bury(backend: Backend, task: str) -> None:
    await backend.registry.add(
        Task(id=task, level=Level.HIGH, lane=own_lane(task), total=3, created_at_ms=now_ms())
    )
    lane = dead_lane(task)
    await backend.broker.open_lane(lane)
    bodies = [
        encode_dead(
            DeadPush(task, seq, 5, why, now_ms() - 3_600_000, encode(Push(task, seq, "ada")))
        )
        for seq, why in ((1, "HTTP 410"), (2, "HTTP 410"), (3, "HTTP 500"))
    ]
    await backend.broker.publish(lane, bodies)


async def test_they_are_listed_as_the_command_lists_them(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        page = await do(backend, settings, ADMIN, ListDead(reason="410", limit=1))
        all_there_are = await do(backend, settings, ADMIN, ListDead(limit=0))

    [shown] = plain(page.dead)
    assert page.is_cut
    assert shown.keys() == {"push", "task", "seq", "attempt", "reason", "died_at_ms"}
    assert [one.push for one in all_there_are.dead] == ["t-1", "t-2", "t-3"]


async def test_they_are_listed_by_lane_as_they_came_there(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        await backend.broker.open_lane(DEAD_LANE)
        body = encode(Push("t", 9, "ada"))
        died = [encode_dead(DeadPush("t", 9, 5, "HTTP 410", at_ms, body)) for at_ms in (7, 5, 7)]
        await backend.broker.publish(DEAD_LANE, [*died, b"no push"])
        page = await do(backend, settings, ADMIN, ListDead(limit=6))

    assert [(one.push, one.died_at_ms) for one in page.dead[:3]] == [
        ("t-9", 7),
        ("t-9", 5),
        ("t-9", 7),
    ]
    assert [one.push for one in page.dead[3:]] == ["malformed-0", "t-1", "t-2"]
    assert page.is_cut


class Counting:
    """A broker that counts how many messages are looked at, and lets nobody read."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.looked_at = 0

    def __getattr__(self, name: str) -> Any:
        assert name != "read"
        return getattr(self._broker, name)

    async def unacked(self, lane: str, after: str, most: int) -> Any:
        found = await self._broker.unacked(lane, after, most)
        self.looked_at += len(found)
        return found


async def test_a_page_looks_at_no_more_of_a_lane_than_it_shows(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        died = [
            encode_dead(DeadPush("t", seq, 5, "HTTP 410", 7, encode(Push("t", seq, "ada"))))
            for seq in range(4, 1_004)
        ]
        await backend.broker.publish(dead_lane("t"), died)
        broker = Counting(backend.broker)
        object.__setattr__(backend, "broker", broker)
        beside, seen, pages = Beside(), 0, 0
        while pages == 0 or beside.next:
            asked = ListDead(limit=200, cursor=beside.next)
            beside = Beside()
            page = await do(backend, settings, ADMIN, asked, beside=beside)
            seen, pages = seen + len(page.dead), pages + 1

    assert (seen, pages) == (1_003, 6)
    assert broker.looked_at < 1_003 + 6


async def test_what_another_command_holds_is_listed(settings: Settings) -> None:
    async with three_dead(settings) as backend, Browser(backend.broker, dead_lane("t")) as held:
        taken = await held.page()
        before = await do(backend, settings, ADMIN, ListDead())
        await held.remove(taken[:1])
        after = await do(backend, settings, ADMIN, ListDead())

    assert [one.push for one in before.dead] == ["t-1", "t-2", "t-3"]
    assert [one.push for one in after.dead] == ["t-2", "t-3"]


async def test_what_one_holds_is_shown_to_who_asks_for_it(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        hidden = await do(backend, settings, ADMIN, GetDead(push="t-1"))
        shown = await do(backend, settings, ADMIN, GetDead(push="t-1", reveal=True))

    assert (hidden.message, hidden.bytes) == (None, shown.bytes)
    assert shown.message is not None
    assert shown.message.recipient == "ada"


async def test_who_has_one_revealed_is_in_the_audit(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        await do(backend, settings, ADMIN, GetDead(push="t-1"))
        await do(backend, settings, ADMIN, GetDead(push="t-1", reveal=True))
        [entry] = await do(backend, settings, ADMIN, ListAudit())

    assert (entry.operation, entry.subject) == ("get-dead", "push/t-1")
    assert "ada" not in str([entry.before, entry.after, entry.subject])


async def test_a_purge_deletes_what_was_counted_and_the_audit_says_how_many(
    settings: Settings,
) -> None:
    async with three_dead(settings) as backend:
        counted = await do(backend, settings, ADMIN, CountDead(task="t", reason="410"))
        purged = await do(backend, settings, ADMIN, PurgeDead(task="t", reason="410"))
        again = await do(backend, settings, ADMIN, PurgeDead(task="t", reason="410"))
        [entry] = await do(backend, settings, ADMIN, ListAudit())

    assert (counted.purged, purged.purged, again.purged) == (2, 2, 0)
    assert (entry.operation, entry.after) == ("purge-dead", {"purged": 2})


async def test_a_retry_says_in_which_task_they_go_on(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        [retried] = await do(backend, settings, ADMIN, RetryDead(pushes=("t-1", "t-3")))
        [entry] = await do(backend, settings, ADMIN, ListAudit())
        left = await do(backend, settings, ADMIN, ListDead())

    assert (retried.task, retried.pushes) == ("t", 2)
    assert entry.after == {"retried": 2, "as": retried.retried_as}
    assert [one.push for one in left.dead] == ["t-2"]


class Stuck:
    """A broker that never answers when dead pushes of a second lane are taken off it."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._lanes: list[str] = []
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def ack(self, taken: Sequence[Taken]) -> None:
        self._lanes += {one.lane for one in taken if is_dead(one.lane)}
        if len(self._lanes) > 1:
            self.reached.set()
            await asyncio.Event().wait()
        await self._real.ack(taken)


class Losable:
    """A lease that another has from when it is lost."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        grant: Grant | None = await self._real.acquire(name, holder, ttl_s)
        return None if self.is_lost else grant


@pytest.mark.parametrize("is_lost", [False, True], ids=["Ctrl-C", "lost lease"])
@pytest.mark.parametrize("kind", [PurgeDead, RetryDead])
async def test_what_is_broken_off_is_in_the_audit_as_far_as_it_came(
    settings: Settings, kind: Any, is_lost: bool
) -> None:
    async with three_dead(settings) as backend:
        await bury(backend, "u")
        broker, lease = Stuck(backend.broker), Losable(backend.lease)
        stuck = replace(backend, broker=broker, lease=lease)  # type: ignore[arg-type]
        doing = asyncio.create_task(do(stuck, settings, ADMIN, kind(all_there_are=True)))
        await broker.reached.wait()
        if is_lost:
            lease.is_lost = True
        else:
            doing.cancel()
        with pytest.raises(TaskConflict if is_lost else asyncio.CancelledError):
            await doing
        found = await do(backend, settings, ADMIN, ListAudit())

    if kind is PurgeDead:
        assert [one.after for one in found] == [{"purged": 3, "perhaps purged": 3}]
    else:
        assert {one.subject for one in found} == {"task/t", "task/u"}
        assert [one.after["retried"] for one in found] == [3, 3]


async def test_a_retry_of_which_nobody_knows_is_in_the_audit_as_such(settings: Settings) -> None:
    async with three_dead(settings) as backend:
        unsure = replace(backend, registry=Unsure(backend.registry))  # type: ignore[arg-type]
        with pytest.raises(Unreachable):
            await do(unsure, settings, ADMIN, RetryDead(task="t"))
        [entry] = await do(backend, settings, ADMIN, ListAudit())

    assert entry.after.keys() == {"perhaps retried", "as"}
    assert (entry.subject, entry.after["perhaps retried"]) == ("task/t", 3)


class Unsure:
    """A registry whose answer to a change is lost."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def change(self, task_id: str, edit: Any) -> Task:
        await self._real.change(task_id, edit)
        raise Unreachable("the answer is lost")


@pytest.mark.parametrize("kind", [RetryDead, PurgeDead, CountDead])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "say which dead pushes: give pushes, task, reason"),
        ({"older_than_s": 60, "newer_than_s": 60}, "nothing is dead for longer than 60 s and"),
        ({"pushes": ("t",)}, "'t' is not a push; give TASK-SEQ"),
    ],
)
async def test_what_chooses_nothing_is_refused(
    settings: Settings, kind: Any, given: dict[str, Any], told: str
) -> None:
    async with three_dead(settings) as backend:
        with pytest.raises(BadInput) as caught:
            await do(backend, settings, ADMIN, kind(**given))

        assert told in str(caught.value)
        assert len((await do(backend, settings, ADMIN, ListDead())).dead) == 3
