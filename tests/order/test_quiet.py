"""Quiet hours by the recipient's clock: the law, the changes of the clocks, what is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.model.times import (
    LAST_DATE_MS,
    QuietHours,
    find_zone,
    known_zone,
    parse_quiet,
    quiet_until_ms,
)

# Half-hour changes, changes at midnight, a day left out, two changes within weeks, none at all.
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "UTC",
]
FROM_S = int(datetime(2001, 1, 1, tzinfo=UTC).timestamp())
TO_S = int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())
DAY_S = 86_400

minutes = st.integers(0, 24 * 60 - 1)
hours = (
    st.tuples(minutes, minutes)
    .filter(lambda pair: pair[0] != pair[1])
    .map(lambda pair: QuietHours(pair[0] * 60, pair[1] * 60))
)


@cache
def days_of_change(zone: str) -> list[int]:
    """The last midnights, in UTC, before the clocks of the zone are changed."""
    offsets = [(s, offset(zone, s)) for s in range(FROM_S, TO_S, DAY_S)]
    return [s for (s, before), (_, after) in itertools.pairwise(offsets) if before != after]


def offset(zone: str, at_s: int) -> object:
    return datetime.fromtimestamp(at_s, ZoneInfo(zone)).utcoffset()


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and a second, as often as not around a change of its clocks."""
    zone = draw(st.sampled_from(ZONES))
    if (changes := days_of_change(zone)) and draw(st.booleans()):
        return zone, draw(st.sampled_from(changes)) + draw(st.integers(-DAY_S, 2 * DAY_S))
    return zone, draw(st.integers(FROM_S, TO_S))


def wall_is_within(hours: QuietHours, zone: str, at_s: int) -> bool:
    """The law itself, with the day laid out as the set of its quiet minutes."""
    start, end = hours.start_s // 60, hours.end_s // 60
    quiet = range(start, end) if start < end else {*range(start, 24 * 60), *range(end)}
    wall = datetime.fromtimestamp(at_s, ZoneInfo(zone))
    return wall.hour * 60 + wall.minute in quiet


def slowly_until_s(hours: QuietHours, zone: str, at_s: int) -> int:
    """Minute by minute: clocks change at whole minutes."""
    while wall_is_within(hours, zone, at_s):
        at_s += 60 - at_s % 60
    return at_s


@given(hours, moments())
def test_it_is_quiet_while_the_clock_shows_a_quiet_time(
    hours: QuietHours, moment: tuple[str, int]
) -> None:
    zone, at_s = moment
    is_quiet = quiet_until_ms(hours, ZoneInfo(zone), at_s * 1000) > at_s * 1000
    assert is_quiet is wall_is_within(hours, zone, at_s)


@settings(deadline=None)
@given(hours, moments())
def test_quiet_ends_when_a_slow_look_at_every_minute_says(
    hours: QuietHours, moment: tuple[str, int]
) -> None:
    zone, at_s = moment
    assert quiet_until_ms(hours, ZoneInfo(zone), at_s * 1000) == 1000 * slowly_until_s(
        hours, zone, at_s
    )


def until(text: str, zone: str, at: str) -> str:
    at_ms = int(datetime.fromisoformat(at).timestamp() * 1000)
    end_ms = quiet_until_ms(parse_quiet(text), ZoneInfo(zone), at_ms)
    return datetime.fromtimestamp(end_ms / 1000, ZoneInfo(zone)).isoformat()


@pytest.mark.parametrize(
    ("hours", "at", "end"),
    [
        ("22:00-08:00", "2026-11-21T23:30+01:00", "2026-11-22T08:00:00+01:00"),
        ("22:00-08:00", "2026-11-21T08:00+01:00", "2026-11-21T08:00:00+01:00"),
        ("13:00-15:00", "2026-11-21T13:00+01:00", "2026-11-21T15:00:00+01:00"),
        ("22:00-08:00", "2026-03-28T23:30+01:00", "2026-03-29T08:00:00+02:00"),  # an hour less
        ("22:00-02:30", "2026-03-29T01:30+01:00", "2026-03-29T03:00:00+02:00"),  # no 02:30 today
        ("22:00-08:00", "2026-10-24T23:30+02:00", "2026-10-25T08:00:00+01:00"),  # an hour more
        ("22:00-02:30", "2026-10-25T01:30+02:00", "2026-10-25T02:30:00+02:00"),
        ("22:00-02:30", "2026-10-25T02:10+01:00", "2026-10-25T02:30:00+01:00"),  # 02:10 once more
    ],
)
def test_quiet_hours_end_by_the_recipients_clock(hours: str, at: str, end: str) -> None:
    assert until(hours, "Europe/Berlin", at) == end


def test_a_fraction_of_a_second_is_kept_when_it_is_not_quiet() -> None:
    assert quiet_until_ms(parse_quiet("22:00-08:00"), ZoneInfo("UTC"), 43_200_123) == 43_200_123


@pytest.mark.parametrize(
    "at_ms", [2**64 - 1, 2**63 - 1, LAST_DATE_MS + 1, LAST_DATE_MS, -1, -(2**63)]
)
@pytest.mark.parametrize("hours", ["22:00-08:00", "08:00-22:00", "00:00-23:59", "00:01-00:00"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin"])
def test_a_time_that_no_calendar_has_is_answered_too(at_ms: int, hours: str, zone: str) -> None:
    ends_ms = quiet_until_ms(parse_quiet(hours), ZoneInfo(zone), at_ms)

    assert at_ms <= ends_ms <= max(at_ms, LAST_DATE_MS)


@pytest.mark.parametrize(
    ("text", "shown"), [(" 9:05-17:00 ", "09:05-17:00"), ("22:00-24:00", "22:00-00:00")]
)
def test_hours_are_shown_in_one_form(text: str, shown: str) -> None:
    assert str(parse_quiet(text)) == shown


@pytest.mark.parametrize("text", ["", "22-8", "22:00", "24:00-08:00", "22:60-08:00", "1:00-24:30"])
def test_what_is_no_range_of_hours_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="22:00-08:00"):
        parse_quiet(text)


@pytest.mark.parametrize("text", ["22:00-22:00", "00:00-24:00"])
def test_hours_that_are_never_or_always_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="never or always"):
        parse_quiet(text)


@pytest.mark.parametrize("name", ["", "Europe", "Europe/Berlim", "../zone", "Mars/Olympus", "a\0b"])
def test_an_unknown_zone_is_none_or_refused(name: str) -> None:
    assert known_zone(name) is None
    with pytest.raises(BadInput, match="unknown time zone"):
        find_zone(name)


def test_an_unknown_zone_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'Europe/Berlin'"):
        find_zone("europe/berlim")
