"""Times as people write and read them: `2h`, an ISO time, an age. Inside: Unix milliseconds."""

from __future__ import annotations

import re
from datetime import datetime

from lanes.errors import BadInput

_UNIT_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(\d+[dhms])+")


def parse_expiry(text: str, now_ms: int) -> int:
    """When that is: a duration from now on (`90s`, `1h30m`, `2d`), or an ISO time.

    An ISO time without a zone is local.

    Raises:
        BadInput: neither of them, or a time that has passed.
    """
    expires_at_ms = _moment(text, now_ms)
    if expires_at_ms <= now_ms:
        raise BadInput(f"expiry {text!r} has passed: nothing would be sent; give a later one")
    return expires_at_ms


def _moment(text: str, now_ms: int) -> int:
    if _DURATION.fullmatch(text):
        parts = re.findall(r"(\d+)([dhms])", text)
        return now_ms + 1000 * sum(int(number) * _UNIT_S[unit] for number, unit in parts)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"expiry {text!r} is neither a duration like 90s, 2h or 1d12h nor an ISO time like "
            "2030-01-31T18:00+01:00"
        ) from None


def age_text(since_ms: int, now_ms: int) -> str:
    """In its largest unit: `5s`, `12m`, `3h`, `9d`; a dash for an unset time."""
    if not since_ms:
        return "-"
    age_s = max(0, now_ms - since_ms) // 1000
    for unit, unit_s in _UNIT_S.items():
        if age_s >= unit_s:
            return f"{age_s // unit_s}{unit}"
    return "0s"


def time_text(at_ms: int) -> str:
    """Local time to the second, with its offset; a dash for an unset time."""
    if not at_ms:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
