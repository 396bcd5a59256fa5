"""Times of single rows: what is read, in which zone, and what is a bad row."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pushlane.core.task import Level
from pushlane.producers.columns import RowTimes, moment_ms, read_times
from pushlane.producers.request import SubmitRequest
from pushlane.producers.rows import BadRow

BERLIN = ZoneInfo("Europe/Berlin")
AT_MS = 2_000_000_000_000  # 2033-05-18T03:33:20Z


@pytest.mark.parametrize(
    "value",
    [
        2_000_000_000,
        2e9,
        Decimal(2_000_000_000),
        " 2000000000 ",
        "2000000000.0",
        "2033-05-18T03:33:20Z",
        "2033-05-18 05:33:20",
        datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC),
        datetime(2033, 5, 18, 5, 33, 20),
    ],
)
def test_a_time_is_iso_text_or_unix_seconds_or_what_parquet_holds(value: object) -> None:
    assert moment_ms(value, BERLIN) == AT_MS


@pytest.mark.parametrize("value", ["2033-05-18", date(2033, 5, 18)])
def test_a_date_is_its_first_moment_in_the_zone(value: object) -> None:
    assert moment_ms(value, BERLIN) == AT_MS - (5 * 3600 + 33 * 60 + 20) * 1000


@pytest.mark.parametrize("value", [None, "", "  "])
def test_no_value_is_no_time(value: object) -> None:
    assert moment_ms(value, BERLIN) == 0


@pytest.mark.parametrize(
    "value",
    ["soon", "20330518", 5, -1, True, [], float("nan"), 2_000_000_000_000, "3333-01-01", "1e10"],
)
def test_what_is_no_time_from_2001_to_3000_is_none(value: object) -> None:
    assert moment_ms(value, BERLIN) is None


def read(row: dict[str, Any], **options: Any) -> RowTimes | BadRow:
    """The times of a row with columns at, until and tz."""
    given = {"not_before_column": "at", "expires_column": "until", "zone_column": "tz", **options}
    request = SubmitRequest(source=Path("a.csv"), level=Level.HIGH, **given)
    reader = read_times(request, ["at", "until", "tz"])
    assert reader is not None
    return reader([row.get("at"), row.get("until"), row.get("tz")])


def test_a_row_without_any_of_them_has_no_times() -> None:
    assert read({}) == (0, 0, "")


def test_without_columns_nothing_is_read() -> None:
    assert read_times(SubmitRequest(source=Path("a.csv"), level=Level.HIGH), []) is None


def test_a_time_without_a_zone_is_on_the_recipients_clock() -> None:
    row = {"at": "2033-05-18T05:33:20", "until": "2033-05-18T06:33:20", "tz": "Europe/Berlin"}
    assert read(row) == (AT_MS, AT_MS + 3_600_000, "Europe/Berlin")


def test_a_recipient_without_a_zone_is_in_that_of_the_task_or_in_utc() -> None:
    row = {"at": "2033-05-18T05:33:20"}
    assert read(row, zone="Europe/Berlin") == (AT_MS, 0, "")
    assert read(row) == (AT_MS + 2 * 3_600_000, 0, "")


def reason(row: dict[str, Any], **options: Any) -> str:
    bad = read(row, **options)
    assert isinstance(bad, BadRow)
    return bad.reason


def test_an_unknown_zone_is_a_bad_row_that_names_column_value_and_the_nearest() -> None:
    said = reason({"tz": "Europe/Berlim"})
    assert said == "has the unknown time zone 'Europe/Berlim' in 'tz' (nearest: Europe/Berlin)"


@pytest.mark.parametrize("value", ["ann@example.com", "+49 170 123", "Ann/Smith1", 49, "x" * 99])
def test_what_does_not_look_like_a_zone_is_not_shown(value: object) -> None:
    assert reason({"tz": value}) == "has no IANA time zone like Europe/Berlin in 'tz'"


@pytest.mark.parametrize("column", ["at", "until"])
def test_what_is_no_time_is_a_bad_row_that_names_the_column_alone(column: str) -> None:
    said = reason({column: "ann@example.com"})
    assert said.startswith(f"has no time in {column!r}: it takes an ISO time")
    assert "ann" not in said


def test_a_row_that_expires_before_it_may_start_is_bad() -> None:
    assert reason({"at": AT_MS // 1000, "until": AT_MS // 1000}) == "expires before it may start"
