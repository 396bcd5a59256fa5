"""Ids in log lines: of the push that a line is about, or that somebody's own code has at hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar

from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.util.trace_context import read_traceparent

NAMES = ("push_id", "trace_id")
"""The ids that a log record may have."""

_AT_HAND: ContextVar[Sequence[Delivery]] = ContextVar("pushlane_at_hand", default=())


def ids_of(push: Push, traceparent: str = "") -> dict[str, str]:
    """Return the ids of a push for the `extra` of a log line; that of its trace, if it is in one.

    A trace id that is no `traceparent` is somebody's own text, which no log has.
    """
    told = traceparent or push.trace_id
    place = read_traceparent(told) if told else None
    return {"push_id": push.push_id, **({"trace_id": f"{place.trace_id:032x}"} if place else {})}


def ids_of_one(batch: Sequence[Delivery]) -> dict[str, str]:
    """Return the ids of the push in a batch of one; what is about many names none."""
    return ids_of(batch[0].push, batch[0].traceparent) if len(batch) == 1 else {}


class AtHand:
    """Has the lines that code logs within it show the ids of its push."""

    __slots__ = ("_batch", "_token")

    def __init__(self, batch: Sequence[Delivery]) -> None:
        self._batch = batch

    def __enter__(self) -> None:
        self._token = _AT_HAND.set(self._batch)

    def __exit__(self, *_: object) -> None:
        _AT_HAND.reset(self._token)


def ids_at_hand() -> dict[str, str]:
    """Return the ids of the push that is at hand here."""
    return ids_of_one(_AT_HAND.get())


def ids_in(record: logging.LogRecord) -> dict[str, str]:
    """Return the ids of a log line: those it was given, else of the push at hand."""
    given = {name: str(getattr(record, name)) for name in NAMES if hasattr(record, name)}
    return given or ids_at_hand()
