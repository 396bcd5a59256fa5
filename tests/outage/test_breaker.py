"""The breaker: what opens it and what does not, what a failure costs, how probes bring it back."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pushlane.core.push import DELIVERED, EXPIRED, Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.breaker import (
    LONGEST_REST_S,
    PROBE_EVERY_S,
    QUIET_S,
    RISE_S,
    STORM_PATIENCE_S,
    TRICKLE_EVERY_S,
    Breaker,
    BreakerState,
    View,
    restraint,
)
from pushlane.dispatcher.failures import Flight, Sign, sign_of
from tests.outage.outages import (
    BROKEN,
    BUSY,
    GONE,
    NOT_FOUND,
    PATIENCE_S,
    Answers,
    Dispatcher,
    at_random,
    down,
    within,
)

SLOTS = 50
SILENT = Outcome.dead("timed out after 30 s", arrival=Arrival.UNKNOWN, scope=None)
SILENT_RETRIED = Outcome(Kind.RETRY, "timed out", arrival=Arrival.UNKNOWN, is_silent=True)
UNCONNECTED = replace(Outcome.throttled("no connection"), is_silent=True)
ANSWERS = [BUSY, BROKEN, NOT_FOUND]
EARLY_PROBES = 6
PROBES_PER_S = 0.3
LONG_S = 4 * PROBE_EVERY_S[1] + QUIET_S
ROUNDING_S = 1e-6


def flight(number: int = 0, **fields: object) -> Flight:
    return Flight(f"t-{number}", "t", "a", **fields)  # type: ignore[arg-type]


class Desk:
    """A breaker with a clock: sends pushes, each answered at once."""

    def __init__(self, patience_s: float = PATIENCE_S, quotes: bool = False) -> None:
        chance = random.Random(5).random
        self.breaker = Breaker(SLOTS, patience_s, quotes=quotes, chance=chance)
        self.now_s = 0.0
        self.sent = 0

    @property
    def state(self) -> BreakerState:
        return self.breaker.view().state

    def room(self) -> int:
        return self.breaker.room(self.now_s, SLOTS)

    def send(self, outcome: Outcome, count: int = 1, **fields: object) -> float | None:
        """What came of the last one."""
        result = None
        for _ in range(count):
            self.sent += 1
            permit = self.breaker.admit(self.now_s, 1)
            result = self.breaker.landed(self.now_s, permit, flight(self.sent, **fields), outcome)
        return result

    def open(self, failure: Outcome = BUSY) -> None:
        self.send(DELIVERED, 100)
        self.now_s += QUIET_S
        self.send(failure, 20 if failure is not BUSY else 10)
        assert self.state is BreakerState.OPEN

    def until_probe(self) -> float:
        """How long it rested."""
        began_s = self.now_s
        wake_at_s = self.breaker.wake_at_s()
        assert wake_at_s is not None
        assert self.breaker.room(wake_at_s - 0.01, SLOTS) == 0
        self.now_s = wake_at_s
        assert self.room() == 1
        return self.now_s - began_s


@pytest.mark.parametrize(
    ("outcome", "sign"),
    [
        (DELIVERED, Sign.SUCCESS),
        (BUSY, Sign.REFUSED),
        (BROKEN, Sign.FAILED),
        (SILENT, Sign.SILENT),
        (Outcome.retry("timed out", arrival=Arrival.UNKNOWN), Sign.FAILED),
        (NOT_FOUND, Sign.FINAL),
        (GONE, Sign.OWN),
        (EXPIRED, Sign.OWN),
        (Outcome.dropped("suppressed"), Sign.OWN),
        (Outcome.pause("HTTP 401"), Sign.OWN),
        (Outcome.throttled("no", scope=Scope.PUSH), Sign.OWN),
        (Outcome.throttled("one token", scope=Scope.RECIPIENT), Sign.ELSEWHERE),
        (Outcome.throttled("one host", scope=Scope.HOST), Sign.ELSEWHERE),
    ],
)
def test_what_an_outcome_says_of_the_sink(outcome: Outcome, sign: Sign) -> None:
    assert sign_of(outcome) is sign


def test_a_breaker_of_a_host_takes_what_is_about_its_host_or_more_for_its_own() -> None:
    assert sign_of(Outcome.throttled("no", scope=Scope.HOST), Scope.HOST) is Sign.REFUSED
    assert sign_of(BUSY, Scope.HOST) is Sign.REFUSED
    assert sign_of(Outcome.throttled("no", scope=Scope.APP), Scope.HOST) is Sign.ELSEWHERE


def test_a_sink_that_works_gets_all_slots() -> None:
    desk = Desk()
    desk.send(DELIVERED, 1_000)
    assert desk.room() == SLOTS
    assert desk.state is BreakerState.CLOSED
    assert desk.breaker.wake_at_s() is None


@pytest.mark.parametrize(("failure", "row"), [(BUSY, 10), (BROKEN, 20), (SILENT, 20)])
def test_a_row_of_failures_opens_it_when_nothing_was_heard_for_two_seconds(
    failure: Outcome, row: int
) -> None:
    desk = Desk()
    desk.send(DELIVERED, 100)
    desk.now_s += QUIET_S

    desk.send(failure, row - 1)
    assert desk.state is BreakerState.CLOSED
    desk.send(failure)
    assert desk.state is BreakerState.OPEN
    assert desk.room() == 0


def test_a_sink_that_failed_for_long_in_part_needs_a_longer_row_to_open() -> None:
    """And so though it had worked for long before: the share that fails is learnt."""
    desk = Desk()
    desk.send(DELIVERED, 1_000)
    for _ in range(300):
        desk.send(BUSY)
        desk.send(DELIVERED)
    desk.now_s += QUIET_S

    desk.send(BUSY, 25)

    assert desk.state is BreakerState.CLOSED


def test_until_nothing_was_heard_for_so_long_only_a_trickle_goes() -> None:
    desk = Desk()
    desk.send(DELIVERED, 100)

    desk.send(BUSY, 10)
    went = 0
    while desk.state is BreakerState.THROTTLED:
        room = desk.room()
        went += room
        desk.send(BUSY, room)
        desk.now_s += TRICKLE_EVERY_S / 10

    assert went <= QUIET_S / TRICKLE_EVERY_S
    assert desk.now_s == pytest.approx(QUIET_S, abs=TRICKLE_EVERY_S)
    assert desk.state is BreakerState.OPEN


def test_a_process_that_starts_in_an_outage_opens_as_well() -> None:
    desk = Desk()
    desk.send(BUSY, 10)
    desk.now_s += QUIET_S
    assert desk.room() == 1, "it was not asked for longer than a rest lasts at first"
    assert desk.state is BreakerState.OPEN


def test_two_that_get_through_the_trickle_close_it_again() -> None:
    desk = Desk()
    desk.send(DELIVERED, 100)
    desk.send(BUSY, 10)

    desk.send(DELIVERED, 2)

    desk.now_s += QUIET_S + TRICKLE_EVERY_S
    assert desk.room() >= 1
    assert desk.breaker.is_closed


def test_a_sink_that_delivers_one_of_twenty_opens_though_it_is_never_quiet() -> None:
    desk = Desk()
    desk.send(DELIVERED, 100)
    for number in range(200):
        if desk.state is not BreakerState.OPEN:
            desk.send(BUSY if number % 20 else DELIVERED)
    assert desk.state is BreakerState.OPEN
    assert desk.now_s == 0.0


@pytest.mark.parametrize("failure", [BROKEN, SILENT])
def test_pushes_that_failed_before_open_nothing_however_many(failure: Outcome) -> None:
    desk = Desk()
    desk.send(DELIVERED)
    desk.now_s += QUIET_S

    assert desk.send(failure, 1_000, is_charged=True) is None
    assert desk.state is BreakerState.CLOSED
    assert desk.room() == SLOTS


@pytest.mark.parametrize(
    ("outcome", "is_charged", "free_closed", "free_open"),
    [
        (BUSY, False, True, True),
        (BUSY, True, True, True),
        (BROKEN, False, False, True),
        (BROKEN, True, False, False),
        (NOT_FOUND, False, False, True),
        (NOT_FOUND, True, False, True),
        (SILENT, False, False, False),
        (GONE, False, False, False),
        (Outcome.throttled("one token", scope=Scope.RECIPIENT), True, True, True),
    ],
)
def test_what_costs_an_attempt_or_the_push_itself(
    outcome: Outcome, is_charged: bool, free_closed: bool, free_open: bool
) -> None:
    desk = Desk()
    result = desk.send(outcome, is_charged=is_charged)
    assert (result is not None) is free_closed

    desk.open()
    desk.until_probe()
    result = desk.send(outcome, is_charged=is_charged)
    assert (result is not None) is free_open


def test_what_took_off_before_it_opened_is_free_and_says_nothing_new() -> None:
    desk = Desk()
    permit = desk.breaker.admit(0.0, 3)
    desk.open(BROKEN)

    assert desk.breaker.landed(desk.now_s, permit, flight(900), BROKEN) == 0.0
    assert desk.breaker.landed(desk.now_s, permit, flight(901), NOT_FOUND) == 0.0
    assert desk.breaker.landed(desk.now_s, permit, flight(902), DELIVERED) is None
    assert desk.state is BreakerState.OPEN


def test_what_was_admitted_before_it_opened_is_to_be_given_back() -> None:
    desk = Desk()
    permit = desk.breaker.admit(0.0, 2)
    assert desk.breaker.is_valid(permit)

    desk.open()

    assert not desk.breaker.is_valid(permit)
    desk.breaker.give_back(permit, 2)
    desk.until_probe()


def test_what_is_given_back_makes_room_again() -> None:
    desk = Desk()
    desk.open()
    desk.until_probe()
    permit = desk.breaker.admit(desk.now_s, 1)
    assert (desk.room(), desk.state) == (0, BreakerState.PROBING)

    desk.breaker.give_back(permit, 1)

    assert (desk.room(), desk.state) == (1, BreakerState.OPEN)


def test_one_probe_at_a_time_about_every_four_seconds_for_as_long_as_it_takes() -> None:
    desk = Desk()
    desk.open()
    while desk.now_s < LONG_S:
        desk.until_probe()
        desk.send(BUSY)
    waits_s = []
    for _ in range(500):
        waits_s.append(desk.until_probe())
        desk.send(BUSY)
        assert desk.room() == 0
    first_s, last_s = PROBE_EVERY_S
    assert min(waits_s) == pytest.approx(first_s, abs=0.05)
    assert max(waits_s) == pytest.approx(last_s, abs=0.05)
    assert 1 / min(waits_s) <= 0.3
    assert max(waits_s) <= 4.0, "a second is left to open up within 5 s of the sink's return"


def test_at_first_it_rests_for_a_second_then_for_a_quarter_of_the_time_it_failed() -> None:
    desk = Desk()
    desk.open()
    down_since_s = desk.now_s
    for _ in range(20):
        failed_s = desk.now_s - down_since_s
        rested_s = desk.until_probe()
        desk.send(BUSY)
        if failed_s < LONG_S:
            shortest_s, longest_s = (max(1.0, min(at_s, failed_s / 4)) for at_s in PROBE_EVERY_S)
            assert shortest_s - ROUNDING_S <= rested_s <= longest_s + ROUNDING_S


@pytest.mark.parametrize("failure", [SILENT, SILENT_RETRIED, UNCONNECTED])
def test_a_sink_that_is_silent_rests_as_long_from_the_beginning(failure: Outcome) -> None:
    desk = Desk()
    desk.open(failure)
    for _ in range(20):
        assert PROBE_EVERY_S[0] <= desk.until_probe() <= PROBE_EVERY_S[1]
        desk.send(failure)

    desk = Desk()
    desk.open()
    desk.until_probe()
    desk.send(failure)
    assert PROBE_EVERY_S[0] <= desk.until_probe() <= PROBE_EVERY_S[1]
    desk.send(BUSY)
    assert desk.until_probe() <= desk.now_s / 4, "it answers again"


lengths_s = st.one_of(st.floats(0.1, 20.0), st.floats(0.1, 3_600.0))


@given(lengths_s, st.sampled_from(ANSWERS), st.floats(0.04, 0.1), st.integers(1, 9))
@example(0.1, BUSY, 0.05, 1)
@example(3.0, BUSY, 0.02, 1)
@example(3_600.0, BUSY, 0.02, 1)
@settings(max_examples=40, deadline=None)
def test_the_return_is_found_within_a_quarter_of_the_outage_and_the_full_rate_a_second_later(
    length_s: float, failure: Outcome, latency_s: float, seed: int
) -> None:
    began_s, back_s = 2.0, 2.0 + length_s
    soon_s = min(max(1.0, length_s / 4), 4.0)

    dispatcher = Dispatcher(down(began_s, back_s, failure), latency_s=latency_s, seed=seed)
    run = dispatcher.run(back_s + soon_s + 2.0)

    found_s = next(at_s for at_s in run.went_s if at_s >= back_s)
    assert found_s - back_s <= soon_s + ROUNDING_S
    well = within(run.delivered_s, 1.0, 2.0)
    assert within(run.delivered_s, back_s + soon_s + 1.0, back_s + soon_s + 2.0) >= 0.9 * well


@given(lengths_s, st.sampled_from(ANSWERS), st.floats(0.04, 0.1), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_sink_that_rests_is_asked_at_most_once_a_second_and_less_and_less(
    length_s: float, failure: Outcome, latency_s: float, seed: int
) -> None:
    back_s = 2.0 + length_s

    run = Dispatcher(down(2.0, back_s, failure), latency_s=latency_s, seed=seed).run(back_s)

    for count, probed_s in enumerate(run.probed_s, 1):
        assert count <= EARLY_PROBES + PROBES_PER_S * (probed_s - 2.0 - QUIET_S)
    rested = [at_s for at_s in run.went_s if at_s >= min(run.probed_s, default=back_s)]
    assert rested == run.probed_s
    assert all(after_s - before_s >= 1.0 - ROUNDING_S for before_s, after_s in pairwise(rested))


def test_a_sink_that_was_quiet_before_it_failed_is_asked_no_more_often() -> None:
    """It rests from the moment on at which it is found failing, without a trickle."""
    desk = Desk()
    desk.open()
    rests_since_s = desk.now_s
    for count in range(1, 1_000):
        desk.until_probe()
        desk.send(BUSY)
        assert count <= EARLY_PROBES + PROBES_PER_S * (desk.now_s - rests_since_s)


@pytest.mark.parametrize(("asked_s", "least_s", "most_s"), [(30, 30, 33), (600, 60, 60)])
def test_a_retry_after_is_heeded_up_to_a_minute(
    asked_s: float, least_s: float, most_s: float
) -> None:
    desk = Desk()
    desk.open()
    desk.until_probe()
    desk.send(Outcome.throttled("HTTP 429", asked_s))

    assert least_s <= desk.until_probe() <= most_s <= LONGEST_REST_S

    desk.send(BUSY)
    assert desk.until_probe() <= PROBE_EVERY_S[1] + 0.01, "a probe that names none ends it"


@pytest.mark.parametrize("after_s", [float("nan"), -5.0, 0.0])
def test_a_retry_after_that_is_none_changes_nothing(after_s: float) -> None:
    desk = Desk()
    desk.open()
    desk.until_probe()
    desk.send(Outcome.throttled("HTTP 429", after_s))
    assert desk.until_probe() <= PROBE_EVERY_S[1] + 0.01


@pytest.mark.parametrize("answer", [DELIVERED, GONE])
def test_an_answer_to_the_probe_opens_up_by_doubling(answer: Outcome) -> None:
    desk = Desk()
    desk.open()
    desk.until_probe()
    desk.send(answer)
    assert desk.state is BreakerState.RISING

    rounds = []
    while desk.state is BreakerState.RISING:
        rounds.append(desk.room())
        permit = desk.breaker.admit(desk.now_s, rounds[-1])
        desk.now_s += 0.05
        for number in range(rounds[-1]):
            desk.breaker.landed(desk.now_s, permit, flight(number), DELIVERED)

    assert rounds[0] == 1
    assert len(rounds) <= 8
    assert all(after <= 2.6 * before + 1 for before, after in pairwise(rounds))
    assert desk.room() == SLOTS


def test_a_sink_with_little_to_do_is_back_after_five_seconds() -> None:
    desk = Desk()
    desk.open()
    desk.until_probe()
    desk.send(DELIVERED)
    desk.now_s += RISE_S
    desk.room()
    assert desk.breaker.is_closed


def test_a_sink_that_fails_again_while_it_opens_up_rests_again() -> None:
    desk = Desk()
    desk.open()
    desk.until_probe()
    desk.send(DELIVERED)
    for _ in range(40):
        desk.now_s += TRICKLE_EVERY_S
        desk.send(BUSY, min(1, desk.room()))
    assert desk.state is BreakerState.OPEN


def test_free_failures_end_when_the_outage_lasts_too_long() -> None:
    desk = Desk(patience_s=3_600.0)
    desk.open()
    down_since_s = desk.breaker.view().since_s
    while desk.until_probe() and desk.now_s < down_since_s + 3_600.0:
        assert desk.send(BUSY) == 0.0
    assert desk.send(BUSY) is None
    assert desk.state is BreakerState.OPEN


def test_a_push_that_is_refused_alone_waits_longer_each_time_and_not_for_ever() -> None:
    desk = Desk(patience_s=3_600.0)
    poison = flight(7)
    waits_s: list[float] = []
    while True:
        desk.send(DELIVERED, 10)
        permit = desk.breaker.admit(desk.now_s, 1)
        wait_s = desk.breaker.landed(desk.now_s, permit, poison, BUSY)
        if wait_s is None:
            break
        waits_s.append(wait_s)
        desk.now_s += wait_s
    again = desk.breaker.landed(desk.now_s, desk.breaker.admit(desk.now_s, 1), poison, BUSY)
    assert again is None, "nor does it begin anew once it has lost an attempt"
    assert 0.5 <= waits_s[0] <= 1.0
    assert 15.0 <= waits_s[-1] <= 30.0
    assert 3_600.0 <= desk.now_s <= 3_660.0
    assert desk.state is BreakerState.CLOSED


def test_a_storm_of_final_answers_opens_it_and_buries_few() -> None:
    desk = Desk()
    desk.send(DELIVERED, 100)
    desk.now_s += QUIET_S

    buried = sum(desk.send(NOT_FOUND) is None for _ in range(30))

    assert buried == 19
    assert desk.state is BreakerState.OPEN


def test_final_answers_before_any_success_are_believed() -> None:
    desk = Desk()
    assert all(desk.send(NOT_FOUND) is None for _ in range(1_000))
    assert desk.state is BreakerState.CLOSED


def test_answers_that_are_the_pushs_own_are_never_a_storm() -> None:
    desk = Desk()
    desk.send(DELIVERED)
    desk.now_s += QUIET_S
    assert all(desk.send(GONE) is None for _ in range(1_000))
    assert (desk.state, desk.room()) == (BreakerState.CLOSED, SLOTS)


def test_a_storm_counts_each_push_once() -> None:
    desk = Desk()
    desk.send(DELIVERED)
    desk.now_s += QUIET_S
    for _ in range(100):
        permit = desk.breaker.admit(desk.now_s, 1)
        assert desk.breaker.landed(desk.now_s, permit, flight(1), NOT_FOUND) is None
    assert desk.state is BreakerState.CLOSED


@pytest.mark.parametrize("dead", [0.3, 0.6, 0.9])
def test_a_list_with_many_dead_recipients_is_no_storm(dead: float) -> None:
    run = Dispatcher(at_random(dead, NOT_FOUND)).run(5.0)
    free = Dispatcher(at_random(dead, NOT_FOUND), guarded=False).run(5.0)
    assert "open" not in run.phases
    assert len(run.delivered_s) >= 0.9 * len(free.delivered_s)


def test_a_sink_that_says_no_for_two_hours_is_believed() -> None:
    desk = Desk()
    desk.open(NOT_FOUND)
    down_since_s = desk.breaker.view().since_s
    while desk.until_probe() and desk.now_s < down_since_s + STORM_PATIENCE_S:
        assert desk.send(NOT_FOUND) == 0.0

    assert desk.send(NOT_FOUND) is None
    assert desk.state is BreakerState.RISING
    assert all(desk.send(NOT_FOUND) is None for _ in range(200))
    assert desk.state is BreakerState.CLOSED


def open_desk() -> Desk:
    desk = Desk()
    desk.open()
    return desk


def probed(desk: Desk, candidates: list[Flight]) -> Flight:
    """The one that is chosen for the next probe, which fails."""
    desk.until_probe()
    chosen = candidates[desk.breaker.choose(candidates)]
    permit = desk.breaker.admit(desk.now_s, 1)
    desk.breaker.landed(desk.now_s, permit, chosen, BUSY)
    return chosen


def test_probes_rotate_over_pushes() -> None:
    desk = open_desk()
    candidates = [flight(number) for number in (901, 902, 903)]
    chosen = [probed(desk, candidates).push_id for _ in range(6)]
    assert sorted(chosen[:3]) == sorted(chosen[3:]) == ["t-901", "t-902", "t-903"]


def test_probes_rotate_over_apps_and_tasks() -> None:
    """An app, or a task, that fails alone does not keep the sink from being found well."""
    desk = open_desk()
    many = [Flight(f"bad-{number}", "bad", "one") for number in range(10)]
    others = [Flight(f"good-{number}", "good", "one") for number in range(10)]
    late = [Flight(f"late-{number}", "late", "two") for number in range(10)]
    candidates = [*many, *others, *late]
    chosen = []
    for _ in range(6):
        chosen.append(probed(desk, candidates))
    assert [each.app for each in chosen[1:]] == ["two", "one", "two", "one", "two"]
    assert {each.task_id for each in chosen} == {"bad", "good", "late"}


def test_a_probe_is_a_push_that_may_be_repeated_and_lost_nothing_yet() -> None:
    desk = open_desk()
    strict = flight(901, may_repeat=False)
    charged = flight(902, is_charged=True)
    fresh = flight(903)
    candidates = [strict, charged, fresh]
    chosen = [probed(desk, candidates) for _ in range(2)]
    assert chosen == [fresh, charged]


def test_a_push_that_fails_again_and_again_does_not_keep_others_from_the_probe() -> None:
    desk = open_desk()
    poison, strict = flight(901), flight(902, may_repeat=False)
    chosen = [probed(desk, [poison, strict]) for _ in range(6)]
    assert chosen == [poison] * 5 + [strict]


@pytest.mark.parametrize("quotes", [True, False])
def test_people_see_why_and_when_but_a_processors_words_only_if_they_may(quotes: bool) -> None:
    desk = Desk(quotes=quotes)
    assert desk.breaker.view().reason == ""
    desk.open()

    view = desk.breaker.view()

    assert view.state is BreakerState.OPEN
    assert view.since_s == QUIET_S
    assert view.next_try_s == desk.breaker.wake_at_s()
    assert "it takes no pushes now" in view.reason
    assert ("HTTP 503" in view.reason) is quotes


@pytest.mark.parametrize("failure", [BUSY, BROKEN, NOT_FOUND], ids=lambda it: it.reason)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_outage_of_two_minutes_costs_next_to_nothing(failure: Outcome, seed: int) -> None:
    """2 s well, 120 s down, then well again."""
    run = Dispatcher(down(2.0, 122.0, failure), seed=seed).run(128.0)

    well = within(run.delivered_s, 1.0, 2.0)
    assert within(run.went_s, 2.0, 6.0) <= 2 * SLOTS
    assert len(run.probed_s) <= EARLY_PROBES + PROBES_PER_S * 120
    assert within(run.delivered_s, 127.0, 128.0) >= 0.9 * well
    assert run.ended[Kind.DEAD] <= (50 if failure is NOT_FOUND else 0)
    assert run.ended[Kind.RETRY] <= (50 if failure is BROKEN else 0)


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize("failure", [BUSY, BROKEN], ids=lambda it: it.reason)
@pytest.mark.parametrize("slots", [1, 50, 500])
def test_random_failures_neither_open_nor_throttle(
    share: float, failure: Outcome, slots: int
) -> None:
    seconds = 800.0 / slots
    run = Dispatcher(at_random(share, failure), slots=slots).run(seconds)
    free = Dispatcher(at_random(share, failure), slots=slots, guarded=False).run(seconds)

    assert "open" not in run.phases
    assert len(run.delivered_s) >= 0.9 * len(free.delivered_s)


def capacity(per_s: int, window_s: float) -> Answers:
    """A sink that accepts so many, and refuses what else comes in the same window."""
    taken: dict[int, int] = {}

    def answer(now_s: float) -> Outcome:
        window = int(now_s / window_s)
        taken[window] = taken.get(window, 0) + 1
        return DELIVERED if taken[window] <= per_s * window_s else BUSY

    return answer


@pytest.mark.parametrize("window_s", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("latency_s", [0.002, 0.05])
def test_a_sink_of_small_capacity_is_asked_three_times_that_and_keeps_it(
    window_s: float, latency_s: float
) -> None:
    run = Dispatcher(capacity(100, window_s), latency_s=latency_s).run(12.0)

    assert within(run.went_s, 4.0, 12.0) <= 3.1 * 100 * 8
    assert within(run.delivered_s, 4.0, 12.0) >= 0.95 * 100 * 8
    assert "open" not in run.phases


outcomes = st.sampled_from([DELIVERED, BUSY, BUSY, BUSY, BROKEN, NOT_FOUND, SILENT, GONE])
steps = st.tuples(st.integers(0, 60), outcomes, st.sampled_from([0.0, 0.01, 0.3, 2.0, 5.0]))


_ALL_NOT_FOUND = [(24, NOT_FOUND, 0.0), *[(39, NOT_FOUND, 0.0)] * 3, (0, DELIVERED, 0.0)]


@given(st.lists(steps, max_size=120), st.integers(1, 60))
@example(_ALL_NOT_FOUND, 39)
@settings(max_examples=200, deadline=None)
def test_whatever_happens_three_go_for_each_that_gets_an_answer(
    history: list[tuple[int, Outcome, float]], slots: int
) -> None:
    """Beside what good times spared, a trickle and the probes; and only one probe flies at once.

    A final answer takes nothing of it, as it may be the push's own: so one goes for each.
    """
    breaker = Breaker(slots, PATIENCE_S, chance=random.Random(3).random)
    flying: list[int] = []
    now_s, went, answers, finals = 0.0, 0, 0, 0
    for number, (lands, outcome, wait_s) in enumerate(history):
        room = breaker.room(now_s, slots - len(flying))
        assert 0 <= room <= slots - len(flying)
        rests = breaker.view().state in (BreakerState.OPEN, BreakerState.PROBING)
        assert room <= (1 if rests else slots)
        if room:
            permit = breaker.admit(now_s, room)
            flying += [permit] * room
            went += room
            if rests:
                assert breaker.room(now_s + 1_000.0, slots) == 0
        now_s += wait_s
        for _ in range(min(lands, len(flying))):
            answers += outcome in (DELIVERED, GONE)
            finals += outcome is NOT_FOUND
            breaker.landed(now_s, flying.pop(0), flight(number), outcome)
        trickle = 1 + now_s / TRICKLE_EVERY_S
        assert went <= (100 + 2 * slots) + 3 * answers + finals + trickle


@given(st.lists(st.tuples(outcomes, st.integers(1, 5)), max_size=60))
@settings(max_examples=100, deadline=None)
def test_the_short_way_of_deliveries_is_the_same_as_the_long_one(
    history: list[tuple[Outcome, int]],
) -> None:
    short, long = (Breaker(SLOTS, PATIENCE_S, chance=random.Random(3).random) for _ in range(2))
    for number, (outcome, count) in enumerate(history):
        now_s = 0.3 * number
        leaves = [breaker.admit(now_s, count) for breaker in (short, long)]
        is_short = outcome is DELIVERED and short.landed_well(now_s, leaves[0], count)
        for _ in range(count):
            if not is_short:
                short.landed(now_s, leaves[0], flight(number), outcome)
            long.landed(now_s, leaves[1], flight(number), outcome)
        assert short.view() == long.view()
        assert short.room(now_s, SLOTS) == long.room(now_s, SLOTS)


REFUSED = Outcome.refused("HTTP 401")


def test_three_refusals_of_our_credentials_hold_the_sink() -> None:
    desk = Desk(quotes=True)
    desk.send(REFUSED, 2)
    assert desk.state is BreakerState.CLOSED

    desk.send(REFUSED)

    view = desk.breaker.view()
    assert view.state is BreakerState.OPEN
    assert view.reason == "it refuses our credentials: HTTP 401"


def test_people_are_told_that_a_sink_which_rises_takes_pushes_again() -> None:
    view = View(BreakerState.RISING, 1.0, "it refuses our credentials: HTTP 401")

    told = restraint(view, 1.0, 0)

    assert told is not None
    assert told.reason.startswith("it takes pushes again, more and more; before: it refuses")


def test_a_refusal_between_deliveries_holds_nothing() -> None:
    desk = Desk()
    for _ in range(50):
        desk.send(DELIVERED)
        desk.send(REFUSED)

    assert "credentials" not in desk.breaker.view().reason


def test_a_held_sink_is_probed_once_a_minute_for_as_long_as_it_refuses() -> None:
    desk = Desk()
    desk.send(REFUSED, 3)
    for _ in range(3 * 24 * 60):
        assert LONGEST_REST_S <= desk.until_probe() <= 1.1 * LONGEST_REST_S
        assert desk.send(REFUSED) is not None  # free, also after the patience with outages

    desk.until_probe()
    assert desk.send(DELIVERED) is None
    assert desk.state is BreakerState.RISING


def test_one_push_that_is_refused_while_others_get_through_loses_attempts() -> None:
    desk = Desk()
    waits: list[float | None] = []
    for _ in range(10):
        desk.send(DELIVERED)
        permit = desk.breaker.admit(desk.now_s, 1)
        waits.append(desk.breaker.landed(desk.now_s, permit, flight(-1), REFUSED))
        desk.now_s += 30

    assert waits[0] is not None
    assert waits[-1] is None
    assert desk.state is not BreakerState.OPEN


def test_what_is_mended_while_a_probe_is_under_way_is_tried_right_after_it() -> None:
    desk = Desk()
    desk.send(REFUSED, 3)
    desk.until_probe()
    permit = desk.breaker.admit(desk.now_s, 1)

    desk.breaker.try_again(desk.now_s)
    desk.breaker.landed(desk.now_s, permit, flight(1), REFUSED)

    assert desk.room() == 1


def test_a_held_sink_is_tried_at_once_when_told() -> None:
    desk = Desk()
    desk.send(REFUSED, 3)
    assert desk.room() == 0

    desk.breaker.try_again(desk.now_s)

    assert desk.room() == 1
