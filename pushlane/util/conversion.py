"""Converts what a program gives to what is kept: whole numbers, words, texts, durations, times.

What has just one meaning is taken, as `"3"` for 3 or `HIGH` for high; all else is refused as
BadInput, which names the field, the value and what is allowed. Nothing is rounded, and `True` is no
number. Of what should be a text the message shows the type alone: it may be somebody's name.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from pushlane.core.errors import BadInput
from pushlane.util.texts import did_you_mean

Word = TypeVar("Word", bound=StrEnum)
Made = TypeVar("Made")
NumberT = TypeVar("NumberT", int, float)

UNIT_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(\d{1,9}[dhms])+", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?", re.ASCII)
_SHOWN = 40
_FAR_MS = 10**18  # millions of years: what is shown of times is computed in floats


def whole(
    what: str, value: Any, low: int, high: int | None = None, *, of: str = "", hint: str = ""
) -> int:
    """Return the whole number that this is: an int, `"3"`, 3.0, but neither 2.5 nor True.

    `of` and `hint` are for the message: whose it is, and what to do instead. Raises BadInput when
    it is no whole number, or not one from `low` to `high`.
    """
    return _within(what, value, _whole(value), "whole number", low, high, of, hint)


def number(
    what: str, value: Any, low: float, high: float | None = None, *, of: str = "", hint: str = ""
) -> float:
    """Return the finite number that this is, as the int that it was given as, or as a float.

    Raises BadInput when it is no number, or not one from `low` to `high`.
    """
    return _within(what, value, _number(value), "number", low, high, of, hint)


def _within(
    what: str,
    value: Any,
    found: NumberT | None,
    kind: str,
    low: float,
    high: float | None,
    of: str,
    hint: str,
) -> NumberT:
    if found is None:
        raise BadInput(
            f"{what} {shown(value)}{of} is not a {kind}; use one {_span(low, high)}{hint}"
        )
    if problem := _outside(found, low, high):
        raise BadInput(f"{what} {shown(found)}{of} {problem}{hint}")
    return found


def word(what: str, value: Any, kind: type[Word]) -> Word:
    """Return the member that a text names, in any case. Raises BadInput with all there are."""
    return kind(one_of(what, value, [member.value for member in kind]))


def one_of(what: str, value: Any, known: Sequence[str]) -> str:
    """Return the known word that a text is, in any case. Raises BadInput when it is none."""
    found = str.__str__(value).lower() if isinstance(value, str) else None
    if found is None or found not in known:
        words = ", ".join(filter(None, known)) + (", or leave it out" if "" in known else "")
        hint = did_you_mean(found, known) if found else ""
        raise BadInput(f"unknown {what} {shown(value)}; use {words}{hint}")
    return found


def text(what: str, value: Any) -> str:
    """Return a text as it is. Raises BadInput for all else, and for what UTF-8 cannot hold."""
    if not isinstance(value, str):
        raise BadInput(f"{what} is {kind_of(value)}; give a text")
    found = str.__str__(value)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{what} holds a character that UTF-8 cannot encode; leave it out"
        ) from error
    return found


def texts(what: str, value: Any) -> tuple[str, ...]:
    """Return texts in their order; one alone is the only one. Raises BadInput for anything else."""
    if isinstance(value, str):
        return (text(what, value),)
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise BadInput(f"{what} is {kind_of(value)}; give texts, like ('a', 'b')")
    return tuple(text(f"one of {what}", one) for one in value)


def path(what: str, value: Any) -> Path:
    """Return the path that a text or a path-like object names. Raises BadInput for all else."""
    if isinstance(value, str | os.PathLike) and isinstance(named := os.fspath(value), str):
        return Path(text(what, named))
    raise BadInput(f"{what} is {kind_of(value)}; give a path")


def instance(what: str, value: Any, kind: type[Made]) -> Made:
    """Return a value of this class. Raises BadInput for all else."""
    if not isinstance(value, kind):
        raise BadInput(f"{what} is {kind_of(value)}; give a {kind.__name__}")
    return value


def seconds(what: str, value: Any, low: float, high: float | None = None, *, of: str = "") -> float:
    """Return a duration in seconds: a number of them, a timedelta, or a text like `2h` or `1d12h`.

    `of` is for the message. Raises BadInput when it is none of these, or not from `low` to `high`
    seconds.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, str) and (length_ms := duration_ms(value)) is not None:
        value = length_ms // 1000
    found = _number(value)
    if found is None:
        raise BadInput(
            f"{what} {shown(value)}{of} is not a duration; give seconds, a timedelta, or a text "
            "like '2h' or '1d12h'"
        )
    if problem := _outside(found, low, high):
        raise BadInput(f"{what} {shown(found)}{of} {problem} s")
    return found


