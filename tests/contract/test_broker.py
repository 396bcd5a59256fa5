"""What every broker promises (see `backends.ports.Broker`)."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from pushlane.backends.ports import Delayed
from pushlane.core.errors import BadInput, UnknownLane
from pushlane.core.ports import Source
from pushlane.core.push import Push, encode
from pushlane.core.task import now_ms
from pushlane.wire import bodies_of, packed
from tests.contract.conftest import BATCH
from tests.contract.reading import LANE, Reading, bodies, numbered, until


async def test_one_reader_takes_what_was_published_in_order(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        await broker.publish(LANE, numbered(1, 40))

        assert bodies(await reading.take(40)) == numbered(1, 40)


async def test_every_byte_of_a_body_comes_back(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        odd = [bytes(range(256)), b"\x00", b",", b"x" * 60_000]

        await broker.publish(LANE, odd)

        assert bodies(await reading.take(len(odd))) == odd


async def test_messages_published_before_any_reader_are_kept(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 3))

        reading = await Reading.of(broker)

        assert bodies(await reading.take(3)) == numbered(1, 3)


async def test_messages_outlive_the_connection_that_published_them(connections, settings):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 3))
    later = type(connections)(settings)
    async with later:
        reading = await Reading.of((await later.one()).broker)

        assert bodies(await reading.take(3)) == numbered(1, 3)


async def test_a_message_of_another_process_wakes_a_dry_reader(connections):
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE)
        reading = await Reading.of(here.broker)
        assert reading.reader.take() is None

        await there.broker.publish(LANE, [b"late"])

        assert bodies(await reading.take(1)) == [b"late"]


async def test_ready_is_said_once_for_each_take_that_found_nothing(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 3))
        reading = await Reading.of(broker)
        await reading.ready()  # before a first take, which may find what has just come
        await reading.take(3)
        assert reading.times_ready == reading.times_due
        assert reading.take_one() is None
        assert reading.take_one() is None

        await broker.publish(LANE, numbered(4, 6))
        await reading.ready()

        assert bodies(await reading.take(3)) == numbered(4, 6)
        assert reading.times_ready == reading.times_due


@pytest.mark.parametrize("depth", [0, 1, 6])
async def test_a_reader_holds_no_more_than_half_of_its_depth_and_one(connections, settings, depth):
    held = max(1, (depth or settings.prefetch) // 2)
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE)
        greedy = await Reading.of(here.broker, depth=depth)
        await here.broker.publish(LANE, numbered(1, 100))
        await greedy.ready()

        other = await Reading.of(there.broker)

        free = 100 - held - 1  # the one that it was told of
        assert len(await other.take(free)) == free


async def test_two_processes_share_a_lane_without_duplicates(connections):
    async with connections:
        pair = await connections.two()
        await pair[0].broker.open_lane(LANE)
        shared: list[bytes] = []
        all_taken = asyncio.Event()

        async def drain(broker) -> None:
            reading = await Reading.of(broker)
            while True:
                one = (await reading.take(1))[0]
                shared.append(one.body)
                await broker.ack([one])
                if len(shared) == 200:
                    all_taken.set()

        drains = [asyncio.create_task(drain(backend.broker)) for backend in pair]
        await pair[0].broker.publish(LANE, numbered(1, 200))
        await all_taken.wait()
        for task in drains:
            task.cancel()
        await asyncio.gather(*drains, return_exceptions=True)

        assert sorted(shared, key=int) == numbered(1, 200)


async def test_what_a_closed_reader_had_not_acked_goes_to_another(connections):
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE)
        await here.broker.publish(LANE, numbered(1, 5))
        leaving = await Reading.of(here.broker)
        first, *_ = await leaving.take(2)
        await here.broker.ack([first])

        await leaving.close()
        staying = await Reading.of(there.broker)

        assert sorted(bodies(await staying.take(4))) == numbered(2, 5)


async def test_what_was_acked_does_not_come_again(connections, settings):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 2 * BATCH))
        reading = await Reading.of(broker)
        taken = await reading.take(2 * BATCH)
        await broker.ack(taken[:-1])
    later = type(connections)(settings)
    async with later:
        reading = await Reading.of((await later.one()).broker)

        assert bodies(await reading.take(1)) == [taken[-1].body]


async def test_an_ack_may_be_repeated(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        await broker.publish(LANE, [b"1"])
        taken = await reading.take(1)
        await broker.ack(taken)
        await broker.publish(LANE, [b"2"])

        await broker.ack(taken)

        assert bodies(await reading.take(1)) == [b"2"]


async def test_a_delayed_message_is_not_taken_before_its_time(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        published_s = time.time()
        await broker.publish(LANE, [b"later"], delay_s=0.4)

        taken = bodies(await reading.take(1))

        assert taken == [b"later"]
        assert time.time() - published_s >= 0.4


async def test_a_delayed_message_holds_up_none_behind_it(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        await broker.publish(LANE, [b"later"], delay_s=600)
        await broker.publish(LANE, [b"now"])

        assert bodies(await reading.take(1)) == [b"now"]
        assert reading.reader.take() is None


async def test_what_a_source_publishes_again_is_kept_once(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        first = numbered(1, BATCH)
        await broker.publish(LANE, first, source=Source("submit-a", range(1, BATCH + 1)))

        await broker.publish(LANE, first, source=Source("submit-a", range(1, BATCH + 1)))
        await broker.publish(LANE, [b"next"], source=Source("submit-a", [BATCH + 1]))

        assert bodies(await reading.take(BATCH + 1)) == [*first, b"next"]


async def test_a_source_is_remembered_by_another_process(connections, settings):
    first = Source("submit-a", range(1, BATCH + 1))
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, BATCH), source=first)
    later = type(connections)(settings)
    async with later:
        broker = (await later.one()).broker
        reading = await Reading.of(broker)
        await broker.publish(LANE, numbered(1, BATCH), source=first)
        await broker.publish(LANE, [b"next"], source=Source("submit-a", [BATCH + 1]))

        assert bodies(await reading.take(BATCH + 1)) == [*numbered(1, BATCH), b"next"]


async def test_a_publish_of_which_some_are_there_adds_only_the_rest(connections):
    """As after a crash in the middle of it, and whichever part is published again."""
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 10), source=Source("submit-a", range(1, 11)))

        await broker.publish(LANE, numbered(1, 14), source=Source("submit-a", range(1, 15)))
        await broker.publish(LANE, numbered(3, 4), source=Source("submit-a", range(3, 5)))
        await broker.publish(LANE, numbered(12, 20), source=Source("submit-a", range(12, 21)))

        assert await everything(broker) == numbered(1, 20)


@pytest.mark.parametrize(("before", "after"), [(8, 32), (32, 8), (1, 8), (8, 1)])
async def test_pushes_in_other_bundles_from_a_border_on_are_kept_once(connections, before, after):
    """The number of a bundle is its last seq: it belongs to the same push in any bundle."""
    pushes = [encode(Push("a", seq, f"to-{seq}")) for seq in range(1, 101)]
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await publish_packed(broker, pushes[:64], before)

        await publish_packed(broker, pushes, after)
        await publish_packed(broker, pushes[64:], after)

        found = [body for message in await everything(broker) for body in bodies_of(message)]
        assert found == pushes


async def test_what_a_source_has_published_last_is_known_to_another_process(connections, settings):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        assert await broker.last_of(LANE, "submit-a") == 0
        await broker.publish(LANE, [b"1", b"2"], source=Source("submit-a", [7, 32]))
        await broker.publish(LANE, [b"3"], source=Source("submit-b", [40]))
        await broker.close_source(LANE, "submit-a")
    later = type(connections)(settings)
    async with later:
        broker = (await later.one()).broker
        assert await broker.last_of(LANE, "submit-a") == 32
        await broker.publish(LANE, [b"4"], source=Source("submit-a", [33]))
        assert await broker.last_of(LANE, "submit-a") == 33
        with pytest.raises(UnknownLane):
            await broker.last_of("task-nowhere", "submit-a")


async def test_sources_do_not_count_for_each_other_nor_on_another_lane(connections):
    async with connections:
        broker = (await connections.one()).broker
        for lane in (LANE, "task-b"):
            await broker.open_lane(lane)
            for name in ("submit-a", "submit-b"):
                await broker.publish(lane, [name.encode()], source=Source(name, [7]))

            assert await everything(broker, lane) == [b"submit-a", b"submit-b"]


async def publish_packed(broker, pushes: list[bytes], most: int) -> None:
    bundles = list(packed(pushes, most))
    source = Source("submit-a", [bundle.last_seq for bundle in bundles])
    await broker.publish(LANE, [bundle.message for bundle in bundles], source=source)


async def everything(broker, lane: str = LANE) -> list[bytes]:
    """All on the lane, up to an end that is put on it now."""
    await broker.publish(lane, [b"end"])
    reading = await Reading.of(broker, lane)
    found: list[bytes] = []
    while b"end" not in found:
        found += bodies(await reading.take(1))
    await reading.close()
    return found[:-1]


async def test_opening_a_lane_again_keeps_what_is_on_it(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, [b"kept"])

        await broker.open_lane(LANE)

        assert bodies(await (await Reading.of(broker)).take(1)) == [b"kept"]


async def test_a_lane_that_another_dropped_is_opened_anew_once_it_is_missed(connections):
    async with connections:
        here, there = (backend.broker for backend in await connections.two())
        await here.open_lane(LANE)
        await there.drop_lane(LANE)
        assert LANE not in await here.lanes()

        await here.open_lane(LANE)

        assert LANE in await there.lanes()


async def test_a_lane_that_a_publish_missed_is_opened_anew(connections):
    async with connections:
        here, there = (backend.broker for backend in await connections.two())
        await here.open_lane(LANE)
        await there.drop_lane(LANE)
        with pytest.raises(UnknownLane):
            await here.publish(LANE, [b"lost"])

        await here.open_lane(LANE)

        await here.publish(LANE, [b"kept"])


async def test_a_lane_that_a_reader_missed_is_opened_anew(connections):
    async with connections:
        here, there = (backend.broker for backend in await connections.two())
        await here.open_lane(LANE)
        await there.drop_lane(LANE)
        with pytest.raises(UnknownLane):
            await Reading.of(here)

        await here.open_lane(LANE)

        await Reading.of(here)


async def test_all_open_lanes_are_listed(connections):
    async with connections:
        broker = (await connections.one()).broker
        for lane in ("task-a", "task-b", "pool-0"):
            await broker.open_lane(lane)

        assert {"task-a", "task-b", "pool-0"} <= set(await broker.lanes())


async def test_a_dropped_lane_is_gone_with_all_on_it(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 3))

        assert await broker.drop_lane(LANE) is True

        assert LANE not in await broker.lanes()
        with pytest.raises(UnknownLane, match=LANE):
            await broker.publish(LANE, [b"too late"])


async def test_a_lane_that_somebody_reads_is_not_dropped(connections):
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE)
        reading = await Reading.of(there.broker)
        await here.broker.publish(LANE, [b"safe"])

        assert await here.broker.drop_lane(LANE) is False

        assert bodies(await reading.take(1)) == [b"safe"]


async def test_a_lane_is_dropped_by_force_while_somebody_reads_it(connections):
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE)
        await Reading.of(there.broker)

        assert await here.broker.drop_lane(LANE, force=True) is True

        assert LANE not in await here.broker.lanes()


async def test_a_lane_can_be_dropped_once_its_reader_has_closed(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)

        await reading.close()

        assert await broker.drop_lane(LANE) is True


async def test_publishing_to_a_lane_never_opened_is_refused(connections):
    async with connections:
        broker = (await connections.one()).broker

        with pytest.raises(UnknownLane, match="task-nowhere"):
            await broker.publish("task-nowhere", [b"x"])


async def test_reading_a_lane_never_opened_is_refused(connections):
    async with connections:
        broker = (await connections.one()).broker

        with pytest.raises(UnknownLane, match="task-nowhere"):
            await Reading.of(broker, "task-nowhere")


async def test_the_backlog_is_not_zero_while_a_message_is_in_hand(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, [b"1"])
        taken = await (await Reading.of(broker)).take(1)
        assert await broker.backlog(LANE) > 0

        await broker.ack(taken)

        await until(lambda: _is_empty(broker))


async def test_a_lane_that_is_not_there_has_no_backlog(connections):
    async with connections:
        broker = (await connections.one()).broker

        assert await broker.backlog(LANE) == 0


async def test_delayed_messages_are_told_with_the_first_and_last_time_or_not_at_all(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        before_ms = now_ms()
        await broker.publish(LANE, [b"at once"])
        await broker.publish(LANE, [b"later", b"later too"], delay_s=600)
        await broker.publish(LANE, [b"soon"], delay_s=300)

        found = await broker.delayed(LANE)

        if found is not None:
            assert found.messages == 3
            assert 300_000 <= found.first_ms - before_ms < 330_000
            assert 600_000 <= found.last_ms - before_ms < 630_000


async def test_no_message_of_a_lane_that_is_not_there_is_delayed(connections):
    async with connections:
        broker = (await connections.one()).broker

        assert await broker.delayed("nobody-made-it") in (None, Delayed(0))


async def test_a_delayed_message_counts_as_backlog(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        assert await broker.backlog(LANE) == 0

        await broker.publish(LANE, [b"later"], delay_s=600)

        await until(lambda: _is_not_empty(broker))


async def _is_empty(broker) -> bool:
    return await broker.backlog(LANE) == 0


async def _is_not_empty(broker) -> bool:
    return await broker.backlog(LANE) > 0


async def replayed(broker, since_ms: int = 0) -> list[bytes]:
    return [body async for page in broker.replay(LANE, since_ms) for body in page]


async def test_what_is_acked_is_replayed_from_a_lane_that_keeps_it(connections):
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE, keep=True)
        await here.broker.publish(LANE, numbered(1, 20))
        reading = await Reading.of(here.broker)
        await here.broker.ack(await reading.take(15))

        assert await replayed(there.broker) == numbered(1, 20)


async def test_a_lane_that_somebody_opened_before_is_kept_when_it_is_asked_for(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.open_lane(LANE, keep=True)
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 20))
        reading = await Reading.of(broker)
        await broker.ack(await reading.take(20))

        assert await replayed(broker) == numbered(1, 20)


async def test_a_replay_takes_nothing(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE, keep=True)
        await broker.publish(LANE, numbered(1, 5))
        await replayed(broker)

        reading = await Reading.of(broker)

        assert bodies(await reading.take(5)) == numbered(1, 5)


async def test_what_is_kept_after_its_ack_is_no_backlog_and_comes_to_no_reader(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE, keep=True)
        await broker.publish(LANE, numbered(1, 8))
        first = await Reading.of(broker)
        await broker.ack(await first.take(8))
        await until(partial(_is_empty, broker))
        await first.close()
        await broker.publish(LANE, [b"new"])

        again = await Reading.of(broker)

        assert bodies(await again.take(1)) == [b"new"]
        assert again.reader.take() is None


async def test_a_replay_begins_at_a_time(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE, keep=True)
        await broker.publish(LANE, numbered(1, 3))
        await until(next_millisecond())
        since_ms = now_ms()
        await broker.publish(LANE, numbered(4, 6))

        assert await replayed(broker, since_ms) == numbered(4, 6)
        assert await replayed(broker, now_ms() + 60_000) == []


async def walked(broker, most: int, after: str = "") -> list[bytes]:
    """All that is not acked behind a place, in pages of so many."""
    found: list[bytes] = []
    while page := await broker.unacked(LANE, after, most):
        assert len(page) <= most
        found += [one.body for one in page]
        after = page[-1].place
    return found


@pytest.mark.parametrize("keep", [False, True])
async def test_what_is_not_acked_is_looked_at_in_pages_whoever_has_taken_it(connections, keep):
    async with connections:
        here, there = await connections.two()
        await here.broker.open_lane(LANE, keep=keep)
        await here.broker.publish(LANE, numbered(1, 20))
        reading = await Reading.of(here.broker)
        taken = await reading.take(12)
        await here.broker.ack([*taken[:3], taken[5], *taken[7:9]])
        await until(partial(_has, there.broker, 14))
        left = [*numbered(4, 5), *numbered(7, 7), *numbered(10, 20)]

        for most in (1, 3, 14, 100):
            assert await walked(there.broker, most) == left
        first = await there.broker.unacked(LANE, "", 4)
        await here.broker.ack([taken[9]])  # which is the last of the page
        await until(partial(_has, there.broker, 13))
        await here.broker.publish(LANE, [b"new"])
        await reading.close()  # all that it holds comes back

        assert [one.body for one in first] == left[:4]
        assert await walked(there.broker, 2, first[-1].place) == [*numbered(11, 20), b"new"]
        again = await Reading.of(there.broker)
        assert sorted(bodies(await again.take(14))) == sorted([*left[:3], *left[4:], b"new"])


async def test_what_is_delayed_is_looked_at_too(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 3), delay_s=600)
        await broker.publish(LANE, numbered(4, 6))

        assert sorted(await walked(broker, 2)) == numbered(1, 6)


async def test_of_a_lane_without_messages_nothing_is_looked_at(connections):
    async with connections:
        broker = (await connections.one()).broker
        assert await broker.unacked(LANE, "", 10) == []
        await broker.open_lane(LANE)
        assert await broker.unacked(LANE, "", 10) == []
        await broker.publish(LANE, numbered(1, 3))
        [*_, last] = await broker.unacked(LANE, "", 10)
        assert await broker.unacked(LANE, last.place, 10) == []
        reading = await Reading.of(broker)
        await broker.ack(await reading.take(3))
        await until(partial(_is_empty, broker))

        assert await broker.unacked(LANE, "", 10) == []


@pytest.mark.parametrize("place", ["x", "-1", "9" * 40, "1:2", ":" * 9, "١"])
async def test_what_is_no_place_is_refused(connections, place):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        with pytest.raises(BadInput, match="there is no such place in the list"):
            await broker.unacked(LANE, place, 10)


async def test_nothing_is_replayed_of_a_lane_that_is_dropped(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE, keep=True)
        await broker.publish(LANE, numbered(1, 3))
        assert await broker.retained_since_ms(LANE) is not None
        await broker.drop_lane(LANE)

        assert await replayed(broker) == []
        assert await broker.retained_since_ms(LANE) is None


def next_millisecond():
    begun_ms = now_ms()

    async def over() -> bool:
        return now_ms() > begun_ms + 1

    return over


async def test_a_ping_is_answered(connections):
    async with connections:
        broker = (await connections.one()).broker

        await broker.ping()
        await broker.ping()


async def test_what_waits_longer_is_hastened_and_comes_once(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        reading = await Reading.of(broker)
        await broker.publish(LANE, [b"sooner"], delay_s=90)
        await broker.publish(LANE, numbered(1, 3), delay_s=600)
        await broker.publish(LANE, [b"now"])
        [now] = await reading.take(1)

        hastened = await broker.hasten(LANE, now_ms() + 300_000)

        assert (now.body, hastened) == (b"now", 3)
        taken = await reading.take(3)
        assert sorted(bodies(taken)) == numbered(1, 3)
        await broker.ack([now, *taken])
        assert reading.reader.take() is None
        assert await broker.hasten(LANE, now_ms() + 300_000) == 0
        await until(lambda: _has(broker, 1))  # what is due sooner keeps its time


async def test_what_was_hastened_and_acked_does_not_come_again(connections, settings):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 5), delay_s=600)
        reading = await Reading.of(broker)
        assert await broker.hasten(LANE, now_ms() + 60_000) == 5
        taken = await reading.take(5)
        await broker.publish(LANE, numbered(6, 7), delay_s=600)
        await broker.ack(taken[:3])

        assert await broker.hasten(LANE, now_ms() + 60_000) == 2  # by this process or another

        more = await reading.take(2)
        await broker.ack([*taken[3:], *more])
        assert sorted(bodies([*taken, *more])) == numbered(1, 7)
        await until(lambda: _has(broker, 0))


async def test_what_another_process_delayed_wakes_its_reader_when_it_is_hastened(connections):
    async with connections:
        first, second = await connections.two()
        await first.broker.open_lane(LANE)
        reading = await Reading.of(first.broker)
        await first.broker.publish(LANE, numbered(1, 3 * BATCH), delay_s=600)

        assert await second.broker.hasten(LANE, now_ms() + 60_000) == 3 * BATCH

        assert sorted(map(int, bodies(await reading.take(3 * BATCH)))) == [*range(1, 3 * BATCH + 1)]


async def test_what_two_processes_hasten_at_once_comes_once(connections):
    async with connections:
        first, second = await connections.two()
        await first.broker.open_lane(LANE)
        await first.broker.publish(LANE, [b"sooner"], delay_s=90)
        await first.broker.publish(LANE, numbered(1, 3 * BATCH), delay_s=600)
        reading = await Reading.of(first.broker)

        at_ms = now_ms() + 300_000
        both = [one.broker.hasten(LANE, at_ms) for one in (first, second)]
        await asyncio.gather(*both, return_exceptions=True)  # one may hear that another does it
        await first.broker.publish(LANE, [b"0"])

        found = sorted(map(int, bodies(await reading.take(3 * BATCH + 1))))
        assert found == [*range(3 * BATCH + 1)]


async def test_nothing_is_hastened_on_a_lane_that_is_not_there(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)

        assert await broker.hasten(LANE, 0) == 0
        assert await broker.hasten("nobody-made-it", 0) == 0


async def _has(broker, count: int) -> bool:
    return await broker.backlog(LANE) == count
