"""The context of a trace as it travels: the `traceparent` of W3C Trace Context."""

from __future__ import annotations

import logging
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from typing import Any, NamedTuple

log = logging.getLogger("pushlane.tracing")

VARIABLE = "TRACEPARENT"
"""The variable of the environment that tells a command its caller's place in a trace."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_INVALID_VERSION = "ff"
_SAMPLED = 1
_LENGTH = 55
TRACEPARENT_LIKE = "-".join("_" * length for length in (2, 32, 16, 2))
"""The form of a `traceparent` as a pattern of LIKE in SQL; its trace id begins at character 4."""
_HASH_BYTES = 8


class TraceContext(NamedTuple):
    """A place in a trace: its id (128 bits), that of a span in it (64 bits), and its flag."""

    trace_id: int
    span_id: int
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.is_sampled:02x}"


def read_traceparent(text: str) -> TraceContext | None:
    """Return the context that a text says, None if it is no `traceparent`."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found[1] == _INVALID_VERSION:
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED))


def given_traceparent(text: str) -> str:
    """Return the `traceparent` that came in a header or a variable, empty for what is none."""
    given = text.strip()
    return given if read_traceparent(given) is not None else ""


def trace_key(text: str) -> str:
    """Return what pushes of one trace share: the id in a `traceparent`, else all of the text.

    It goes by the form alone, as it is asked of each receipt that is read.
    """
    is_traceparent = len(text) == _LENGTH and text[2] == text[35] == text[52] == "-"
    return text[3:35] if is_traceparent else text


def trace_hash(text: str) -> int:
    """Return the first 64 bits of the SHA-256 of a `trace_key`, with a sign; 0 for no trace.

    The store of reports has it of each receipt, so that those of a trace are found by a number.
    """
    key = trace_key(text)
    digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_HASH_BYTES], "big", signed=True) if key else 0


def callers_traceparent() -> str:
    """Return the `traceparent` of OpenTelemetry's current span here, empty for none."""
    place = current_place()
    if place is None:
        return ""
    sampled = bool(place.trace_flags & _SAMPLED)
    return TraceContext(place.trace_id, place.span_id, sampled).traceparent


def current_place() -> Any:
    """Return the `SpanContext` of OpenTelemetry's current span here, None for none."""
    trace = _opentelemetry()
    place = None if trace is None else trace.get_current_span().get_span_context()
    return place if place is not None and place.is_valid else None


def submitters_traceparent(given: str) -> str:
    """Return where a submit is in a trace: as given, else by the current span; empty for nowhere.

    A text that is no `traceparent` is ignored.
    """
    if not given:
        return callers_traceparent()
    found = given_traceparent(given)
    if not found:
        told = "the traceparent given with a submit is invalid (W3C Trace Context): it is ignored"
        log.debug(told, extra={"action": "traceparent_ignored"})
    return found


def current_in_opentelemetry(
    place: TraceContext | None, tracestate: str = ""
) -> AbstractContextManager[Any]:
    """Make this place the current span of OpenTelemetry, so that who is instrumented goes on there.

    None leaves it as it is.
    """
    trace = None if place is None else _opentelemetry()
    if trace is None or place is None:
        return nullcontext()
    flags = trace.TraceFlags(_SAMPLED if place.is_sampled else 0)
    state = trace.TraceState.from_header([tracestate]) if tracestate else None
    context = trace.SpanContext(place.trace_id, place.span_id, False, flags, state)
    used: AbstractContextManager[Any] = trace.use_span(trace.NonRecordingSpan(context))
    return used


def _opentelemetry() -> Any:
    """Return its API, None where nobody has imported it: whoever has a span has done so."""
    return (
        sys.modules.get("opentelemetry.trace") if "opentelemetry.context" in sys.modules else None
    )
