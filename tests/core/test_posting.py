"""Pushes that are posted, and those that are delivered: whatever comes of them, nothing is held.

One machine of states mixes both ways over real parts (breaker, shares, charges of limits), with a
sink that answers late, twice, wrongly or never, refuses, raises, is opened anew and is given up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pushlane.core.endings import Ending
from pushlane.core.lane import Job, Lane
from pushlane.core.lanes import Lanes
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome, Scope
from pushlane.core.settle import Settler
from pushlane.core.slots import Slots
from pushlane.core.task import DeliveryMode, Level, Task
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.breaker import Breaker
from pushlane.dispatcher.checked_sink import CheckedSink
from pushlane.dispatcher.gates.budget_gate import BudgetGate
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.slow import Shares
from pushlane.dispatcher.stats import Stats
from tests.core.support import message_of

SLOTS = 6
OUTCOMES = [
    DELIVERED,
    Outcome.retry("HTTP 500", 0.0, arrival=Arrival.FAILED),
    Outcome.throttled("HTTP 429", 0.0),
    Outcome.throttled("no connection to the webhook"),
    Outcome.refused("HTTP 401"),
    Outcome.dead("HTTP 404", scope=None),
    Outcome.gone("HTTP 410"),
    Outcome.retry("the webhook's connection broke", arrival=Arrival.UNKNOWN),
]

Answer = Callable[[Any, Outcome], None]


class Posting:
    """A sink whose answers are the test's. `how` is what comes of the next `post`."""

    name, batch_size, mixes_tasks, hosts_code = "webhook", 1, True, False

    def __init__(self) -> None:
        self.can_post = True
        self.how = "goes"
        self.posted: list[tuple[Answer, Any, Delivery]] = []
        self.delivering: list[asyncio.Future[Outcome]] = []

    def post(self, delivery: Delivery, answered: Answer, token: Any) -> bool:
        if self.how == "raises":
            raise RuntimeError("of the sink's own")
        if self.how == "does not go":
            return False
        self.posted.append((answered, token, delivery))
        return True

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.delivering.append(answer)
        return [await answer for _ in batch]

    async def close(self) -> None:
        """Nothing is open."""


class Ended:
    """What the settler says: of which pushes, and how often."""

    def __init__(self) -> None:
        self.seqs: Counter[int] = Counter()

    def count(self, lane: Lane) -> None:
        """Counted when it is added."""

    def count_all(self, jobs: Sequence[Job]) -> None:
        """Counted when they are added."""

    def add_new(self, endings: Sequence[Ending]) -> None:
        self.seqs.update(ending.job.seq for ending in endings)

    def add(self, ending: Ending) -> None:
        self.seqs[ending.job.seq] += 1


class Charges:
    """Budgets, as far as the gate lands and undoes what it has charged."""

    def __init__(self) -> None:
        self.held = 0
        self.uncounted = 0

    def take(self) -> Any:
        self.held += 1
        return SimpleNamespace(uncount=self._uncount)

    def land(self, _: object) -> None:
        self.held -= 1

    undo = land

    def _uncount(self) -> None:
        self.uncounted += 1


