"""What every registry promises (see `backends.ports.Registry`)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pushlane.backends.ports import ALL, Fence, Registry, listed
from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import (
    ACTIVE_STATES,
    Finished,
    Level,
    Moved,
    Progress,
    Span,
    State,
    Task,
    Weights,
    now_ms,
)
from pushlane.model import task_changes
from pushlane.model.due import QUARTER_MS, PutOff
from pushlane.model.names import new_task_id
from pushlane.util.errors import Superseded, UnknownTask
from tests.unreadable import store_unreadable


def a_task(**fields) -> Task:
    task_id = fields.pop("id", None) or new_task_id()
    return Task(id=task_id, level=fields.pop("level", Level.HIGH), lane=own_lane(task_id), **fields)


def raise_quota(task: Task) -> Task:
    return replace(task, quota=task.quota + 1)


async def test_a_task_is_found_by_its_id(connections):
    async with connections:
        registry = (await connections.one()).registry
        added = await registry.add(a_task(name="Autumn sale", quota=3, total=7))

        assert await registry.get(added.id) == added


async def test_a_task_is_found_by_its_key_and_by_its_name(connections):
    async with connections:
        registry = (await connections.one()).registry
        added = await registry.add(a_task(key="sale-7", name="autumn"))

        assert await registry.get("sale-7") == added
        assert await registry.get("autumn") == added


async def test_a_name_that_two_tasks_have_is_refused(connections):
    async with connections:
        registry = (await connections.one()).registry
        old = await registry.add(a_task(id="0task1", name="autumn", created_at_ms=1))
        new = await registry.add(a_task(id="0task2", name="autumn", created_at_ms=2000))
        await registry.change(old.id, lambda task: replace(task, state=State.CANCELLED))

        with pytest.raises(UnknownTask) as refused:
            await registry.get("autumn")

    assert str(refused.value) == (
        f"several tasks are named 'autumn'; say which by its id: {new.id} (high, submitted "
        f"1970-01-01 00:00:02 UTC), {old.id} (high, cancelled, submitted 1970-01-01 00:00:00 UTC) "
        "(`pushlane tasks --all --find autumn` lists them)"
    )


async def test_of_many_tasks_with_one_name_the_newest_are_named(connections):
    async with connections:
        registry = (await connections.one()).registry
        ids = [(await registry.add(a_task(id=f"0task{n}", name="autumn"))).id for n in range(7)]
        await store_unreadable(registry, ids[5], format=3)

        with pytest.raises(UnknownTask) as refused:
            await registry.get("autumn")

    assert [one for one in ids if one in str(refused.value)] == ids[2:]
    assert f"), {ids[5]}, {ids[4]} (high, " in str(refused.value)  # a newer version knows the rest
    assert "), and older ones (`pushlane tasks" in str(refused.value)


async def test_an_unknown_task_is_named_with_the_nearest(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.add(a_task(name="autumn-sale"))

        with pytest.raises(UnknownTask, match=r"autum-sale.*autumn-sale"):
            await registry.get("autum-sale")


async def test_adding_the_same_key_again_returns_the_first_task(connections):
    async with connections:
        here, there = await connections.two()
        first = await here.registry.add(a_task(key="sale-7"))

        second = await there.registry.add(a_task(key="sale-7", quota=9))

        assert second == first
        assert await listed(here.registry) == [first]


async def test_two_adds_of_one_key_at_once_make_one_task(connections):
    async with connections:
        pair = await connections.two()

        added = await asyncio.gather(
            *(pair[n % 2].registry.add(a_task(key="sale-7")) for n in range(10))
        )

        assert len({task.id for task in added}) == 1


async def test_tasks_without_a_key_are_all_kept(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.add(a_task())
        await registry.add(a_task())

        assert len(await listed(registry)) == 2


async def test_tasks_are_listed_oldest_first_and_by_state(connections):
    async with connections:
        registry = (await connections.one()).registry
        tasks = [
            await registry.add(a_task(id=f"task{n}", created_at_ms=1000 + n, state=state))
            for n, state in enumerate([State.RUNNING, State.DONE, State.RUNNING, State.PAUSED])
        ]

        assert await listed(registry) == tasks
        assert await listed(registry, [State.RUNNING, State.PAUSED]) == [tasks[0], *tasks[2:]]


async def test_a_change_is_seen_by_another_process(connections):
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task())

        changed = await here.registry.change(task.id, task_changes.set_quota(5))

        assert changed.quota == 5
        assert changed.version > task.version
        assert await there.registry.get(task.id) == changed


async def test_keeping_up_with_what_was_written_as_usual_changes_nothing(connections):
    async with connections:
        registry = (await connections.one()).registry
        ended, task = await registry.add(a_task()), await registry.add(a_task(key="sale"))
        await registry.change(ended.id, task_changes.finish(State.DONE))
        await registry.forget(ended.id)
        task = await registry.change(task.id, raise_quota)
        before = await registry.changes(0, 0)

        for _ in range(3):
            await registry.keep_up()

        assert await registry.changes(0, 0) == before
        assert await listed(registry) == [task]


async def test_no_change_is_lost_when_two_processes_make_many_at_once(connections):
    async with connections:
        pair = await connections.two()
        task = await pair[0].registry.add(a_task(quota=1))

        await asyncio.gather(
            *(pair[n % 2].registry.change(task.id, raise_quota) for n in range(50))
        )

        assert (await pair[0].registry.get(task.id)).quota == 51


async def test_what_an_edit_raises_is_passed_on_and_nothing_changes(connections):
    async with connections:
        registry = (await connections.one()).registry
        task = await registry.add(a_task())

        with pytest.raises(BadInput, match="quota 0"):
            await registry.change(task.id, task_changes.set_quota(0))

        assert await registry.get(task.id) == task


async def test_an_edit_that_returns_its_argument_changes_nothing(connections):
    async with connections:
        registry = (await connections.one()).registry
        task = await registry.add(a_task())
        before = await registry.changes(0, 1.0)

        assert await registry.change(task.id, lambda same: same) == task

        assert (await registry.changes(0, 1.0)).version == before.version


async def test_changing_an_unknown_task_names_the_nearest(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.add(a_task(id="0task7"))

        with pytest.raises(UnknownTask, match="0task7"):
            await registry.change("0task8", raise_quota)


async def test_the_weights_are_6_3_1_until_others_are_set(connections):
    async with connections:
        here, there = await connections.two()
        assert await here.registry.weights() == Weights(6, 3, 1)

        await here.registry.set_weights(Weights(5, 4, 0))

        assert await there.registry.weights() == Weights(5, 4, 0)


async def test_a_page_begins_behind_any_task_of_another_even_one_that_is_gone(connections):
    async with connections:
        here, there = await connections.two()
        for number in range(5):
            await here.registry.add(a_task(id=f"0task{number}"))
        page = await here.registry.page(ALL)
        await there.registry.change("0task2", task_changes.cancel)
        await there.registry.forget("0task2")
        await there.registry.add(a_task(id="0task5"))

        found = [await there.registry.page(ALL, place) for place in page.places]

        assert [task.id for task in page.tasks] == [f"0task{number}" for number in (4, 3, 2, 1, 0)]
        left = ["0task3", "0task1", "0task0"]
        wanted = [left, left[1:], left[1:], left[2:], []]
        assert [[task.id for task in one.tasks] for one in found] == wanted


async def test_weights_over_others_than_are_set_change_nothing(connections):
    async with connections:
        here, there = await connections.two()
        assert await here.registry.set_weights(Weights(5, 4, 0), over=Weights())

        assert not await there.registry.set_weights(Weights(1, 1, 1), over=Weights())

        assert await here.registry.weights() == Weights(5, 4, 0)
        assert await there.registry.set_weights(Weights(), over=Weights(5, 4, 0))
        assert await there.registry.set_weights(Weights(1, 2, 3), over=Weights())
        assert await here.registry.weights() == Weights(1, 2, 3)


async def test_of_many_weights_over_the_same_one_is_set(connections):
    async with connections:
        here, there = await connections.two()
        wanted = [Weights(1, 1, number) for number in range(10)]

        are_set = await asyncio.gather(
            *(
                backend.registry.set_weights(one, over=Weights())
                for backend, one in zip((here, there) * 5, wanted, strict=True)
            )
        )

        [winner] = [one for one, is_set in zip(wanted, are_set, strict=True) if is_set]
        assert await here.registry.weights() == winner


async def test_changes_from_the_start_are_the_tasks_not_finished(connections):
    async with connections:
        registry = (await connections.one()).registry
        running = await registry.add(a_task(state=State.RUNNING))
        await registry.add(a_task(state=State.DONE))

        changes = await registry.changes(0, timeout_s=30)

        assert changes.tasks == [running]
        assert changes.weights == Weights()


async def test_an_empty_registry_has_a_version_to_wait_from(connections):
    async with connections:
        registry = (await connections.one()).registry

        assert (await registry.changes(0, timeout_s=30)).version > 0


async def test_changes_wait_for_one_made_by_another_process(connections):
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task())
        known = await here.registry.changes(0, timeout_s=30)
        waiting = asyncio.create_task(here.registry.changes(known.version, timeout_s=30))
        await asyncio.sleep(0)

        cancelled = await there.registry.change(task.id, task_changes.cancel)

        assert (await waiting).tasks == [cancelled]


async def test_every_waiter_is_told_of_a_change_made_beside_it(connections):
    async with connections:
        registry = (await connections.one()).registry
        known = await registry.changes(0, timeout_s=30)
        waiting = [
            asyncio.create_task(registry.changes(known.version, timeout_s=30)) for _ in range(3)
        ]
        await asyncio.sleep(0)

        added = await registry.add(a_task())

        assert [changes.tasks for changes in await asyncio.gather(*waiting)] == [[added]] * 3


async def test_new_weights_are_a_change(connections):
    async with connections:
        here, there = await connections.two()
        known = await here.registry.changes(0, timeout_s=30)
        await there.registry.set_weights(Weights(1, 1, 1))

        changes = await here.registry.changes(known.version, timeout_s=30)

        assert changes.weights == Weights(1, 1, 1)
        assert changes.version > known.version


async def test_changes_end_with_nothing_when_the_time_is_over(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.add(a_task())
        known = await registry.changes(0, timeout_s=30)

        changes = await registry.changes(known.version, timeout_s=0.01)

        assert (changes.version, changes.tasks) == (known.version, [])


async def test_a_seq_counts_once_however_often_it_is_recorded(connections):
    async with connections:
        here, there = await connections.two()
        await here.registry.record([Finished("t", Kind.DELIVERED, [1, 2, 3, 3])])

        progress = await there.registry.record([Finished("t", Kind.DELIVERED, [2, 3, 4])])

        assert progress == [Progress("t", delivered=4)]


async def test_a_seq_counts_as_what_it_ended_as_first(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.record([Finished("t", Kind.DEAD, [1])])

        progress = await registry.record([Finished("t", Kind.DELIVERED, [1, 2])])

        assert progress == [Progress("t", delivered=1, dead=1)]


async def test_every_way_to_end_has_its_own_count(connections):
    async with connections:
        registry = (await connections.one()).registry

        progress = await registry.record(
            [
                Finished("b", Kind.DELIVERED, [1, 2]),
                Finished("a", Kind.DEAD, [1]),
                Finished("b", Kind.EXPIRED, [3]),
                Finished("b", Kind.DROPPED, [4]),
            ]
        )

        assert progress == [
            Progress("b", delivered=2, expired=1, dropped=1),
            Progress("a", dead=1),
        ]


async def test_counts_are_exact_over_far_apart_seqs_and_processes(connections):
    async with connections:
        pair = await connections.two()
        seqs = [seq for start in (1, 8_100, 65_500, 9_999_000) for seq in range(start, start + 200)]

        await asyncio.gather(
            *(
                pair[n % 2].registry.record([Finished("t", Kind.DELIVERED, seqs[n::7])])
                for n in (*range(7), *range(7))
            )
        )

        assert await pair[0].registry.progress(["t"]) == [Progress("t", delivered=800)]


async def test_the_progress_of_a_task_that_has_none_is_zero(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.record([Finished("b", Kind.DEAD, [1])])

        assert await registry.progress(["a", "b"]) == [Progress("a"), Progress("b", dead=1)]


async def test_it_tells_which_seqs_are_finished_however_they_ended(connections):
    async with connections:
        here, there = await connections.two()
        await here.registry.record(
            [Finished("t", Kind.DELIVERED, [1, 9_000]), Finished("t", Kind.DROPPED, [70_000])]
        )

        answers = await there.registry.finished("t", [70_000, 2, 1, 9_000, 1, 69_999])

        assert answers == [True, False, True, True, True, False]


async def test_nothing_is_finished_of_a_task_of_which_nothing_was_recorded(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.record([Finished("other", Kind.DELIVERED, [1])])

        assert await registry.finished("t", [1, 2]) == [False, False]


async def test_it_tells_of_many_seqs_in_the_order_asked(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.record([Finished("t", Kind.DELIVERED, list(range(2, 5_001, 2)))])

        assert await registry.finished("t", range(1, 5_001)) == [False, True] * 2_500


def seqs_of(span: Span, bits: int) -> list[int]:
    return [seq for seq in range(span.first, span.last + 1) if bits >> (seq - span.first) & 1]


async def test_what_has_ended_is_gone_and_what_has_moved_for_who_asks_for_it(connections):
    async with connections:
        here, there = await connections.two()
        await here.registry.record([Finished("t", Kind.DELIVERED, [3, 5])])
        await here.registry.move([Moved("t", [4]), Moved("u", [1])])
        spans = [Span("t", 2, 6, moves=True), Span("t", 2, 6, moves=False)]

        answers = await there.registry.gone([*spans, Span("u", 2, 9, moves=True)])

        assert [seqs_of(*pair) for pair in zip(spans, answers, strict=False)] == [
            [3, 4, 5],
            [3, 5],
        ]
        assert answers[2] == 0
        assert await there.registry.finished("t", [4]) == [False]
        assert await there.registry.progress(["t"]) == [Progress("t", delivered=2)]


async def test_spans_may_begin_and_end_anywhere(connections):
    async with connections:
        registry = (await connections.one()).registry
        ended = [1, 7, 8, 15, 16, 8_190, 8_191, 8_192, 8_193, 16_384, 40_000]
        moved = [2, 8_194, 8_200]
        await registry.record([Finished("t", Kind.DELIVERED, ended)])
        await registry.move([Moved("t", moved)])
        places = [1, 2, 3, 7, 8, 9, 16, 17, 8_185, 8_191, 8_192, 8_195, 20_000]
        spans = [
            Span("t", first, last, moves=moves)
            for first in places
            for last in places
            if first <= last
            for moves in (False, True)
        ]

        answers = await registry.gone(spans)

        for span, bits in zip(spans, answers, strict=True):
            known = {*ended, *moved} if span.moves else set(ended)
            assert seqs_of(span, bits) == sorted(s for s in known if span.first <= s <= span.last)


async def test_a_leaders_change_is_made(connections):
    async with connections:
        backend = await connections.one()
        task = await backend.registry.add(a_task())
        number = (await backend.lease.acquire("janitor", "a", 600)).number

        changed = await backend.registry.change(task.id, raise_quota, Fence("janitor", number))

        assert changed.quota == 2


async def test_what_became_of_tasks_is_found_out(connections):
    async with connections:
        registry = (await connections.one()).registry
        there, gone = await registry.add(a_task()), await registry.add(a_task())
        await registry.change(gone.id, task_changes.cancel)
        await registry.forget(gone.id)
        never = new_task_id()

        found = await registry.find_out([never, gone.id, there.id])

        assert found.tasks == [there]
        assert sorted(found.forgotten) == sorted([never, gone.id])
        quick = await registry.some([gone.id, there.id])
        assert quick.tasks == [there]
        assert list(quick.forgotten) == [gone.id]


async def test_a_change_of_who_led_before_is_refused(connections):
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task())
        number = (await here.lease.acquire("janitor", "a", 600)).number
        await here.lease.release("janitor", "a")
        await there.lease.acquire("janitor", "b", 600)

        with pytest.raises(Superseded):
            await here.registry.change(task.id, raise_quota, Fence("janitor", number))

        assert await there.registry.get(task.id) == task


async def test_a_change_by_who_never_led_is_refused(connections):
    async with connections:
        backend = await connections.one()
        task = await backend.registry.add(a_task())

        with pytest.raises(Superseded):
            await backend.registry.change(task.id, raise_quota, Fence("janitor", 1))


async def test_a_refused_leader_keeps_nobody_from_changing_the_task(connections):
    async with connections:
        backend = await connections.one()
        task = await backend.registry.add(a_task())
        with pytest.raises(Superseded):
            await backend.registry.change(task.id, raise_quota, Fence("janitor", 1))

        assert (await backend.registry.change(task.id, raise_quota)).quota == 2


LATER = msgspec.msgpack.encode({"later": {"a": [1, 2]}})

NEWER = pytest.mark.parametrize(
    "fields",
    [{"format": 3}, {"state": "resting"}, {"delivery": "twice"}, {"format": 2, "state": "resting"}],
)


def way_out(fields: dict[str, Any]) -> str:
    """Of a format that we know nothing is newer: it is damaged."""
    return "upgrade this process" if fields.get("format", 1) > 2 else "forget .* --force"


async def add_newer(registry: Registry, fields: dict[str, Any], **more: Any) -> Task:
    """A task as a newer version might store it."""
    task = await registry.add(a_task(**more))
    return await store_unreadable(registry, task.id, **fields)


async def test_what_a_newer_version_added_to_a_task_is_kept_and_not_shown(connections):
    async with connections:
        here, there = await connections.two()
        task = await add_newer(here.registry, {"unknown": LATER})

        changed = await there.registry.change(task.id, raise_quota)

        assert (await here.registry.get(task.id)).unknown == LATER
        assert (changed.quota, changed.unknown) == (2, LATER)
        assert ", unknown=" not in repr(changed)
        assert (await here.registry.add(a_task())).unknown is msgspec.UNSET


@NEWER
async def test_a_task_that_only_a_newer_version_understands_is_refused_by_name(connections, fields):
    async with connections:
        here, there = await connections.two()
        task = await add_newer(here.registry, fields, key="a-key", name="a name")

        for word in (task.id, "a-key", "a name"):
            with pytest.raises(UnknownFormat, match=f"{task.id}.*{way_out(fields)}"):
                await there.registry.get(word)
        with pytest.raises(UnknownFormat, match=task.id):
            await there.registry.change(task.id, raise_quota)
        with pytest.raises(UnknownFormat):
            await there.registry.add(a_task(key="a-key"))


@NEWER
async def test_such_a_task_keeps_no_other_from_being_listed(connections, caplog, fields):
    async with connections:
        registry = (await connections.one()).registry
        before = await registry.add(a_task())
        newer = await add_newer(registry, fields)
        after = await registry.add(a_task())

        for states in ((), ACTIVE_STATES, ACTIVE_STATES):
            found = await listed(registry, states)
            assert sorted(task.id for task in found) == sorted([before.id, after.id])

        told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert [newer.id in text for text in told] == [True]


@NEWER
async def test_such_a_task_is_named_among_the_changes(connections, fields):
    async with connections:
        here, there = await connections.two()
        known = await there.registry.changes(0, timeout_s=30)
        newer = await add_newer(here.registry, fields)

        first = await there.registry.changes(0, timeout_s=30)
        later = await there.registry.changes(known.version, timeout_s=30)

        assert (first.tasks, [*first.unread]) == ([], [newer.id])
        assert (later.tasks, [*later.unread]) == ([], [newer.id])


async def test_pushes_that_were_put_off_are_added_up_by_reason_and_quarter(connections):
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task())
        other = await here.registry.add(a_task())
        soon = now_ms() + QUARTER_MS
        quarter, zone = soon // QUARTER_MS, "Asia/Tokyo"
        note = PutOff(task.id, "quiet_hours", quarter, 2, soon + 5, soon + 9, zone)
        retry = PutOff(task.id, "retry", quarter, 1, soon, soon)

        await here.registry.put_off([note, retry])
        await there.registry.put_off([replace(note, first_ms=soon, last_ms=soon + 7, zone="UTC")])

        [found, none] = await here.registry.put_offs([task.id, other.id])
        expected = replace(note, pushes=4, first_ms=soon, zone="UTC")
        assert sorted(found, key=lambda one: one.reason) == [expected, retry]
        assert list(none) == []


async def test_notes_of_pushes_that_were_put_off_are_bounded(connections):
    async with connections:
        registry = (await connections.one()).registry
        task = await registry.add(a_task())
        quarter = now_ms() // QUARTER_MS
        passed = [PutOff(task.id, "retry", quarter - n, 1, 1, 1) for n in range(2, 200)]

        await registry.put_off([*passed, PutOff(task.id, "retry", quarter + 1, 1, 1, 1)])

        [found] = await registry.put_offs([task.id])
        assert [one.quarter for one in found] == [quarter + 1]


async def test_what_was_put_off_of_a_task_is_cleared_for_all_and_noted_anew(connections):
    async with connections:
        here, there = await connections.two()
        task, other = [await here.registry.add(a_task()) for _ in range(2)]
        quarter = now_ms() // QUARTER_MS + 1
        note, beside = (PutOff(one.id, "retry", quarter, 1, 1, 1) for one in (task, other))
        await here.registry.put_off([note, beside])

        await there.registry.clear_put_offs(task.id)
        await there.registry.clear_put_offs(task.id)

        cleared = await here.registry.put_offs([task.id, other.id])
        assert [list(notes) for notes in cleared] == [[], [beside]]
        await here.registry.put_off([note])
        assert [list(notes) for notes in await there.registry.put_offs([task.id])] == [[note]]


async def test_what_was_put_off_of_a_task_goes_when_it_is_forgotten(connections):
    async with connections:
        registry = (await connections.one()).registry
        task = await registry.add(a_task(state=State.DONE, finished_at_ms=1))
        quarter = now_ms() // QUARTER_MS
        await registry.put_off([PutOff(task.id, "retry", quarter + 1, 1, 1, 1)])

        await registry.forget(task.id)

        assert list((await registry.put_offs([task.id]))[0]) == []
