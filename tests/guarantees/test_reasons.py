"""Reasons of sinks without what the pushes hold."""

from __future__ import annotations

import pytest

from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.stats import reason_class, without_values

PUSH = Push(
    "task",
    1,
    "+49 151/234",
    "Your code",
    'It is "7731 9902"',
    {"order": {"ids": ["ord-55310", 8_812_345]}, "type": "paid"},
    addresses={"mail": "ann@example.com", "sms": ""},
    payloads={"": {"token": "tok-aabbcc", "next": "tok-\\aabbcc\n"}},
)
OTHER = Push("task", 2, "7")


def reason_of(reason: str, *pushes: Push) -> str:
    batch = [Delivery(push, Level.HIGH, push.recipient) for push in pushes or (PUSH,)]
    [outcome, *_] = without_values([Outcome.dead(reason)] * len(batch), batch)
    return outcome.reason


@pytest.mark.parametrize(
    ("reason", "clean"),
    [
        ("no such number +49 151/234", "no such number ***"),
        ("GET /v1/%2B49%20151%2F234 failed", "GET /v1/*** failed"),
        ("<ann@example.com>: unknown", "<***>: unknown"),
        ('refused {"body": "It is \\"7731 9902\\""}', 'refused {"body": "***"}'),
        ("KeyError('tok-\\\\aabbcc\\n')", "KeyError('***')"),
        ("Your code is too long", "*** is too long"),
        ("order ord-55310 of 8812345", "order *** of ***"),
        ("bad token tok-aabbcc", "bad token ***"),
        ("HTTP 410", "HTTP 410"),
        ("the type paid is not known", "the type paid is not known"),
        ("", ""),
    ],
)
def test_a_reason_names_nothing_that_its_push_holds(reason: str, clean: str) -> None:
    assert reason_of(reason) == clean


def test_one_reason_for_a_batch_names_none_of_its_pushes() -> None:
    assert reason_of("+49 151/234 is blocked", OTHER, PUSH) == "*** is blocked"


def test_a_short_recipient_is_no_part_of_a_number() -> None:
    assert reason_of("HTTP 477: no user 7", OTHER) == "HTTP 477: no user ***"


def test_the_rest_of_an_outcome_stays() -> None:
    batch = [Delivery(PUSH, Level.HIGH), Delivery(OTHER, Level.HIGH)]
    throttled = Outcome.throttled("busy with +49 151/234", 3.0, Scope.RECIPIENT)

    first, second = without_values([throttled, DELIVERED], batch)

    assert first == Outcome.throttled("busy with ***", 3.0, Scope.RECIPIENT)
    assert second is DELIVERED


def test_content_may_be_as_deep_as_it_likes() -> None:
    deep: object = "ord-55310"
    for _ in range(5_000):
        deep = [deep]

    assert reason_of("no order ord-55310", Push("task", 1, "7", data={"a": deep})) == "no order ***"


def test_a_batch_of_many_reasons_looks_at_each_value_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a processor that names the recipient in each reason holds the dispatcher up."""
    looked_at = []

    def quote(value: str, **_: object) -> str:
        looked_at.append(value)
        return value

    monkeypatch.setattr("pushlane.dispatcher.stats.quote", quote)
    pushes = [Push("task", seq, f"+49 151 {seq:06}") for seq in range(1, 101)]
    batch = [Delivery(push, Level.HIGH, push.recipient) for push in pushes]

    outcomes = without_values([Outcome.dead(f"no {push.recipient}") for push in pushes], batch)

    assert {outcome.reason for outcome in outcomes} == {"no ***"}
    assert len(looked_at) == 100


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("processor raised KeyError", "processor raised KeyError"),
        ("gave up after 5 attempts: processor raised OSError", "processor raised OSError"),
        ("processor raised KeyError at shop.py:12", "processor raised KeyError"),
        ("processor returned False", "processor returned False"),
        ("no such number 4711", "processor"),
        ("my processor raised Ann", "processor"),
    ],
)
def test_of_a_function_only_our_own_words_are_a_class_of_deaths(reason: str, told: str) -> None:
    assert reason_class(reason, is_own_words=True) == told


def test_a_class_of_deaths_leaves_out_what_a_sink_says_in_detail() -> None:
    reason = "gave up after 5 attempts: HTTP 500: no route to 4711"

    assert reason_class(reason, is_own_words=False) == "HTTP 500"
