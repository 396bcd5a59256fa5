"""The `tracestate` beside a `traceparent` (W3C Trace Context): what tracers tell each other.

It travels with a push as it came, to the sink, where it can: one that is malformed or too long is
left out and counted, and the push goes without. Without a `traceparent` it means nothing.
"""

from __future__ import annotations

import re

from pushlane.util.trace_context import current_place, read_traceparent

MOST_BYTES = 512
_MOST_MEMBERS = 32
_MEMBER = re.compile(
    r"([a-z0-9][a-z0-9_\-*/]{0,240}(?:@[a-z0-9][a-z0-9_\-*/]{0,13})?)"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_BLANKS = " \t"


class LeftOut:
    """Counts the tracestates that this process left out."""

    count = 0


def kept_tracestate(traceparent: str, given: str) -> str:
    """Return a tracestate as it may travel beside a `traceparent`, empty for one that may not.

    What is left out is counted.
    """
    if not given:
        return ""
    found = read_tracestate(given) if read_traceparent(traceparent) is not None else ""
    LeftOut.count += not found
    return found


def read_tracestate(text: str) -> str:
    """Return the members of a tracestate, without blanks around them; empty if any is none.

    So for one that has more than 512 bytes or 32 members, or a key twice.
    """
    members = [member.strip(_BLANKS) for member in text.split(",")] if len(text) < _LONGEST else []
    members = [member for member in members if member]
    found = [_MEMBER.fullmatch(member) for member in members]
    keys = {one[1] for one in found if one is not None}
    if len(keys) != len(members) or len(members) > _MOST_MEMBERS:
        return ""
    whole = ",".join(members)
    return whole if len(whole) <= MOST_BYTES else ""


_LONGEST = 2 * MOST_BYTES  # with blanks


def callers_tracestate() -> str:
    """Return the tracestate of OpenTelemetry's current span here, empty for none."""
    place = current_place()
    return "" if place is None else str(place.trace_state.to_header())
