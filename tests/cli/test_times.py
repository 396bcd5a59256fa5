"""Durations, ISO times and ages."""

from __future__ import annotations

from datetime import datetime

import pytest

from pushlane.cli.render import age_text, time_text
from pushlane.core.errors import BadInput
from pushlane.model.times import parse_expiry, parse_start

NOW_MS = 1_900_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d12h", 129_600), ("1h1m1s", 3661)],
)
def test_a_duration_counts_from_now(text: str, seconds: int) -> None:
    assert parse_expiry(text, NOW_MS) == NOW_MS + seconds * 1000


def test_an_iso_time_with_a_zone_is_that_moment() -> None:
    assert parse_expiry("2033-05-18T05:33:20+02:00", NOW_MS - 1) > NOW_MS - 1
    assert parse_expiry("2033-05-18T03:33:20Z", 0) == 2_000_000_000_000


@pytest.mark.parametrize("text", ["", "2", "2 h", "h", "tomorrow", "-2h", "0s", "1999-01-01"])
def test_what_is_no_later_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expiry"):
        parse_expiry(text, NOW_MS)


def test_a_delay_counts_from_now() -> None:
    assert parse_start("", "10m", NOW_MS) == NOW_MS + 600_000


@pytest.mark.parametrize("delay", ["", "0s"])
def test_no_delay_is_a_start_at_once(delay: str) -> None:
    assert parse_start("", delay, NOW_MS) == 0


def test_a_time_of_day_is_the_next_one_on_the_local_clock() -> None:
    now = datetime(2033, 5, 18, 12, 30)
    now_ms = int(now.timestamp() * 1000)
    later, tomorrow = (
        datetime.fromtimestamp(parse_start(text, "", now_ms) / 1000) for text in ("12:31", "12:30")
    )
    assert later == now.replace(minute=31)
    assert tomorrow == now.replace(day=19)


def test_a_start_with_a_zone_is_that_moment() -> None:
    assert parse_start("2033-05-18T05:33:20+02:00", "", NOW_MS) == 2_000_000_000_000


@pytest.mark.parametrize(
    ("not_before", "delay"),
    [("09:00", "1h"), ("", "9"), ("", "-1h"), ("24:00", ""), ("1999-01-01", ""), ("1h", "")],
)
def test_what_is_no_start_is_refused(not_before: str, delay: str) -> None:
    with pytest.raises(BadInput):
        parse_start(not_before, delay, NOW_MS)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (7_300, "2h"), (90_000, "1d")]
)
def test_an_age_is_in_its_largest_unit(seconds: int, text: str) -> None:
    assert age_text(NOW_MS - seconds * 1000, NOW_MS) == text


def test_a_time_is_in_utc_and_says_so() -> None:
    assert time_text(NOW_MS) == "2030-03-17 17:46:40 UTC"


def test_an_unset_time_is_a_dash() -> None:
    assert (age_text(0, NOW_MS), time_text(0)) == ("-", "-")
