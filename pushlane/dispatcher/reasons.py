"""Takes what pushes hold out of the reasons that sinks give, before anybody sees a reason.

A processor may answer "no such number +49…", or one for a whole batch that names a single push of
it. Reasons are logged and shown, and stand in receipts and beside dead pushes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from pushlane.core.push import Outcome, Push
from pushlane.lanes.ports import Delivery
from pushlane.lanes.urls import MASK

OF_CODE = "processor"
"""Stands in metrics for whatever a function of a user's own gave as its reason."""

_LONGEST_LABEL = 64
_GAVE_UP = re.compile(r"gave up after \d+ attempts?: ")
_DETAIL = re.compile(r": |; | \(")
_OURS = re.compile(r"processor (?:raised [A-Za-z_]\w{0,50}|returned False)(?!\w)", re.ASCII)
_SHORT = 4  # such a value may be a part of any word or number
_LEAST = 6  # of content: what is shorter tells nothing, and may be a word of the reason
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")  # what nobody escapes


def without_values(outcomes: Sequence[Outcome], batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Return the outcomes with recipients, addresses and content of the batch masked in reasons."""
    reasons = {outcome.reason for outcome in outcomes if outcome.reason}
    if not reasons:
        return outcomes
    forms = _forms_in(reasons, batch)
    if not forms:
        return outcomes
    cleaned = {reason: _cleaned(reason, forms) for reason in reasons}
    return [
        replace(outcome, reason=cleaned[outcome.reason]) if outcome.reason else outcome
        for outcome in outcomes
    ]


def as_label(reason: str, *, is_own_words: bool) -> str:
    """Return what of a reason tells its kind, for a metric: nothing that somebody else has written.

    `is_own_words` says that it is a reason of a user's own function. The details behind a colon, a
    semicolon or a bracket are left out, as there are too many of them.
    """
    if is_own_words:
        return OF_CODE
    kind = _DETAIL.split(_GAVE_UP.sub("", reason), maxsplit=1)[0]
    return "".join(filter(str.isprintable, kind))[:_LONGEST_LABEL] or "none"


def death_class(reason: str, *, is_own_words: bool) -> str:
    """Return the same for logs and counts of dead pushes, which tell apart how a function failed.

    What it raised is named by us; its own words are not told.
    """
    ours = _OURS.match(_GAVE_UP.sub("", reason)) if is_own_words else None
    return ours[0] if ours else as_label(reason, is_own_words=is_own_words)


def _forms_in(reasons: Collection[str], batch: Sequence[Delivery]) -> list[str]:
    """Return what stands in any of the reasons of the values of the batch, the longest first.

    There may be thousands of each. Most stand nowhere, which their first or last characters tell.
    """
    text, longest = "\n".join(reasons), max(map(len, reasons))
    parts = {text[place : place + _SHORT] for place in range(len(text))}

    def stands(form: str) -> bool:
        may = len(form) < _SHORT or (form[:_SHORT] in parts and form[-_SHORT:] in parts)
        return may and form in text

    found = {value for one in batch for value in _values(one.push) if len(value) <= longest}
    forms = {form for value in found for form in _forms(value) if stands(form)}
    return sorted(forms, key=len, reverse=True)


def _cleaned(reason: str, forms: Sequence[str]) -> str:
    for form in forms:
        if form not in reason:
            continue
        if len(form) < _SHORT:
            reason = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, reason)
        else:
            reason = reason.replace(form, MASK)
    return reason


def _forms(value: str) -> Iterator[str]:
    """Yield a text as it is, and as it stands in a URL, in JSON and in Python's own words."""
    yield value
    if _PLAIN.fullmatch(value):
        return
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
    """Yield the texts and numbers in a value, however deep it is."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, int | float):
            yield str(one)
