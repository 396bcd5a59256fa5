"""What the order of keys costs: it looks at, and asks about, what changed, not all that waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.core.endings import Ending
from pushlane.core.errors import Unreachable
from pushlane.core.lane import Job, Lane, Why
from pushlane.core.names import own_lane
from pushlane.core.push import Kind, Push
from pushlane.core.task import Level, Task
from pushlane.dispatcher.gates import key_order
from pushlane.dispatcher.gates.key_order import KeyOrder, Parked
from pushlane.dispatcher.stats import Stats
from tests.core.support import message_of

MANY = 10_000
A_STEP = 500
TASK = Task(id="t", level=Level.HIGH, lane=own_lane("t"), ordered=True)
PATIENCE_S, FLIGHT_S = 3_600.0, 60.0

looked_at: list[Parked] = []


class Watched(Parked):
    """One that tells when something looks at it."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        looked_at.append(self)
        return super().__getattribute__(name)


class Registry:
    """Counts the questions; knows what is finished."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.asked: list[int] = []
        self.is_away = False

    async def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        if self.is_away:
            raise Unreachable("it is away")
        self.asked += seqs
        return [seq in self.done for seq in seqs]


class Around:
    """The other parts of a dispatcher, as far as the order of keys knows them."""

    def __init__(self) -> None:
        self.task = TASK
        self.sink = "default"
        self.later_s: list[float] = []
        self.over: list[int] = []

    def find(self, task_id: str) -> Task:
        return self.task

    def drop_copy(self, job: Job) -> None:
        self.over.append(job.seq)

    def put_off(self, job: Job, delay_s: float) -> None:
        self.later_s.append(delay_s)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(key_order, "time", clock)
    monkeypatch.setattr(key_order, "Parked", Watched)
    yield clock
    looked_at.clear()


class Desk:
    """The order of keys with what is around it made up, a step at a time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.registry = Registry()
        self.around = Around()
        self.stats = Stats()
        self.lane = Lane(TASK.lane, TASK.level)
        around: Any = self.around
        registry: Any = self.registry
        self.order = KeyOrder(
            registry, around, around.find, self.stats, PATIENCE_S, FLIGHT_S, lambda _: False
        )

    def take(self, seq: int, after: int) -> None:
        push = Push(TASK.id, seq, "nobody", after_seq=after)
        job = message_of(TASK.lane, seq).take(self.lane)
        job.push, job.task = push, self.around.task
        self.order.lets(job, None)

    @property
    def went(self) -> list[int]:
        return [job.seq for job in self.lane._returned or ()]

    async def step(self, after_s: float = 0.05) -> int:
        """Let a step pass; return how many parked pushes it looked at."""
        self.clock.now_s += after_s
        looked_at.clear()
        self.registry.asked.clear()
        await self.order._step(self.clock.now_s)
        return len({id(one) for one in looked_at})

    async def settle(self) -> None:
        """Let the registry be asked about all that is new."""
        for _ in range(MANY // A_STEP + 1):
            await self.step(0.0)


def chained(desk: Desk, keys: int) -> None:
    """So many keys, each of a long chain whose first push is in another process."""
    for seq in range(keys + 1, MANY + keys + 1):
        desk.take(seq, seq - keys)


async def test_many_that_wait_for_few_cost_a_question_for_each_of_these(clock: Clock) -> None:
    desk = Desk(clock)
    chained(desk, 10)
    await desk.settle()

    looked = await desk.step()

    assert sorted(desk.registry.asked) == list(range(1, 11))
    assert looked <= 10
    assert desk.order.parked == MANY


async def test_many_that_wait_for_as_many_are_asked_about_in_turn(clock: Clock) -> None:
    desk = Desk(clock)
    chained(desk, MANY)
    await desk.settle()

    asked: list[int] = []
    while len(asked) < MANY:
        assert await desk.step(0.01) <= A_STEP
        assert len(desk.registry.asked) <= A_STEP
        asked += desk.registry.asked

    assert sorted(asked) == list(range(1, MANY + 1)), "each once before any again"


async def test_a_burst_of_new_ones_is_asked_about_in_parts(clock: Clock) -> None:
    desk = Desk(clock)
    chained(desk, 10)

    assert await desk.step() <= A_STEP
    assert len(desk.registry.asked) <= 2 * A_STEP


async def test_what_is_finished_elsewhere_frees_the_next_of_its_key_alone(clock: Clock) -> None:
    desk = Desk(clock)
    chained(desk, 10)
    await desk.settle()
    desk.registry.done = {4}

    looked = await desk.step()
    looked += await desk.step(0.0)

    assert desk.went == [14]
    assert looked <= 2 * 10


async def test_many_that_wait_for_the_same_push_are_each_looked_at_a_few_times(
    clock: Clock,
) -> None:
    """As a writer of its own may number them."""
    desk = Desk(clock)
    for seq in range(2, A_STEP + 2):
        desk.take(seq, 1)
    await desk.settle()
    looked_at.clear()

    first = message_of(TASK.lane, 1, TASK.id).take(desk.lane)
    await desk.order.settled([Ending(first, Kind.DELIVERED)], [], [])

    assert len(desk.went) == A_STEP
    assert len(looked_at) <= 50 * A_STEP


async def test_what_another_process_has_sent_meanwhile_is_over(clock: Clock) -> None:
    """As when this process was stopped, and all that it held went to others."""
    desk = Desk(clock)
    desk.take(2, 1)
    desk.take(3, 2)
    desk.take(4, 3)
    await desk.step()

    desk.registry.done = {1, 2, 3}
    for _ in range(4):
        await desk.step(0.0 if desk.around.over else 0.05)

    assert (desk.around.over, desk.went) == ([2, 3], [4])


async def test_what_another_process_has_sent_is_over_however_long_it_waited(clock: Clock) -> None:
    desk = Desk(clock)
    desk.take(2, 1)
    await desk.step()

    desk.registry.done = {2}
    await desk.step(PATIENCE_S + 1.0)
    await desk.step(0.0)

    assert (desk.around.over, desk.went, desk.stats.out_of_order) == ([2], [], 0)


async def test_a_push_that_waited_for_too_long_goes_and_is_counted(clock: Clock) -> None:
    desk = Desk(clock)
    chained(desk, 10)
    await desk.settle()

    await desk.step(PATIENCE_S + 1.0)
    await desk.step(0.0)

    assert sorted(desk.went) == list(range(11, 21)), "the first of each key, and none behind it"
    assert desk.stats.out_of_order == 10


async def test_a_change_of_a_task_gives_back_what_waits_of_it(clock: Clock) -> None:
    desk = Desk(clock)
    for seq in range(11, 31):
        desk.take(seq, seq - 10)
    await desk.step()
    desk.around.task = replace(TASK, quota=2)

    desk.order.on_task(desk.around.task)
    await desk.step()

    assert sorted(desk.went) == list(range(11, 31))
    assert (desk.order.parked, desk.lane.parked) == (0, {})


async def test_what_was_taken_of_a_task_before_it_changed_goes_back_too(clock: Clock) -> None:
    desk = Desk(clock)
    job = message_of(TASK.lane, 11).take(desk.lane)
    job.push, job.task = Push(TASK.id, 11, "nobody", after_seq=1), TASK
    desk.around.task = replace(TASK, quota=2)
    desk.order.lets(job, None)

    await desk.step()

    assert desk.went == [11]


async def test_what_waits_of_a_lane_that_is_left_to_others_is_given_back(clock: Clock) -> None:
    desk = Desk(clock)
    desk.take(11, 1)
    await desk.step()
    desk.lane.block(Why.FORMAT)

    await desk.step()

    assert desk.went == [11]


async def test_what_the_registry_could_not_be_asked_is_asked_later(clock: Clock) -> None:
    desk = Desk(clock)
    desk.take(11, 1)
    desk.registry.is_away = True
    with pytest.raises(Unreachable):
        await desk.step()
    desk.registry.is_away = False

    await desk.step()

    assert desk.registry.asked[:2] == [11, 1]
