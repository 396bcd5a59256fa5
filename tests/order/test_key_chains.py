"""The order of keys, without a registry: whatever happens, no push goes before its predecessor."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.lane import Job, Lane, Why
from pushlane.core.names import own_lane
from pushlane.core.push import Push
from pushlane.core.task import Level, Task
from pushlane.dispatcher.gates.key_order import KeyChains, Parked, StallDetector, Verdict
from pushlane.producers.predecessors import Predecessors
from tests.core.support import message_of

TASK = Task(id="t", level=Level.HIGH, lane=own_lane("t"), ordered=True)


def lane_of(task: Task) -> Lane:
    return Lane(task.lane, task.level)


def parked(seq: int, after: int, lane: Lane | None = None, since_s: float = 0.0) -> Parked:
    push = Push(TASK.id, seq, "nobody", after_seq=after)
    job = message_of(TASK.lane, seq).take(lane or lane_of(TASK))
    job.push, job.task = push, TASK
    return Parked(job, since_s)


def test_the_first_of_a_key_goes_when_it_is_not_finished() -> None:
    chains = KeyChains()
    chains.park(one := parked(3, 0))

    assert chains.answer(one, is_over=False, is_next=False, now_s=0) is Verdict.GO


@pytest.mark.parametrize("after", [3, 4, 2**32 - 1])
def test_a_push_that_names_itself_or_a_later_one_waits_for_nobody(after: int) -> None:
    chains = KeyChains()
    chains.park(one := parked(3, after))

    assert chains.answer(one, is_over=False, is_next=False, now_s=0) is Verdict.GO


def test_what_is_finished_already_is_over() -> None:
    chains = KeyChains()
    chains.park(one := parked(3, 0))

    assert chains.answer(one, is_over=True, is_next=True, now_s=0) is Verdict.OVER
    assert chains.is_idle


def test_a_push_waits_until_the_one_before_it_is_recorded() -> None:
    chains = KeyChains()
    chains.park(one := parked(5, 3))

    assert chains.answer(one, is_over=False, is_next=False, now_s=0) is Verdict.WAIT
    assert chains.finished(("t", 3), 0) == [one]


def test_nothing_goes_before_the_registry_was_asked_about_it() -> None:
    chains = KeyChains()
    chains.park(one := parked(5, 3))

    assert chains.finished(("t", 3), 0) == []
    assert chains.answer(one, is_over=False, is_next=False, now_s=0) is Verdict.GO


def test_an_answer_from_before_a_copy_was_finished_sends_no_second_one() -> None:
    chains = KeyChains()
    chains.park(first := parked(3, 0))
    chains.answer(first, is_over=False, is_next=False, now_s=0)
    chains.park(second := parked(3, 0))

    chains.finished(("t", 3), 0)

    assert chains.answer(second, is_over=False, is_next=True, now_s=0) is Verdict.OVER


def test_a_second_copy_waits_for_the_first() -> None:
    chains = KeyChains()
    chains.park(first := parked(3, 0))
    chains.park(second := parked(3, 0))
    chains.answer(first, is_over=False, is_next=False, now_s=0)

    assert chains.answer(second, is_over=False, is_next=False, now_s=0) is Verdict.WAIT
    chains.finished(("t", 3), 0)
    assert chains.answer(second, is_over=True, is_next=True, now_s=0) is Verdict.OVER


def test_the_registry_is_not_asked_again_for_what_waits_for_a_push_that_is_here() -> None:
    chains = KeyChains()
    chains.park(first := parked(3, 2))
    chains.park(second := parked(5, 3))
    for one in (first, second):
        chains.answer(one, is_over=False, is_next=False, now_s=0)

    assert (chains.fresh(9), chains.away(9)) == ([], [("t", 2)])


def test_it_is_asked_once_for_all_that_wait_for_the_same_push() -> None:
    chains = KeyChains()
    copies = [parked(3, 2) for _ in range(5)]
    for one in copies:
        chains.park(one)
        chains.answer(one, is_over=False, is_next=False, now_s=0)
    assert chains.away(9) == [("t", 2)]

    assert chains.finished(("t", 2), 0) == copies[:1]
    assert chains.away(9) == []


def test_what_is_waited_for_is_asked_about_in_turn() -> None:
    chains = KeyChains()
    for seq in (11, 12, 13):
        chains.park(parked(seq, seq - 10))

    asked = [chains.away(2) for _ in range(3)]

    assert [seq for places in asked for _, seq in places] == [1, 2, 3, 1, 2, 3]


def test_what_waits_for_too_long_goes_without_the_one_before_it_and_nothing_else() -> None:
    chains = KeyChains()
    chains.park(old := parked(3, 1, since_s=10.0))
    chains.park(parked(3, 1, since_s=20.0))
    for one in list(chains.fresh(9)):
        chains.answer(one, is_over=False, is_next=False, now_s=20)

    chains.overdue(("t", 1), before_s=10.0)
    assert chains.fresh(9) == []
    chains.overdue(("t", 1), before_s=15.0)
    assert chains.fresh(9) == [old]
    assert chains.answer(old, is_over=False, is_next=False, now_s=20) is Verdict.GO
    assert old.is_late


def test_nothing_is_left_of_what_waits_no_longer() -> None:
    chains, lane = KeyChains(), lane_of(TASK)
    some = [parked(1, 0, lane), parked(2, 1, lane), parked(5, 4, lane)]
    for one in some:
        chains.park(one)
    assert (chains.lanes, chains.of_lane(lane), chains.of_task("t")) == ([lane], some, some)

    for one in some:
        chains.remove(one)

    assert (chains.lanes, chains.of_lane(lane), chains.of_task("t")) == ([], [], [])
    assert not chains.of_task("t")
    assert (chains.fresh(9), chains.away(9), len(chains)) == ([], [], 0)


def test_it_is_asked_again_when_that_push_went_back_to_a_lane() -> None:
    chains = KeyChains()
    chains.park(first := parked(3, 0))
    chains.park(second := parked(5, 3))
    chains.answer(second, is_over=False, is_next=False, now_s=0)
    chains.answer(first, is_over=False, is_next=False, now_s=0)
    assert (chains.fresh(9), chains.away(9)) == ([], [])

    chains.let_back(("t", 3))

    assert (chains.fresh(9), chains.away(9)) == ([], [("t", 3)])


def test_a_push_that_is_never_heard_of_again_is_not_waited_for_for_ever() -> None:
    chains = KeyChains()
    chains.park(first := parked(3, 0))
    chains.answer(first, is_over=False, is_next=False, now_s=10)
    chains.park(copy := parked(3, 0))

    chains.forget(before_s=11)

    assert chains.answer(copy, is_over=False, is_next=False, now_s=12) is Verdict.GO


MANY = 1_000


class World:
    """Two processes, one registry, and copies of pushes that come, go and come again."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        last = Predecessors()
        self.after = [0] * (len(keys) + 1)
        for seq, key in enumerate(keys, start=1):
            self.after[seq] = last.of(key)
            last.add(key, seq)
        self.done: set[int] = set()
        self.sent: list[int] = []
        self.lane = list(range(1, len(keys) + 1))
        self.crew = [KeyChains(), KeyChains()]
        self.flying: list[list[int]] = [[], []]

    def take(self, who: int, place: int) -> None:
        if self.lane:
            seq = self.lane.pop(place % len(self.lane))
            self.crew[who].park(parked(seq, self.after[seq]))

    def ask(self, who: int) -> None:
        chains = self.crew[who]
        for one in chains.fresh(MANY):
            seq, after = one.job.push.seq, one.job.push.after_seq
            verdict = chains.answer(
                one, is_over=seq in self.done, is_next=after in self.done, now_s=0
            )
            if verdict is Verdict.GO:
                self.send(who, seq)
            elif verdict is Verdict.OVER:
                chains.ended_elsewhere(("t", seq))
        for place in chains.away(MANY):
            if place[1] in self.done:
                chains.ended_elsewhere(place)

    def finish(self, who: int, seq: int) -> None:
        for one in self.crew[who].finished(("t", seq), 0):
            self.send(who, one.job.push.seq)

    def send(self, who: int, seq: int) -> None:
        self.sent.append(seq)
        self.flying[who].append(seq)

    def land(self, who: int, *, fails: bool) -> None:
        if not self.flying[who]:
            return
        seq = self.flying[who].pop(0)
        if fails:
            self.lane.append(seq)
            self.crew[who].let_back(("t", seq))
            return
        self.done.add(seq)
        self.finish(who, seq)

    def kill(self, who: int) -> None:
        """All that it had comes again, in whatever order."""
        self.lane += [one.job.push.seq for one in self.crew[who].of_task("t")] + self.flying[who]
        self.crew[who], self.flying[who] = KeyChains(), []

    def drain(self) -> None:
        """Whatever has happened, one process alone sends the rest."""
        self.kill(1)
        for _ in range(len(self.keys) + 1):
            while self.lane:
                self.take(0, -1)
            self.ask(0)
            while self.flying[0]:
                self.land(0, fails=False)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "ask", "land", "land", "fail", "kill"]),
        st.integers(0, 1),
        st.integers(0, 30),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=25), STEPS)
