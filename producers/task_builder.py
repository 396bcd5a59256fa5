"""The task that a request asks for, and what tells the same request when it comes again."""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pushlane.lanes.errors import BadInput
from pushlane.lanes.naming import own_lane, pool_lane
from pushlane.lanes.quiet import parse_quiet
from pushlane.lanes.settings import Settings
from pushlane.lanes.suggestions import did_you_mean
from pushlane.lanes.task import (
    MAX_ATTEMPTS,
    MAX_QUOTA,
    DeliveryMode,
    Level,
    OnUnknown,
    Task,
    new_task_id,
)
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.labels import check_names
from pushlane.producers.request import SubmitRequest
from pushlane.producers.when import validate_times

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK_BYTES = 1 << 22
_LONGEST_LABEL = 200
LONGEST_RETENTION_S = 366 * 86_400


def new_task(request: SubmitRequest, settings: Settings) -> Task:
    """A task that nobody knows of yet.

    Raises:
        BadInput: a name, key, app, quota, time or number of attempts that cannot be.
    """
    now = now_ms()
    attempts = request.max_attempts if request.max_attempts is not None else settings.max_attempts
    _validate(request, settings, attempts, now)
    task_id = new_task_id()
    lane = _first_lane(request, task_id, settings)
    return Task(
        id=task_id,
        level=request.level,
        lane=lane,
        first_lane=lane,
        name=request.name,
        key=request.key,
        app=request.app,
        quota=request.quota,
        max_attempts=attempts,
        retention_s=settings.retention_s if request.retention_s is None else request.retention_s,
        delivery=DeliveryMode(request.delivery),
        on_unknown=OnUnknown(request.on_unknown or OnUnknown.RESEND),
        not_before_ms=request.not_before_ms,
        ordered=bool(request.ordered_by),
        dedupe=bool(request.dedupe),
        quiet=str(parse_quiet(request.quiet)) if request.quiet else "",
        zone=request.zone,
        created_at_ms=now,
        expires_at_ms=request.expires_at_ms,
    )


def _first_lane(request: SubmitRequest, task_id: str, settings: Settings) -> str:
    """The lane of all pushes of a submit, wherever the task moves: a repeat must find them.

    A low task whose pushes wait for their time has a lane of its own, so as not to clog the pool,
    and so has one that is to be kept for a time of its own.
    """
    waits = request.not_before_ms or request.not_before_column or request.quiet
    is_pooled = request.level is Level.LOW and not waits and not request.retention_s
    return pool_lane(task_id, settings.pool_lanes) if is_pooled else own_lane(task_id)


def describe(request: SubmitRequest, settings: Settings) -> bytes:
    """All but the rows that makes pushes what they are, and their batches what they are.

    Start and expiry are left out: `in 2 hours` is another time at each call, and the first counts.
    """
    labels = [request.attributes, request.trace_id]  # without any, as it was before there were any
    return msgspec.json.encode(
        [
            request.level,
            request.quota,
            request.app,
            request.recipient,
            request.title,
            request.body,
            request.data,
            request.ordered_by,
            request.dedupe,
            request.collapse,
            request.not_before_column,
            request.expires_column,
            request.quiet,
            request.zone,
            request.zone_column,
            request.bad_rows,
            request.delivery,
            request.on_unknown,
            request.retention_s,
            settings.batch,
            settings.pool_lanes if request.level is Level.LOW else 0,
            *(labels if any(labels) else ()),
        ]
    )


def feed(digest: _Hash, path: Path) -> Generator[int, None, None]:
    """Add a file's content to a hash; yields the bytes so far."""
    done = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            yield done


def _validate(request: SubmitRequest, settings: Settings, attempts: int, now: int) -> None:
    _validate_label("name", request.name)
    _validate_label("key", request.key)
    _validate_label("app", request.app)
    if not request.app:
        raise BadInput("app is empty; name who sends, or leave it out")
    _validate_quota(request)
    check_names(request.attributes)
    if not 1 <= attempts <= MAX_ATTEMPTS:
        raise BadInput(f"max attempts {attempts} is not from 1 to {MAX_ATTEMPTS}")
    validate_times(request, now)
    _validate_retention(request, settings)
    _validate_delivery(request)
    _validate_together(request)


def _validate_label(what: str, text: str) -> None:
    """Labels are shown on terminals and in tables: short, and nothing that controls them."""
    if len(text) > _LONGEST_LABEL:
        raise BadInput(f"{what} has {len(text)} characters; use at most {_LONGEST_LABEL}")
    if not text.isprintable() or text != text.strip():
        raise BadInput(
            f"{what} {text[:40]!r} holds control characters, or begins or ends with a space; "
            "use plain text"
        )


def _validate_quota(request: SubmitRequest) -> None:
    if not 1 <= request.quota <= MAX_QUOTA:
        raise BadInput(f"quota {request.quota} is not from 1 to {MAX_QUOTA}")
    if request.level is Level.LOW and request.quota != 1:
        raise BadInput(
            f"quota {request.quota} cannot be given to a low task: it shares a pool lane, which "
            "has no quota of its own; submit it as medium or high, or promote it later"
        )


def _validate_retention(request: SubmitRequest, settings: Settings) -> None:
    kept_s = request.retention_s
    if kept_s is None:
        return
    if not 0 <= kept_s <= LONGEST_RETENTION_S:
        raise BadInput(f"retention {kept_s:g} s is not from 0 to {LONGEST_RETENTION_S} s (a year)")
    if not settings.capabilities.retains_freely and kept_s > settings.retention_s:
        raise BadInput(
            f"retention {kept_s:g} s is longer than the {settings.retention_s:g} s for which "
            "Pulsar keeps what is acked; raise retention_s in the settings of every process"
        )


def _validate_together(request: SubmitRequest) -> None:
    if request.dedupe not in ("", "recipient"):
        raise BadInput(f"dedupe {request.dedupe!r} is not known; use 'recipient', or leave it out")
    if request.ordered_by and request.collapse:
        raise BadInput(
            f"ordered by {request.ordered_by!r} and collapse {request.collapse!r} contradict each "
            "other: an ordered task sends every push, a collapse key only the newest; leave one out"
        )


def _validate_delivery(request: SubmitRequest) -> None:
    _validate_word("delivery", request.delivery, DeliveryMode)
    if request.on_unknown is None:
        return
    _validate_word("on_unknown", request.on_unknown, OnUnknown)
    if request.delivery != DeliveryMode.ONCE:
        raise BadInput(
            f"on_unknown {request.on_unknown} cannot be given with delivery {request.delivery}: "
            "it says what becomes of pushes of delivery `once` alone; leave one of the two out"
        )


def _validate_word(what: str, word: str, kind: type[StrEnum]) -> None:
    known = [member.value for member in kind]
    if word not in known:
        raise BadInput(
            f"unknown {what} {word!r}; use {', '.join(known)}{did_you_mean(word, known)}"
        )