class House:
    """Slots over real parts, with one lane that always has a push."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sink = Posting()
        self.ended = Ended()
        self.charges = Charges()
        stats: Any = Stats()
        turns: Scheduler[Lane] = Scheduler(slots=SLOTS)
        self.lanes = Lanes(turns, lambda: self.now_s)
        self.lane = self.lanes.add("task-t", Level.HIGH)
        self.stats = stats
        ended: Any = self.ended
        self.settler = Settler("webhook", ended, ended, stats, lambda _: 0.0, lambda *_: None)
        self.breaker = Breaker(SLOTS, 86_400.0)
        self.outage = Outage(self.breaker, self.settler, stats, clock_s=lambda: self.now_s)
        self.shares = Shares(turns, SLOTS)
        nothing: Any = self.charges
        self.gate = BudgetGate("webhook", 1.0, nothing, nothing, stats, turns.weights)
        self.open: Any = CheckedSink(self.sink)
        watchers = [self.shares, self.gate]
        self.slots = Slots(self.open, SLOTS, self.settler, self.outage, watchers, stats, self.lanes)
        self.launched: dict[int, Job] = {}
        self.old: list[Posting] = []
        self.task = Task(id="t", level=Level.HIGH, lane=self.lane.name, max_attempts=3)

    def launch(self, most: int) -> list[Job]:
        """Let up to so many pushes go, first those that were given back, as far as may be."""
        room = self.outage.room(self.slots.room)
        jobs = [self._take() for _ in range(min(most, room))]
        for job in jobs:
            self.gate._charges[job] = self.charges.take()
            self.lanes.turns.slot_taken(Level.HIGH)
            self.launched[job.seq] = job
        if jobs:
            self.slots.launch(jobs)
        return jobs

    def _take(self) -> Job:
        if self.lane.pending < self.lane.in_hand:
            job = self.lane.take()
            assert job is not None
            return job
        seq = len(self.launched) + 1
        job = message_of(self.lane.name, seq).take(self.lane)
        self.lane.in_hand += 1
        job.task = self.task
        self.launched[seq] = job
        return job

    def reopen(self) -> None:
        self.old.append(self.sink)
        self.sink = Posting()
        self.open._sink = self.sink

    @property
    def held(self) -> tuple[int, ...]:
        """Slots, charges, permits, and what the shares and the levels think is held."""
        live = sum(dwell.watch.in_flight for dwell in self.shares._dwells.values())
        permits = self.breaker._in_flight
        levels = self.lanes.turns._rings[Level.HIGH].held
        return self.slots.in_flight, self.charges.held, permits, live, levels


class BothWays(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.house = House()

    def _do(self, step: Callable[[], object]) -> None:
        async def one() -> None:
            step()
            for _ in range(4):
                await asyncio.sleep(0)

        self.loop.run_until_complete(one())

    @rule(
        most=st.integers(1, 4),
        how=st.sampled_from(["goes", "goes", "goes", "does not go", "raises"]),
        can_post=st.booleans(),
    )
    def launch(self, most: int, how: str, can_post: bool) -> None:
        self.house.sink.how, self.house.sink.can_post = how, can_post
        self._do(lambda: self.house.launch(most))

    @precondition(lambda self: self._posted())
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), twice=st.booleans())
    def answer(self, data: st.DataObject, outcome: Outcome, twice: bool) -> None:
        posted = self._posted()
        some = data.draw(st.lists(st.sampled_from(range(len(posted))), min_size=1, max_size=4))

        def step() -> None:
            for place in some:  # an answer may come to one that was answered long ago
                answered, token, _ = posted[place]
                answered(token, outcome)
                if twice:
                    answered(token, DELIVERED)

        self._do(step)

    @precondition(lambda self: self._delivering())
    @rule(data=st.data(), outcome=st.sampled_from([*OUTCOMES, None]))
    def deliver(self, data: st.DataObject, outcome: Outcome | None) -> None:
        future = data.draw(st.sampled_from(self._delivering()))
        if outcome is None:
            self._do(lambda: future.set_exception(RuntimeError("of the sink's own")))
        else:
            self._do(lambda: future.set_result(outcome))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.house.now_s += seconds

    @rule()
    def reopen(self) -> None:
        self.house.reopen()

    @rule()
    def give_up(self) -> None:
        self.loop.run_until_complete(self.house.slots.give_up())
        assert self.house.held == (0, 0, 0, 0, 0)

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        slots, charges, permits, live, levels = self.house.held
        assert slots == charges == live == levels
        assert 0 <= permits <= slots <= SLOTS
        assert max(self.house.ended.seqs.values(), default=0) <= 1
        self.house.slots.raise_failure()

    def teardown(self) -> None:
        self.loop.run_until_complete(self.house.slots.give_up())
        before = dict(self.house.ended.seqs)
        self._do(lambda: [answered(token, DELIVERED) for answered, token, _ in self._posted()])
        assert self.house.held == (0, 0, 0, 0, 0)
        assert self.house.ended.seqs == before
        self.loop.close()

    def _sinks(self) -> list[Posting]:
        return [self.house.sink, *self.house.old]

    def _posted(self) -> list[tuple[Answer, Any, Delivery]]:
        return [one for sink in self._sinks() for one in sink.posted]

    def _delivering(self) -> list[asyncio.Future[Outcome]]:
        return [one for sink in self._sinks() for one in sink.delivering if not one.done()]


BothWays.TestCase.settings = profile(max_examples=150, stateful_step_count=40, deadline=None)
test_any_order_of_both_ways_holds_nothing_and_settles_each_once = BothWays.TestCase


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def answers(house: House) -> list[tuple[Answer, Any, Delivery]]:
    return house.sink.posted


async def test_what_is_answered_in_one_turn_lands_together() -> None:
    house = House()
    landings: list[int] = []
    landed = house.outage.landed
    house.outage.landed = (  # type: ignore[method-assign]
        lambda jobs, outcomes: landings.append(len(jobs)) or landed(jobs, outcomes)
    )
    house.launch(5)
    for answered, token, _ in answers(house)[:3]:
        answered(token, DELIVERED)
    assert house.slots.in_flight == 5
    await turn()
    for answered, token, _ in answers(house)[3:]:
        answered(token, DELIVERED)
    await turn()

    assert landings == [3, 2]
    assert house.ended.seqs == dict.fromkeys(range(1, 6), 1)


@pytest.mark.parametrize(
    ("outcome", "released"),
    [
        (DELIVERED, 1),
        (Outcome.gone("HTTP 410"), 1),
        (Outcome.throttled("HTTP 429", scope=Scope.RECIPIENT), 1),
        (Outcome(Kind.RETRY, "no answer", arrival=Arrival.UNKNOWN, is_silent=True), 1),
        (Outcome.throttled("no connection to the webhook"), 0),
        (Outcome.retry("HTTP 503"), 0),
        (Outcome.refused("HTTP 401"), 0),
    ],
)
async def test_the_pace_of_a_sink_is_that_of_answers_that_are_not_its_failure(
    outcome: Outcome, released: int
) -> None:
    house = House()
    house.launch(1)
    [(answered, token, _)] = answers(house)
    [batch] = house.slots._posted
    batch.since_s -= 5.0
    answered(token, outcome)
    await turn()

    assert house.stats.released == released
    assert house.stats.held_s == pytest.approx(5.0 * released, abs=0.5)


async def test_pushes_of_two_permits_are_told_to_the_breaker_each_by_its_own() -> None:
    house = House()
    told: list[list[int]] = []
    landed = house.outage.landed
    house.outage.landed = (  # type: ignore[method-assign]
        lambda jobs, outcomes: told.append([job.permit for job in jobs]) or landed(jobs, outcomes)
    )
    first = house.launch(2)
    second = house.launch(2)
    for job in second:
        job.permit = -1
    for batch in house.slots._posted:
        if batch.jobs[0] in second:
            batch.permit = -1
    for answered, token, _ in answers(house):
        answered(token, DELIVERED)
    await turn()

    assert [len(some) for some in told] == [2, 2]
    assert told[0] == [job.permit for job in first]


@pytest.mark.parametrize("how", ["does not go", "goes"])
async def test_a_push_that_does_not_go_is_delivered(how: str) -> None:
    house = House()
    house.sink.how = how

    [job] = house.launch(1)
    at_once = job.dispatched_at_ms
    await turn()

    assert bool(at_once) == bool(answers(house)) == (how == "goes")
    assert len(house.sink.delivering) == (how != "goes")
    await house.slots.give_up()


@pytest.mark.parametrize("guards", [0, 1])
async def test_a_push_that_a_guard_concerns_is_delivered(guards: int) -> None:
    house = House()
    job = house._take()
    job.guards = (Nobody(),) * guards
    house.lanes.turns.slot_taken(Level.HIGH)
    house.slots.launch([job])
    await turn()

    assert (len(answers(house)), len(house.sink.delivering)) == (1 - guards, guards)
    await house.slots.give_up()


class Nobody:
    """A guard that lets all go."""

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        return list(jobs)

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
        """Nothing to learn."""


async def test_a_sink_that_raises_may_have_sent_it() -> None:
    house = House()
    house.task = Task(id="t", level=Level.HIGH, lane="task-t", delivery=DeliveryMode.AT_MOST_ONCE)
    house.sink.how = "raises"
    house.launch(1)
    assert house.slots.in_flight == 1
    await turn()

    assert house.slots.in_flight == 0
    assert house.ended.seqs == {1: 1}


async def test_a_fault_of_ours_costs_no_other_its_slot_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    house.launch(3)

    def fail(*_: object) -> None:
        raise LookupError("of ours")

    monkeypatch.setattr(house.settler, "delivered", fail)
    for answered, token, _ in answers(house):
        answered(token, DELIVERED)
    await turn()

    assert house.held[0] == house.held[1] == house.held[3] == 0
    with pytest.raises(LookupError):
        house.slots.raise_failure()


async def test_a_watcher_that_raises_ends_the_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.launch(1)
    house.lanes.awake.clear()

    def fail(*_: object) -> None:
        raise LookupError("of ours")

    monkeypatch.setattr(house.gate, "landed", fail)
    [(answered, token, _)] = answers(house)
    answered(token, DELIVERED)
    await turn()

    assert house.lanes.awake.is_set()
    with pytest.raises(LookupError):
        house.slots.raise_failure()


async def test_what_is_answered_as_the_drain_ends_lands_first() -> None:
    house = House()
    house.launch(2)
    answered, token, _ = answers(house)[0]
    answered(token, DELIVERED)

    late = await house.slots.landed(0)

    assert (late, house.ended.seqs) == (1, {1: 1})
    await house.slots.give_up()
    assert house.held == (0, 0, 0, 0, 0)


async def test_an_answer_is_cleaned_of_what_its_own_push_holds() -> None:
    house = House()
    reasons: list[str] = []
    settle = house.settler.settle
    house.settler.settle = (  # type: ignore[method-assign]
        lambda job, outcome, at_ms=0: reasons.append(outcome.reason) or settle(job, outcome, at_ms)
    )
    house.launch(2)
    (_, _, first), (answered, token, _) = answers(house)
    answered(token, Outcome.dead("no nobody here", scope=Scope.PUSH))
    answers(house)[0][0](answers(house)[0][1], Outcome.dead("no", scope="x"))  # type: ignore[arg-type]
    await turn()

    assert first.push.recipient == "nobody"
    assert reasons[0] == "no *** here"
    assert reasons[1].startswith("sink answered an unknown scope")
