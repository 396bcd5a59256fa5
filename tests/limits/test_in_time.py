"""What limits let go over simulated time: all of it, to whose turn it is, whatever else waits."""

from __future__ import annotations

import random

import pytest

from pushlane.core.lane import Why
from pushlane.core.task import Level
from pushlane.model.limits import Limit, Limits, Subject
from tests.limits.in_time import Lane, lanes_of, world_in_time

SHOP, FCM = Subject("app", "shop"), Subject("sink", "fcm")


@pytest.mark.parametrize("each", [1, 50])
@pytest.mark.parametrize(
    ("limits", "per_s"),
    [
        ({FCM: Limit(rate_per_s=20)}, 20),
        ({SHOP: Limit(rate_per_s=20)}, 20),
        ({FCM: Limit(rate_per_s=20), SHOP: Limit(rate_per_s=20)}, 20),
        ({FCM: Limit(rate_per_s=30), SHOP: Limit(rate_per_s=20)}, 20),
        ({FCM: Limit(rate_per_s=20), SHOP: Limit(rate_per_s=30)}, 20),
        ({FCM: Limit(rate_per_s=30), SHOP: Limit(in_flight=2)}, 30),
        ({FCM: Limit(in_flight=2), SHOP: Limit(rate_per_s=30)}, 30),
        ({FCM: Limit(rate_per_s=200), SHOP: Limit(rate_per_s=200)}, 200),
    ],
)
async def test_a_limit_is_used_whole_and_shared_by_weights_beside_another_too(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, per_s: float, each: int
) -> None:
    async with world_in_time(monkeypatch) as world:
        await lanes_of(world, limits, each)

        await world.run(10.0)

        sent = world.by_level()
        whole = sum(sent)
        assert whole >= 0.95 * 10 * per_s
        assert sent == pytest.approx(
            [0.6 * whole, 0.3 * whole, 0.1 * whole], abs=max(6, whole / 25)
        )


@pytest.mark.parametrize(
    ("limit", "processes", "takes_s"),
    [
        (Limit(rate_per_s=20), 3, 0.02),
        (Limit(in_flight=1), 1, 3.0),
        (Limit(in_flight=3), 1, 10.0),
        (Limit(in_flight=3), 3, 5.0),
    ],
)
async def test_turns_are_kept_however_long_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, limit: Limit, processes: int, takes_s: float
) -> None:
    async with world_in_time(monkeypatch) as world:
        await lanes_of(world, {FCM: limit}, processes=processes, takes_s=takes_s)

        await world.run(400.0, until=lambda: len(world.sent_at_s) >= 60)

        assert world.by_level() == pytest.approx([36, 18, 6], abs=4)


@pytest.mark.parametrize("limit", [Limit(total=50), Limit(total=50, rate_per_s=50)])
@pytest.mark.parametrize("others", [1, 10, 100])
async def test_a_total_that_is_used_up_holds_up_none_that_do_not_count_in_it(
    monkeypatch: pytest.MonkeyPatch, limit: Limit, others: int
) -> None:
    async with world_in_time(monkeypatch) as world:
        line = world.process({SHOP: limit}).line()
        for _ in range(others):
            line.lane(Level.HIGH)
        went_before = line.lane(Level.HIGH, pushes=0, chain=("sms", "fcm"))
        again = line.lane(Level.HIGH, pushes=0, attempt=2)
        await world.run(5.0)
        assert len(world.sent_at_s) == 50

        went_before.add(100)
        again.add(100)
        await world.run(10.0)

        assert (went_before.sent, again.sent) == (100, 100)
        assert len(world.sent_at_s) == 250


async def test_a_task_that_is_promoted_while_it_waits_goes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world_in_time(monkeypatch) as world:
        line = world.process({FCM: Limit(rate_per_s=10)}).line()
        for level in (Level.HIGH, Level.MEDIUM):
            line.lane(level)
        *_, promoted = [line.lane(Level.LOW) for _ in range(50)]
        await world.run(5.0)
        assert not promoted.sent

        promoted.promote(Level.HIGH)

        assert await world.run(10.0, until=lambda: promoted.sent > 0) < 1.0


async def test_a_late_high_task_goes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world_in_time(monkeypatch) as world:
        line = world.process({FCM: Limit(rate_per_s=10)}).line()
        for level in (Level.HIGH, *[Level.LOW] * 50):
            line.lane(level)
        await world.run(5.0)

        late = line.lane(Level.HIGH)

        assert await world.run(10.0, until=lambda: late.sent > 0) < 0.5


@pytest.mark.parametrize("limit", [Limit(in_flight=2), Limit(rate_per_s=20)])
async def test_sinks_share_the_limit_of_an_app_evenly(
    monkeypatch: pytest.MonkeyPatch, limit: Limit
) -> None:
    async with world_in_time(monkeypatch) as world:
        process = world.process({SHOP: limit})
        lines = [process.line(sink) for sink in ("fcm", "sms")]
        for line in lines:
            for level in Level:
                line.lane(level)

        await world.run(20.0)

        one, other = (sum(lane.sent for lane in line.lanes) for line in lines)
        assert one == pytest.approx(other, rel=0.2)


async def test_below_the_limit_hardly_any_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world_in_time(monkeypatch) as world:
        line = world.process({FCM: Limit(rate_per_s=1_000)}).line(slots=1_000)
        for _ in range(1_000):
            for _ in range(2):
                line.lane(Level.HIGH, pushes=1)
            await world.run(0.005)

        await world.run(1.0)

        assert len(world.sent_at_s) == 2_000
        assert line.tries <= 1.2 * 2_000


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_to_lanes_the_others_use_the_limits(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Lanes are paused, promoted, emptied and retired while they wait or have leave."""
    rng = random.Random(seed)
    limits = {FCM: Limit(rate_per_s=40), SHOP: Limit(rate_per_s=60, in_flight=8)}
    async with world_in_time(monkeypatch) as world:
        lanes = await lanes_of(world, limits, each=6)
        steady = [found[0] for found in lanes.values()]
        changing = [lane for found in lanes.values() for lane in found[1:]]

        for _ in range(200):
            change(rng, changing)
            await world.run(0.05)
        before = len(world.sent_at_s)
        counts = [lane.sent for lane in steady]
        await world.run(5.0)

        assert before >= 0.8 * 40 * 10
        assert len(world.sent_at_s) - before >= 0.9 * 40 * 5
        assert all(lane.sent > sent for lane, sent in zip(steady, counts, strict=True))


def change(rng: random.Random, lanes: list[Lane]) -> None:
    """Do something to one of the lanes."""
    lane = rng.choice(lanes)
    match rng.randrange(5):
        case 0 if Why.HELD in lane.blocked:
            lane.unblock(Why.HELD)
        case 0:
            lane.block(Why.HELD)
        case 1 if not lane.retired:
            lane.promote(rng.choice(list(Level)))
        case 2:
            lane.left = rng.choice([0, 0, 3])
        case 3 if not lane.retired:
            lane.add(rng.randrange(1, 20))
        case 4 if rng.random() < 0.1 and not lane.retired:
            lane.retire()
            lanes.remove(lane)
