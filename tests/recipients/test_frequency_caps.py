"""Which cap holds for an app's pushes, and which day it is where their recipients are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.task import Level
from pushlane.core.turns import EVERY_APP
from pushlane.model.limits import Calendar, FrequencyCaps, Limit, Subject
from pushlane.model.recipients import NO_CAP, Cap, CapDay
from pushlane.model.times import find_zone

ZONES = ("UTC", "Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12", "America/New_York")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).date()
A_DAY_MS = 86_400_000
times_ms = st.integers(0, 4_102_444_800_000)


def caps(**by_app: dict[str, int]) -> FrequencyCaps:
    return FrequencyCaps(
        {
            Subject("app", EVERY_APP if app == "every" else app): Limit(recipient_a_day=of)
            for app, of in by_app.items()
        }
    )


@pytest.mark.parametrize(
    ("app", "level", "expected"),
    [
        ("shop", Level.LOW, Cap(1, 4)),
        ("shop", Level.HIGH, Cap(NO_CAP, 4)),
        ("news", Level.LOW, Cap(2, NO_CAP)),
        ("news", Level.HIGH, None),
    ],
)
def test_an_apps_own_cap_replaces_that_of_every_app(
    app: str, level: Level, expected: Cap | None
) -> None:
    assert caps(shop={"low": 1, "all": 4}, every={"low": 2}).of(app, level) == expected


def test_without_caps_there_are_none() -> None:
    limits = {Subject("app", "shop"): Limit(quota=3), Subject("sink", "fcm"): Limit(a_day=1)}

    assert FrequencyCaps(limits).is_none
    assert not caps(shop={"low": 1}).is_none
    assert not caps(shop={"low": 1}).has("news")


@settings(deadline=None)
@given(st.lists(times_ms, min_size=1, max_size=8), st.sampled_from(ZONES))
def test_the_day_is_that_on_the_calendar_however_time_goes_on(times: list[int], zone: str) -> None:
    now = [0]
    calendar = Calendar(lambda: now[0])
    for now[0] in sorted(times):
        wall = datetime.fromtimestamp(now[0] / 1000, find_zone(zone)).date()
        assert calendar.day(zone) == (wall - EPOCH).days


@settings(deadline=None)
@given(times_ms, st.sampled_from(ZONES))
def test_a_day_is_over_everywhere_when_it_says_so_and_not_before(at_ms: int, zone: str) -> None:
    day = Calendar(lambda: at_ms).day(zone)

    over_at_ms = CapDay(day, Level.LOW, Cap()).over_at_ms

    assert at_ms < over_at_ms <= at_ms + 50 * 3_600_000
    latest = datetime.fromtimestamp(over_at_ms / 1000, UTC) - timedelta(hours=12)
    assert (latest.date() - EPOCH).days == day + 1
