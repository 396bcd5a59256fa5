"""When a rule is due, on clocks that are changed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.pipeline.rules.rule import parse_schedule
from tests.rules import ms

HOUR_MS = 3_600_000
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Cairo"]


def utc_times(cron: str, zone: str, start: str, end: str) -> list[int]:
    return [*parse_schedule(cron, zone).between(ms(start), ms(end))]


def test_it_is_due_by_the_clock_of_its_zone():
    due = utc_times("0 9 * * MON", "Europe/Berlin", "2026-01-01T00:00", "2026-01-14T00:00")

    assert due == [ms("2026-01-05T08:00"), ms("2026-01-12T08:00")]


def test_a_time_that_the_clocks_skip_comes_once_at_the_change():
    due = utc_times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-30T12:00")

    assert due == [ms("2026-03-29T03:00+02:00"), ms("2026-03-30T02:30+02:00")]


def test_times_that_the_clocks_make_one_come_once():
    due = utc_times("30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T12:00")
    same = utc_times("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T12:00")

    assert due == [ms("2026-03-29T03:00+02:00"), ms("2026-03-29T03:30+02:00")]
    assert same == [ms("2026-03-29T03:00+02:00")]


def test_a_time_that_comes_twice_is_due_the_first_time():
    due = utc_times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-26T12:00")

    assert due == [ms("2026-10-25T02:30+02:00"), ms("2026-10-26T02:30+01:00")]


def test_after_a_restart_within_the_hour_that_comes_twice_it_is_not_due_again():
    schedule = parse_schedule("30 2 * * *", "Europe/Berlin")

    again = schedule.first_after(ms("2026-10-25T02:10+01:00"))

    assert again == ms("2026-10-26T02:30+01:00")


def test_every_hour_is_every_hour_of_real_time():
    due = utc_times("0 * * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T04:00")

    assert due == [ms("2026-10-25T00:00") + HOUR_MS * hour for hour in range(1, 5)]


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("0 9 * *", "4 fields"),
        ("0 0 9 * * *", "6 fields"),
        ("@daily", "1 fields"),
        ("", "0 fields"),
        ("61 * * * *", "minute"),
        ("0 9 * * FUNDAY", "day-of-week"),
        ("0 0 30 2 *", "day-of-month"),
    ],
)
def test_a_wrong_expression_is_refused_with_what_is_wrong_and_an_example(cron, said):
    with pytest.raises(BadInput, match=f"{said}.*0 9 \\* \\* MON"):
        parse_schedule(cron, "UTC")


def test_a_wrong_zone_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="Europe/Berlin"):
        parse_schedule("0 9 * * *", "Europe/Berln")


fields = st.tuples(
    st.sampled_from(["0", "30", "*/15", "*", "5,35", "59"]),
    st.sampled_from(["0", "2", "*/6", "*", "1-3", "23"]),
    st.sampled_from(["*", "*", "1", "L"]),
    st.sampled_from(["*", "*", "3,10"]),
    st.sampled_from(["*", "*", "SUN", "MON-FRI"]),
)
changes = ["2026-03-08", "2026-03-29", "2026-04-24", "2026-10-25", "2026-10-29", "2026-11-01"]
starts = st.builds(
    lambda day, hours, seconds: ms(f"{day}T00:00") // 1000 + hours * 3600 + seconds,
    st.sampled_from(changes),
    st.integers(-30, 12),
    st.integers(0, 3599),
)
gaps = st.lists(st.integers(1, 20 * 3600), min_size=1, max_size=8)


@settings(deadline=None)
@given(fields, st.sampled_from(ZONES), starts, gaps)
def test_however_often_it_is_asked_no_time_is_lost_or_doubled(parts, zone, start_s, gaps_s):
    schedule = parse_schedule(" ".join(parts), zone)
    cuts = [start_s * 1000]
    for gap_s in gaps_s:
        cuts.append(cuts[-1] + gap_s * 1000)

    at_once = [*schedule.between(cuts[0], cuts[-1])]
    in_pieces = [
        due for here, there in itertools.pairwise(cuts) for due in schedule.between(here, there)
    ]

    assert in_pieces == at_once
    assert at_once == sorted(set(at_once))
    assert all(cuts[0] < due <= cuts[-1] for due in at_once)
