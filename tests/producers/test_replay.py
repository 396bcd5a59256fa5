"""Replays: which pushes, under which seqs, and what is refused."""

from __future__ import annotations

from dataclasses import replace as with_other
from pathlib import Path

import msgspec
import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.formats import set_min_format
from pushlane.backends.ports import listed
from pushlane.core.errors import InvalidChange, UnknownFormat, Unreachable
from pushlane.core.push import FORMAT, Push, decode, encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.producers.replay import clone, heir, replay
from pushlane.wire import bodies_of, packed
from tests.core.support import Wrapped, backend_in

LATER_MS = 4_000_000_000_000


async def kept_task(backend: Backend, *pushes: Push, **fields: object) -> Task:
    """A task whose lane keeps what is acked, with these pushes."""
    task = Task(id="old", level=Level.HIGH, lane="task-old", first_lane="task-old", **fields)
    await backend.registry.add(task)
    await backend.broker.open_lane(task.lane, keep=True)
    await backend.registry.change(task.id, task_changes.start)
    bundles = packed(map(encode, pushes), task.bundle or 1)
    await backend.broker.publish(task.lane, [one.message for one in bundles])
    return await backend.registry.change(
        task.id, task_changes.seal(len({push.seq for push in pushes}))
    )


async def on_lane(backend: Backend, task: Task) -> list[Push]:
    pages = [page async for page in backend.broker.replay(task.lane)]
    return [decode(body) for page in pages for message in page for body in bodies_of(message)]


