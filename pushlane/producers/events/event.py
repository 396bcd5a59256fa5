"""One event that a device reported of a push, and its form on a line of JSON.

A line names its push as `push_id`, or as `task_id` and `seq`. Messages name places and ids, never
what an attribute holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_SEQ
from pushlane.core.task import now_ms
from pushlane.lanes.suggestions import did_you_mean
from pushlane.lanes.zones import UTC
from pushlane.model.receipt import Event
from pushlane.model.times import FIRST_MS, LAST_MS
from pushlane.producers.columns import moment_ms
from pushlane.producers.labels import checked
from pushlane.util.conversion import moment_ms as given_ms
from pushlane.util.conversion import text

_WORD = re.compile(r"[a-z_]{1,40}")  # what may be an event that we do not know, and no value
_KNOWN = ("push_id", "task_id", "seq", "event", "at", "attributes", "trace_id")


@dataclass(frozen=True)
class PushEvent:
    """An event of the push `push_id` (TASK-SEQ), which happened at `at_ms` (Unix milliseconds).

    Raises:
        BadInput: no such push can be, or the event, time or attributes are out of bounds.
    """

    push_id: str
    event: Event | str
    at_ms: int
    attributes: Mapping[str, str] | None = None
    trace_id: str = ""

    def __post_init__(self) -> None:
        text("push_id", self.push_id)
        at_ms = given_ms("at_ms", self.at_ms, now_ms())
        object.__setattr__(self, "at_ms", at_ms)
        task_id, _, seq = self.push_id.rpartition("-")
        is_number = seq.isascii() and seq.isdigit() and len(seq) <= len(str(MAX_SEQ))
        if not (task_id and is_number and 1 <= int(seq) <= MAX_SEQ):
            raise BadInput("push_id is no id of a push; give TASK-SEQ, as its sink was given it")
        known = [event.value for event in Event]
        if self.event not in known:
            word = self.event if isinstance(self.event, str) else ""
            shown = f" {word!r}" if _WORD.fullmatch(word) else ""
            raise BadInput(
                f"unknown event{shown}; use {', '.join(known)}{did_you_mean(word[:40], known)}"
            )
        if not FIRST_MS <= at_ms <= LAST_MS:
            raise BadInput("an event's time is not from 2001 to 3000; give Unix milliseconds")
        checked(self.attributes, self.trace_id)

    @property
    def task_id(self) -> str:
        return self.push_id.rpartition("-")[0]

    @property
    def seq(self) -> int:
        return int(self.push_id.rpartition("-")[2])


_decoder = msgspec.json.Decoder(dict[str, Any])


def parse_event(line: bytes) -> PushEvent:
    """Return the event on a line. Raises BadInput, with the reason, when there is none."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("it is not one JSON object") from error
    for name in found:
        if name not in _KNOWN:
            hint = did_you_mean(name, _KNOWN)
            raise BadInput(f"there is no field {name[:40]!r}{hint}; known: {', '.join(_KNOWN)}")
    return PushEvent(
        _push_id(found),
        str(found.get("event", "")),
        _at_ms(found.get("at")),
        found.get("attributes"),
        found.get("trace_id") or "",
    )


def _push_id(found: dict[str, Any]) -> str:
    if "push_id" in found:
        return str(found["push_id"])
    if "task_id" not in found or "seq" not in found:
        raise BadInput("it has no push_id, nor task_id and seq")
    return f"{found['task_id']}-{found['seq']}"


def _at_ms(at: Any) -> int:
    """Read a time. Numbers from 2001 on as milliseconds are that; smaller ones are seconds."""
    if isinstance(at, int | float) and not isinstance(at, bool) and FIRST_MS <= at <= LAST_MS:
        return int(at)
    at_ms = moment_ms(at, UTC)
    if not at_ms:
        raise BadInput(
            "it has no time in 'at': an ISO time like 2030-01-31T18:00Z, or Unix seconds or "
            "milliseconds, from 2001 to 3000"
        )
    return at_ms