def test_whatever_happens_no_push_goes_after_a_later_one_of_its_key_and_all_go(keys, steps) -> None:
    world = World(keys)
    for step, who, place in steps:
        match step:
            case "take":
                world.take(who, place)
            case "ask":
                world.ask(who)
            case "land" | "fail":
                world.land(who, fails=step == "fail")
            case "kill":
                world.kill(who)
    world.drain()

    latest: dict[str, int] = {}
    for seq in world.sent:
        key = keys[seq - 1]
        assert seq >= latest.get(key, 0)
        latest[key] = seq
    assert set(world.sent) == set(range(1, len(keys) + 1))


def test_keys_of_one_bucket_share_a_chain() -> None:
    last = Predecessors()
    last.add("plumless", 4)

    assert last.of("buckeroo") == 4  # the same CRC-32
    assert last.of("other") == 0


class FullLane(Lane):
    """One that has more to give, and nothing of it may be taken."""

    def __init__(self, in_flight: int = 0) -> None:
        super().__init__(TASK.lane, TASK.level)
        self.main.add([message_of(self.name)])
        self.in_flight = in_flight
        self.fill()

    def fill(self) -> None:
        self.park_so_many(self.room)
        self.in_hand = len(self.parked) + self.in_flight

    def park_so_many(self, count: int) -> None:
        message = message_of(self.name)
        push = Push(TASK.id, 1, "nobody")
        self.parked = {Job(self, message, 0, push): Why.KEYS for _ in range(count)}


