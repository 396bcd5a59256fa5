"""When too many pushes of a task have died."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.core.task import Progress
from pushlane.model.stop_rule import (
    DEFAULT_STOP,
    LEAST_ENDED,
    StopRule,
    parse_stop_rule,
    read_stop_rule,
    stored_stop,
)

HALF = StopRule(50, 1_000)


def counts(ended: int, failed: int, spared: int = 0) -> Progress:
    """Progress of which so many failed and so many had a dead address; the rest was delivered."""
    return Progress("t", ended - failed - spared, failed + spared, failed=failed)


@pytest.mark.parametrize("text", ["5%", "0.1%", "99%", "7.5%", "50% of the first 1000"])
def test_a_rule_is_read_and_stored_as_it_is_written(text: str) -> None:
    assert stored_stop(text) == text
    assert read_stop_rule(text) == parse_stop_rule(text) is not None


def test_a_rule_may_be_off_or_left_out_or_have_a_comma() -> None:
    assert parse_stop_rule("off") is None
    assert stored_stop("off") == "off"
    assert stored_stop("") == ""
    assert stored_stop("5 % of the first 1,000") == "5% of the first 1000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5", "'5' has no %"),
        ("0.05", "'0.05' has no %"),
        ("abc", "cannot be read"),
        ("-5%", "cannot be read"),
        ("٥%٥", "cannot be read"),
        ("0%", r"from 0\.1% to 99%"),
        ("100%", r"from 0\.1% to 99%"),
        ("101%", r"from 0\.1% to 99%"),
        ("5% of the first 99", "looks at too few"),
        (0.05, "is not a text"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_examples(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        parse_stop_rule(text)

    assert "write 5%" in str(refused.value)


def test_a_rule_of_a_newer_version_stops_nothing() -> None:
    assert read_stop_rule("5% an hour") is None


def test_a_task_stops_over_the_share_and_not_at_it() -> None:
    assert not StopRule(5).is_passed(counts(200, 10))
    assert StopRule(5).is_passed(counts(200, 11))


def test_the_default_looks_at_the_first_thousand() -> None:
    assert read_stop_rule(DEFAULT_STOP) == HALF
    assert HALF.is_passed(counts(1_000, 501))
    assert not HALF.is_passed(counts(1_000, 500))
    assert not HALF.is_passed(counts(1_001, 900), added=1)


def test_what_is_counted_at_once_beyond_the_first_thousand_still_counts() -> None:
    assert HALF.is_passed(counts(1_900, 1_800), added=901)
    assert not HALF.is_passed(counts(1_900, 1_800), added=900)


@given(
    ended=st.integers(0, 5_000),
    percent=st.floats(0.1, 99),
    share=st.floats(0, 1),
    spared=st.floats(0, 1),
)
def test_a_share_is_of_what_ended_and_dead_addresses_are_none_of_it(
    ended: int, percent: float, share: float, spared: float
) -> None:
    failed = round(ended * share)
    now = counts(ended, failed, round((ended - failed) * spared))

    passed = StopRule(percent).is_passed(now)

    assert passed == (ended >= LEAST_ENDED and 100 * failed > percent * ended)
