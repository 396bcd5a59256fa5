"""A breaker whose target has never delivered: when it doubts it, how long, and who ends that."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.breaker import (
    PROBE_SOONEST_S,
    QUIET_S,
    STORM_PATIENCE_S,
    Breaker,
    BreakerState,
)
from pushlane.dispatcher.failures import Flight, TargetStanding, TargetWords, doubt_text
from tests.outage.outages import (
    BROKEN,
    BUSY,
    GONE,
    NOT_FOUND,
    PATIENCE_S,
    Dispatcher,
    at_random,
)

SLOTS = 50
ROW = 20
BAD_REQUEST = Outcome.dead("HTTP 400", scope=None)
DEAD_RECIPIENT = Outcome.gone("HTTP 410")
WORDS = TargetWords("webhook at 127.0.0.1:9012", "is the URL right?")
SAID = "webhook at 127.0.0.1:9012 has answered HTTP 404 to all 20 pushes: is the URL right?"


class Desk:
    """A breaker with a clock: sends pushes, each answered at once."""

    def __init__(
        self,
        known: TargetStanding = TargetStanding.NEW,
        *,
        patience_s: float = PATIENCE_S,
        quotes: bool = True,
        words: TargetWords = WORDS,
    ) -> None:
        chance = random.Random(5).random
        self.breaker = Breaker(SLOTS, patience_s, quotes=quotes, chance=chance)
        self.now_s = 0.0
        self.sent = 0
        self.learn(known, words, is_other=True)

    def learn(
        self, known: TargetStanding, words: TargetWords = WORDS, *, is_other: bool = False
    ) -> None:
        self.breaker.learn(self.now_s, known, words, is_other=is_other)

    @property
    def state(self) -> BreakerState:
        return self.breaker.view().state

    def send(self, outcome: Outcome, count: int = 1, push: int | None = None) -> int:
        """Return how many of them are settled as the outcome says."""
        settled = 0
        for _ in range(count):
            self.sent += 1
            number = self.sent if push is None else push
            leave = self.breaker.admit(self.now_s, 1)
            flight = Flight(f"t-{number}", "t", "a")
            settled += self.breaker.landed(self.now_s, leave, flight, outcome) is None
        return settled

    def probe(self, outcome: Outcome) -> int:
        """Wait for the next probe, and send it."""
        wake_at_s = self.breaker.wake_at_s()
        assert wake_at_s is not None
        self.now_s = max(self.now_s, wake_at_s)
        assert self.breaker.room(self.now_s, SLOTS) == 1
        return self.send(outcome)

    def doubt(self) -> Desk:
        """Let it rest because of twenty final answers."""
        self.send(NOT_FOUND, ROW)
        assert self.breaker.view().is_unproven
        return self


def test_twenty_final_answers_to_a_new_target_open_it_at_once_and_bury_nineteen() -> None:
    desk = Desk()

    buried = desk.send(NOT_FOUND, 50)

    assert buried == ROW - 1
    view = desk.breaker.view()
    assert (view.state, view.is_unproven, view.reason) == (BreakerState.OPEN, True, SAID)
    assert view.next_try_s == PROBE_SOONEST_S


def test_one_push_is_one_of_the_twenty_however_often_it_comes() -> None:
    desk = Desk()

    buried = desk.send(NOT_FOUND, 100, push=1)

    assert (buried, desk.state) == (100, BreakerState.CLOSED)


@pytest.mark.parametrize("between", [DELIVERED, GONE, DEAD_RECIPIENT], ids=lambda it: it.reason)
def test_an_answer_of_who_knows_pushes_begins_the_row_anew(between: Outcome) -> None:
    desk = Desk()
    desk.send(NOT_FOUND, ROW - 1)
    desk.send(between)

    assert desk.send(NOT_FOUND, ROW - 1) == ROW - 1
    assert desk.state is BreakerState.CLOSED


@pytest.mark.parametrize("own", [GONE, DEAD_RECIPIENT], ids=lambda it: it.reason)
def test_answers_about_a_push_or_its_recipient_never_count(own: Outcome) -> None:
    desk = Desk()

    assert desk.send(own, 1_000) == 1_000
    assert (desk.state, desk.breaker.room(desk.now_s, SLOTS)) == (BreakerState.CLOSED, SLOTS)


def test_a_push_without_an_answer_is_no_final_answer() -> None:
    silent = Outcome.dead("timed out", arrival=Arrival.UNKNOWN, scope=None)
    desk = Desk()
    desk.send(NOT_FOUND, ROW - 2)
    desk.send(silent)
    desk.send(BROKEN)

    assert desk.state is BreakerState.CLOSED
    desk.send(NOT_FOUND, 2)
    assert desk.breaker.view().reason == SAID


def test_a_target_that_has_delivered_keeps_the_law_of_storms() -> None:
    new, proven = Desk(), Desk(TargetStanding.PROVEN)
    new.send(DELIVERED)

    for desk in (new, proven):
        assert desk.send(NOT_FOUND, 100) == ROW - 1
        desk.now_s += QUIET_S
        desk.breaker.room(desk.now_s, SLOTS)
        assert desk.state is BreakerState.OPEN
        assert not desk.breaker.view().is_unproven
        desk.now_s += STORM_PATIENCE_S
        assert desk.probe(NOT_FOUND) == 1
        assert desk.state is BreakerState.RISING


def test_what_nobody_keeps_is_believed_until_it_delivers() -> None:
    assert Desk(TargetStanding.UNKNOWN).send(NOT_FOUND, 1_000) == 1_000


def test_it_is_believed_after_the_patience_not_after_two_hours() -> None:
    desk = Desk().doubt()
    while desk.now_s < PATIENCE_S - 5.0:
        assert desk.probe(NOT_FOUND) == 0
        assert desk.breaker.view().is_unproven

    desk.now_s = PATIENCE_S
    assert desk.probe(NOT_FOUND) == 1
    assert desk.send(NOT_FOUND, 1_000) == 1_000
    assert desk.state is BreakerState.CLOSED

    desk.now_s += 2 * PATIENCE_S
    assert desk.send(NOT_FOUND, 1_000) == ROW - 1


def test_a_probe_that_is_delivered_ends_it_and_proves_the_target() -> None:
    desk = Desk().doubt()

    desk.probe(DELIVERED)

    assert desk.state is BreakerState.RISING
    assert desk.breaker.standing is TargetStanding.PROVEN


def test_accepted_answers_are_believed_at_once() -> None:
    desk = Desk().doubt()

    desk.learn(TargetStanding.ACCEPTED)

    assert desk.state is BreakerState.RISING
    assert desk.breaker.room(desk.now_s, SLOTS) == 1
    assert desk.send(NOT_FOUND, 1_000) == 1_000
    assert desk.state is BreakerState.CLOSED


def test_what_was_accepted_may_be_taken_back() -> None:
    desk = Desk(TargetStanding.ACCEPTED)
    assert desk.send(NOT_FOUND, 1_000) == 1_000

    desk.learn(TargetStanding.NEW)

    assert desk.send(NOT_FOUND, 1_000) == ROW - 1
    assert desk.breaker.view().is_unproven


def test_accepting_ends_no_rest_of_another_cause() -> None:
    desk = Desk()
    desk.send(BUSY, 10)
    desk.now_s += QUIET_S
    desk.breaker.room(desk.now_s, SLOTS)

    desk.learn(TargetStanding.ACCEPTED)

    assert desk.state is BreakerState.OPEN


def test_once_another_process_has_delivered_it_is_tried_at_once_and_rests_for_two_hours() -> None:
    desk = Desk().doubt()

    desk.learn(TargetStanding.PROVEN)

    assert not desk.breaker.view().is_unproven
    assert desk.breaker.room(desk.now_s, SLOTS) == 1
    assert desk.send(NOT_FOUND) == 0
    desk.now_s += STORM_PATIENCE_S
    assert desk.probe(NOT_FOUND) == 1


def test_a_sink_that_leads_elsewhere_is_new_again_and_tried_at_once() -> None:
    desk = Desk()
    desk.send(DELIVERED)
    desk.learn(TargetStanding.NEW, is_other=True)
    desk.doubt()

    desk.learn(TargetStanding.NEW, is_other=True)

    assert desk.breaker.room(desk.now_s, SLOTS) == 1


def test_one_that_was_away_first_is_doubted_by_its_probes() -> None:
    """So that it is told what is wrong, and a dispatcher that drains does not wait for ever."""
    desk = Desk()
    desk.send(BUSY, 10)
    desk.now_s += QUIET_S
    desk.breaker.room(desk.now_s, SLOTS)
    for _ in range(ROW):
        assert not desk.breaker.view().is_unproven
        assert desk.probe(NOT_FOUND) == 0

    view = desk.breaker.view()

    assert (view.is_unproven, view.reason) == (True, SAID)


def test_bad_credentials_found_by_a_probe_are_the_cause_then() -> None:
    desk = Desk().doubt()

    desk.probe(Outcome.refused("HTTP 401"))

    view = desk.breaker.view()
    assert not view.is_unproven
    assert view.reason.startswith("it refuses our credentials")


def test_an_answer_about_its_push_lets_more_be_tried_at_no_loss() -> None:
    desk = Desk().doubt()
    desk.probe(GONE)
    assert desk.state is BreakerState.RISING

    assert desk.send(NOT_FOUND, ROW) == 0
    assert desk.breaker.view().is_unproven


def test_a_new_task_is_the_next_probe() -> None:
    desk = Desk().doubt()
    waiting = [Flight(f"t-{number}", "t", "a") for number in range(100, 110)]
    new = Flight("new-1", "new", "a")

    assert desk.breaker.choose([*waiting, new]) == len(waiting)


def test_it_is_probed_as_any_sink_that_rests() -> None:
    run = Dispatcher(lambda _: NOT_FOUND)
    run.breaker.learn(0.0, TargetStanding.NEW, WORDS)
    run.run(120.0)

    assert run.ended[Kind.DEAD] == ROW - 1
    assert len(run.probed_s) <= 6 + 0.3 * 120
    assert run.phases[:2] == ["closed", "open"]


def test_a_right_url_whose_first_recipients_are_unknown_is_soon_in_use() -> None:
    """It answers 404 to the first 60, as some receivers do for an unknown recipient."""
    went = itertools.count()
    run = Dispatcher(lambda _: NOT_FOUND if next(went) < 60 else DELIVERED)
    run.breaker.learn(0.0, TargetStanding.NEW, WORDS)
    run.run(60.0)

    assert run.ended[Kind.DEAD] <= 60
    assert run.delivered_s[0] < 45.0
    assert len(run.delivered_s) > 5_000


@pytest.mark.parametrize("dead", [0.3, 0.6, 0.9])
def test_a_list_with_many_dead_recipients_delivers_soon_though_the_target_is_new(
    dead: float,
) -> None:
    run = Dispatcher(at_random(dead, NOT_FOUND))
    run.breaker.learn(0.0, TargetStanding.NEW, WORDS)
    run.run(5.0)
    free = Dispatcher(at_random(dead, NOT_FOUND), guarded=False).run(5.0)

    assert len(run.delivered_s) >= 0.9 * len(free.delivered_s)


STEPS = st.sampled_from([DELIVERED, NOT_FOUND, NOT_FOUND, NOT_FOUND, BAD_REQUEST, GONE, BUSY])


@given(st.lists(st.tuples(STEPS, st.integers(1, 25), st.floats(0.0, 6.0)), max_size=60))
@settings(max_examples=200, deadline=None)
def test_while_nothing_is_delivered_fewer_than_twenty_die_between_answers_about_pushes(
    history: Sequence[tuple[Outcome, int, float]],
) -> None:
    """The law: of the pushes that go, one after the other, in less time than the patience."""
    desk = Desk()
    died = 0
    for outcome, count, wait_s in history:
        desk.now_s += wait_s
        for _ in range(count):
            if not desk.breaker.room(desk.now_s, 1):
                continue
            settled = desk.send(outcome)
            if outcome in (DELIVERED, GONE):
                died = 0
            elif outcome.kind is Kind.DEAD:
                died += settled
            if desk.breaker.standing is TargetStanding.NEW:
                assert died < ROW


ROWS = [
    (["HTTP 404"] * 20, "it has answered HTTP 404 to all 20 pushes: is it set up right?"),
    (
        ["HTTP 302: redirects are not followed; give the final URL"] * 3,
        "it has answered HTTP 302 to all 3 pushes: is it set up right?",
    ),
    (
        ["HTTP 400", "HTTP 404", "HTTP 404"],
        "it has given final answers to all 3 pushes, most often HTTP 404: is it set up right?",
    ),
]


@pytest.mark.parametrize(("reasons", "said"), ROWS)
def test_a_row_is_told_in_words(reasons: Sequence[str], said: str) -> None:
    row = {f"t-{number}": reason for number, reason in enumerate(reasons)}

    assert doubt_text(row, TargetWords(), quotes=True) == said


def test_a_processors_own_words_are_not_told() -> None:
    desk = Desk(quotes=False, words=TargetWords("processor"))
    desk.send(Outcome.dead("no such number +4412345", scope=None), ROW)

    assert desk.breaker.view().reason == (
        "processor has given final answers to all 20 pushes: is it set up right?"
    )


def test_a_processor_that_returns_dead_speaks_of_its_push() -> None:
    assert Outcome.dead("unknown device").scope is Scope.PUSH
    assert Desk().send(Outcome.dead("unknown device"), 1_000) == 1_000
