"""Takes what pushes hold out of the reasons that sinks give, before anybody sees a reason.

A processor may answer "no such number +49…", or one for a whole batch that names a single push of
it. Reasons are logged and shown, and stand in receipts and beside dead pushes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from pushlane.lanes.ports import Delivery
from pushlane.lanes.push import Outcome, Push
from pushlane.lanes.urls import MASK

_SHORT = 4  # such a value may be a part of any word or number
_LEAST = 6  # of content: what is shorter tells nothing, and may be a word of the reason


def without_values(outcomes: Sequence[Outcome], batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Return the outcomes with recipients, addresses and content of the batch masked in reasons."""
    reasons = {outcome.reason for outcome in outcomes if outcome.reason}
    if not reasons:
        return outcomes
    longest = max(map(len, reasons))
    found = {value for one in batch for value in _values(one.push) if len(value) <= longest}
    values = sorted(found, key=len, reverse=True)
    cleaned = {reason: _cleaned(reason, values) for reason in reasons}
    if all(reason == clean for reason, clean in cleaned.items()):
        return outcomes
    return [
        replace(outcome, reason=cleaned[outcome.reason]) if outcome.reason else outcome
        for outcome in outcomes
    ]


def _cleaned(reason: str, values: Sequence[str]) -> str:
    for value in values:
        for form in dict.fromkeys((value, *_escaped(value))):
            if form not in reason:
                continue
            if len(form) < _SHORT:
                reason = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, reason)
            else:
                reason = reason.replace(form, MASK)
    return reason


def _escaped(value: str) -> Iterator[str]:
    """Yield the forms that a text has in a URL, in JSON and in Python's own words."""
    yield quote(value, safe="", errors="replace")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]


def _values(push: Push) -> Iterator[str]:
    """Yield the texts that identify a recipient, and those of the content that are no mere word."""
    yield from filter(None, (push.recipient, *(push.addresses or {}).values()))
    for text in _texts((push.title, push.body, push.data, push.payloads)):
        if len(text) >= _LEAST:
            yield text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, int | float):
        yield str(value)
