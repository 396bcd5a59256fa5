"""What a program gives is taken when it has just one meaning, and refused by name otherwise."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest

from pushlane.core.errors import BadInput
from pushlane.core.task import Level
from pushlane.util import conversion

NOW_MS = 1_900_000_000_000
AT = datetime(2031, 5, 1, 12, 30, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)


@pytest.mark.parametrize(
    "value",
    [3, "3", " 3 ", "+3", 3.0, Fraction(6, 2), Decimal(3), numpy.int64(3), numpy.float64(3)],
)
def test_a_whole_number_is_taken_in_whatever_form(value: Any) -> None:
    converted = conversion.whole("quota", value, 1, 10)

    assert (converted, type(converted)) == (3, int)


@pytest.mark.parametrize(
    "value",
    [
        5 / 2,
        True,
        numpy.True_,
        "2.5",
        "many",
        "",
        None,
        math.nan,
        math.inf,
        Fraction(5, 2),
        [3],
        b"3",
    ],
)
def test_what_is_no_whole_number_is_refused_and_never_rounded(value: Any) -> None:
    told = re.escape(f"quota {conversion.shown(value)} is not a whole number; use one from 1 to 10")

    with pytest.raises(BadInput, match=told):
        conversion.whole("quota", value, 1, 10)


@pytest.mark.parametrize("value", [0, 11, -1, "11", 10**30])
def test_a_number_out_of_its_bounds_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^quota \S+ of app 'a' is not from 1 to 10; pause it$"):
        conversion.whole("quota", value, 1, 10, of=" of app 'a'", hint="; pause it")


def test_a_number_of_more_digits_than_python_shows_is_refused_too() -> None:
    with pytest.raises(BadInput, match="quota of type int is not from 1 to 10"):
        conversion.whole("quota", 10**5_000, 1, 10)


@pytest.mark.parametrize(
    ("value", "number"), [(3, 3), (0.5, 0.5), ("0.5", 0.5), (Fraction(1, 2), 0.5), ("3", 3)]
)
def test_a_number_is_taken_in_whatever_form(value: Any, number: float) -> None:
    assert conversion.number("rate", value, 0) == number


@pytest.mark.parametrize("value", [True, None, "fast", math.nan, math.inf, 10**400, 1j])
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^rate .* is not a number; use one from 0 on$"):
        conversion.number("rate", value, 0)


@pytest.mark.parametrize("value", ["high", "HIGH", "High", Level.HIGH])
def test_a_word_is_taken_in_any_case(value: Any) -> None:
    assert conversion.word("level", value, Level) is Level.HIGH


@pytest.mark.parametrize("value", ["urgent", "", None, 1, True, b"high"])
def test_another_word_is_refused_with_those_that_there_are(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^unknown level .*; use high, medium, low"):
        conversion.word("level", value, Level)


def test_of_what_is_no_text_the_type_alone_is_shown() -> None:
    assert conversion.text("name", Level.HIGH) == "high"
    with pytest.raises(BadInput, match=r"^name is of type list; give a text$"):
        conversion.text("name", ["secret"])
    with pytest.raises(BadInput, match=r"^name holds a character that UTF-8 cannot"):
        conversion.text("name", "\ud800")


def test_one_text_counts_as_the_only_one_of_several() -> None:
    assert conversion.texts("data", "name") == ("name",)
    assert conversion.texts("data", ["a", "b"]) == ("a", "b")
    for value in (5, b"ab", {"a": 1}, [5], None):
        with pytest.raises(BadInput, match="data"):
            conversion.texts("data", value)


@pytest.mark.parametrize(
    ("value", "length_s"),
    [
        ("2h", 7200),
        ("1d12h", 129_600),
        ("0", 0),
        ("90", 90),
        (0.5, 0.5),
        (timedelta(hours=2), 7200),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_a_text(value: Any, length_s: float) -> None:
    assert conversion.seconds("retention_s", value, 0) == length_s


@pytest.mark.parametrize("value", ["soon", True, None, math.nan, "2 h"])
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^retention_s .* is not a duration; give seconds"):
        conversion.seconds("retention_s", value, 0)


@pytest.mark.parametrize(
    ("value", "at_ms"),
    [
        (AT, AT_MS),
        (AT.isoformat(), AT_MS),
        (AT_MS, AT_MS),
        (str(AT_MS), AT_MS),
        (float(AT_MS), AT_MS),
        (timedelta(hours=2), NOW_MS + 7_200_000),
        ("2h", NOW_MS + 7_200_000),
        (0, 0),
    ],
)
def test_a_time_is_unix_ms_a_datetime_a_timedelta_or_a_text(value: Any, at_ms: int) -> None:
    assert conversion.moment_ms("expires_at_ms", value, NOW_MS) == at_ms


def test_a_datetime_without_a_zone_is_refused() -> None:
    told = r"^expires_at_ms 2031-05-01 12:30:00 has no time zone; give it one, as datetime.now"
    with pytest.raises(BadInput, match=told):
        conversion.moment_ms("expires_at_ms", AT.replace(tzinfo=None), NOW_MS)


def test_an_iso_time_without_a_zone_is_local() -> None:
    local = AT.astimezone().replace(tzinfo=None)

    assert conversion.moment_ms("expires_at_ms", local.isoformat(), NOW_MS) == AT_MS


@pytest.mark.parametrize("value", ["tomorrow", True, None, AT_MS + 0.5, AT.date(), "25:00"])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(
        BadInput, match=r"^expires_at_ms .* is not a time; give whole Unix millisec"
    ):
        conversion.moment_ms("expires_at_ms", value, NOW_MS)


def test_a_path_is_a_text_or_what_stands_for_one() -> None:
    assert conversion.path("spool", "a/b") == conversion.path("spool", Path("a/b")) == Path("a/b")
    with pytest.raises(BadInput, match="spool is of type int; give a path"):
        conversion.path("spool", 5)