def fill_up(detector: StallDetector, lane: FullLane) -> float:
    """Stuck over and over, until it has all the room it may have; when that is."""
    now_s = 0.0
    while not detector.stuck([lane], now_s):
        lane.fill()
        now_s += 0.4
    return now_s


def test_a_full_lane_on_which_nothing_goes_gets_more_room() -> None:
    detector, lane = StallDetector(), FullLane()

    rooms = []
    for now_s in (0.0, 0.2, 0.4, 0.5, 0.8):
        assert detector.stuck([lane], now_s) == {}
        rooms.append(lane.room)
        lane.fill()

    assert rooms == [1_000, 1_000, 2_000, 2_000, 3_000]


def test_one_that_has_too_much_has_some_put_off_each_time_for_longer() -> None:
    detector, lane = StallDetector(), FullLane()
    now_s = fill_up(detector, lane)

    again = [detector.stuck([lane], now_s + more_s) for more_s in (0.2, 0.4, 0.8)]

    assert lane.room == 10_000
    assert again == [{}, {lane: 2.0}, {lane: 4.0}]


def test_a_lane_of_which_something_went_is_not_stuck() -> None:
    detector, lane = StallDetector(), FullLane()
    detector.stuck([lane], 0)

    detector.went(lane)
    detector.stuck([lane], 0.4)

    assert lane.room == 1_000


def test_a_lane_of_which_something_is_in_flight_is_not_stuck() -> None:
    detector, lane = StallDetector(), FullLane(in_flight=1)

    detector.stuck([lane], 0)
    detector.stuck([lane], 5)

    assert lane.room == 1_000


def test_room_that_is_no_longer_needed_goes_again() -> None:
    detector, lane = StallDetector(), FullLane()
    fill_up(detector, lane)

    lane.park_so_many(1_500)
    detector.stuck([lane], 100)

    assert lane.room == 2_500


def test_what_came_due_leaves_the_main_lane_some_room() -> None:
    lane = FullLane()
    lane.later.add([message_of(lane.later.name)])

    lane.park_so_many(700)
    assert lane_of_next(lane) == lane.main.name
    lane.park_so_many(400)
    assert lane_of_next(lane) == lane.later.name


def lane_of_next(lane: Lane) -> str:
    job = lane.take()
    assert job is not None
    return job.came_on