def moment_ms(
    what: str, value: Any, now_ms: int, read: Callable[[str], int | None] | None = None
) -> int:
    """Return a time in Unix milliseconds.

    It is given as that, as a datetime with a zone, as a timedelta from now on, or as a text: an ISO
    time (local without a zone), a duration from now on, or what `read` makes something of. Raises
    BadInput when it is none of these.
    """
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise BadInput(
            f"{what} {value.isoformat(' ', 'seconds')} has no time zone; give it one, as "
            "datetime.now(UTC) or value.astimezone() do"
        )
    found = _moment_ms(value, now_ms)
    if found is None and isinstance(value, str):
        found = read(value) if read else None
    if found is None:
        raise BadInput(
            f"{what} {shown(value)} is not a time; give whole Unix milliseconds, a datetime, a "
            "timedelta from now on, or a text like '2h' or '2030-01-31T18:00+01:00'"
        )
    return found


def duration_ms(given: str) -> int | None:
    """Return the length of a duration like `90s`, `2h` or `1d12h`; None for what is none."""
    if not _DURATION.fullmatch(given):
        return None
    parts = re.findall(r"(\d+)([dhms])", given)
    return 1000 * sum(int(count) * UNIT_S[unit] for count, unit in parts)


def iso_ms(given: str) -> int | None:
    """Return the Unix milliseconds of an ISO time, local without a zone; None for what is none."""
    try:
        return _datetime_ms(datetime.fromisoformat(given))
    except ValueError:
        return None


def shown(value: Any) -> str:
    """Return a value as a message shows it: a number plainly, all else as Python writes it."""
    try:
        is_plain = isinstance(value, Real | Decimal) and not isinstance(value, bool)
        found = (
            f"{value:g}" if isinstance(value, float) else str(value) if is_plain else repr(value)
        )
    except Exception:  # noqa: BLE001 - of somebody else's type, or a number of too many digits
        found = f"of type {type(value).__name__}"
    return found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."


def kind_of(value: Any) -> str:
    """Return what a value is, for a message that must not show it."""
    return "None" if value is None else f"of type {type(value).__name__}"


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value.strip()) else None
    with suppress(TypeError):
        return operator.index(value)
    found = _real(value)
    try:
        nearest = None if found is None else int(found)
    except (ValueError, OverflowError):  # not a number, or infinite
        return None
    return nearest if nearest == found else None


def _real(value: Any) -> Any:
    """Return a number of whatever library, None for all else."""
    return value if isinstance(value, Real | Decimal) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else None
    found = value if type(value) is int else _real(value)
    found = _whole(value) if found is None else found
    try:
        converted = math.nan if found is None else float(found)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(converted):
        return None
    return found if type(found) is int else converted


def _moment_ms(value: Any, now_ms: int) -> int | None:
    if isinstance(value, datetime):
        return _datetime_ms(value)
    if isinstance(value, timedelta):
        return now_ms + value // timedelta(milliseconds=1)
    if (found := _whole(value)) is not None:
        return found if abs(found) < _FAR_MS else None
    if not isinstance(value, str):
        return None
    length_ms = duration_ms(value)
    return iso_ms(value) if length_ms is None else now_ms + length_ms


def _datetime_ms(at: datetime) -> int | None:
    try:
        return int(at.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def _outside(number: float, low: float, high: float | None) -> str:
    """Say how a number is out of its bounds; empty when it is not."""
    if low <= number and (high is None or number <= high):
        return ""
    return f"is below {_plain(low)}" if high is None else f"is not {_span(low, high)}"


def _span(low: float, high: float | None) -> str:
    return f"from {_plain(low)} on" if high is None else f"from {_plain(low)} to {_plain(high)}"


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