async def test_a_clone_has_the_options_of_its_task_and_a_life_of_its_own(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await kept_task(backend, Push("old", 1, "a"), quota=7, key="daily", max_attempts=2)
        await backend.registry.change(task.id, task_changes.finish(State.DONE))

        new = (await clone(backend, settings, "old")).task

        assert (new.quota, new.max_attempts, new.level) == (7, 2, Level.HIGH)
        assert (new.key, new.state, new.total) == ("", State.RUNNING, 1)
        assert new.reason == "replay of old"


async def test_a_push_that_was_published_twice_is_replayed_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await kept_task(backend, Push("old", 1, "a"), Push("old", 2, "b"), Push("old", 1, "a"))

        made = await clone(backend, settings, "old")

        assert [push.recipient for push in await on_lane(backend, made.task)] == ["a", "b"]


async def test_a_clone_of_bundles_goes_in_bundles_of_its_own_size(tmp_path: Path) -> None:
    async with backend_in(tmp_path, batch=3) as (backend, settings):
        await set_min_format(backend.documents, backend.presence, FORMAT)
        pushes = [Push("old", seq, f"to-{seq}") for seq in range(1, 9)]
        await kept_task(backend, *pushes, bundle=4)

        made = await clone(backend, settings, "old")

        messages = [body async for page in backend.broker.replay(made.task.lane) for body in page]
        assert [len(list(bodies_of(message))) for message in messages] == [3, 3, 2]
        assert [(push.seq, push.recipient) for push in await on_lane(backend, made.task)] == [
            (seq, f"to-{seq}") for seq in range(1, 9)
        ]


async def test_a_replayed_push_is_a_first_attempt_of_the_new_task(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        labels = {"attributes": {"region": "eu"}, "trace_id": "t-1"}
        await kept_task(backend, Push("old", 5, "a", attempt=3, due_at_ms=7, waits=b"w", **labels))

        made = await clone(backend, settings, "old")
        [push] = await on_lane(backend, made.task)

        assert (push.task_id, push.seq, push.attempt) == (made.task.id, 1, 1)
        assert (push.attributes, push.trace_id, push.due_at_ms) == ({"region": "eu"}, "t-1", 0)
        assert push.waits is None


async def test_an_ordered_push_follows_the_one_it_followed_before(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        chain = [Push("old", 4, "a"), Push("old", 6, "b"), Push("old", 8, "a", after_seq=4)]
        await kept_task(backend, *chain, ordered=True)

        made = await clone(backend, settings, "old")

        pushes = await on_lane(backend, made.task)
        assert [(push.seq, push.after_seq) for push in pushes] == [(1, 0), (2, 0), (3, 1)]


async def test_only_an_expiry_of_the_push_alone_is_kept(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        past = task_changes.now_ms() - 1
        pushes = [
            Push("old", 1, "a", expires_at_ms=past),
            Push("old", 2, "b", expires_at_ms=LATER_MS),
        ]
        await kept_task(backend, *pushes, expires_at_ms=past)

        made = await clone(backend, settings, "old")

        again = await on_lane(backend, made.task)
        assert [push.expires_at_ms for push in again] == [0, LATER_MS]
        assert made.task.expires_at_ms == 0


async def test_an_expiry_that_the_task_had_at_its_submit_is_none_of_the_push_alone(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        first_ms = LATER_MS - 1
        pushes = [
            Push("old", 1, "a", expires_at_ms=first_ms),
            Push("old", 2, "b", expires_at_ms=LATER_MS),
        ]
        await kept_task(
            backend, *pushes, expires_at_ms=LATER_MS, first_expiry_ms=first_ms, recall_ms=5
        )

        made = await clone(backend, settings, "old")

        again = await on_lane(backend, made.task)
        assert [push.expires_at_ms for push in again] == [0, LATER_MS]
        task = made.task
        assert (task.expires_at_ms, task.first_expiry_ms, task.recall_ms) == (0, None, 0)


async def test_an_heir_whose_pushes_stay_as_they_are_knows_the_expiry_that_they_carry() -> None:
    old = Task(id="old", level=Level.HIGH, lane="task-old", expires_at_ms=9, first_expiry_ms=7)

    new = heir(old)

    assert new.dated(Push(new.id, 1, "a", expires_at_ms=7)).expires_at_ms == 9


async def test_a_replay_that_would_lack_pushes_says_what_is_retained(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await kept_task(backend, Push("old", 1, "a"))
        await backend.registry.add(
            Task(id="young", level=Level.HIGH, lane="task-old", first_lane="task-old", total=3)
        )
        lossy = _Trimmed(backend.broker)

        with pytest.raises(InvalidChange, match=r"0 of its 3 pushes retained, those published"):
            await replay(with_other(backend, broker=lossy), settings, "young", 5)

        assert len(await listed(backend.registry)) == 2


async def test_a_task_that_is_still_submitted_is_no_whole_to_clone(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await backend.registry.add(Task(id="young", level=Level.HIGH, lane="task-young"))

        with pytest.raises(InvalidChange, match="not submitted completely"):
            await clone(backend, settings, "young")


async def test_a_replay_goes_on_when_the_registry_was_away_meanwhile(tmp_path: Path) -> None:
    async def no_wait(_: float) -> None:
        return None

    async with backend_in(tmp_path) as (backend, settings):
        await kept_task(backend, Push("old", 1, "a"))
        shaky = with_other(backend, registry=_AwayOnce(backend.registry))

        made = await replay(shaky, settings, "old", 0, sleep=no_wait)

        assert (made.published, made.task.total) == (1, 1)


class _AwayOnce(Wrapped):
    """A registry that is away when a replay first looks at its new task."""

    was_away = False

    async def get(self, task_id: str) -> Task:
        if task_id != "old" and not self.was_away:
            self.was_away = True
            raise Unreachable("away")
        return await self._real.get(task_id)


class _Trimmed(Wrapped):
    """A broker that has lost the earliest part of every lane."""

    async def retained_since_ms(self, lane: str) -> int:
        return task_changes.now_ms()


async def test_a_clone_of_what_only_a_newer_version_reads_is_refused_before_it_begins(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await kept_task(backend, Push("old", 1, "a"))
        await backend.broker.publish(task.lane, [msgspec.msgpack.encode([4, "old", 2])])

        with pytest.raises(UnknownFormat, match="upgrade this process"):
            await clone(backend, settings, "old")

        assert [known.id for known in await listed(backend.registry)] == ["old"]
