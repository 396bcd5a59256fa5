"""Encodes one push of an application, once its seq is known.

What a dispatcher could not read is refused here, before it takes a seq.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pushlane.lanes.errors import BadInput, MalformedPush, OversizedPush
from pushlane.lanes.push import MAX_PUSH_BYTES, Push, decode, encode
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.labels import checked
from pushlane.producers.outbox.buffer import Encode


def encoder(
    task_id: str,
    recipient: str,
    title: str,
    body: str,
    data: Mapping[str, Any] | None,
    expires_at_ms: int,
    attributes: Mapping[str, str] | None,
    trace_id: str,
) -> Encode:
    """Return a function from the seq to the bytes; it raises BadInput for what cannot travel.

    An expiry of 0 ms means never.

    Raises:
        BadInput: there is no recipient, data that is no mapping, or labels out of bounds.
    """
    if not isinstance(recipient, str) or not recipient.strip():
        raise BadInput("a push has no recipient; give a text that is not empty")
    if not isinstance(data, Mapping | None):
        raise BadInput(f"the data of a push is a {type(data).__name__}, not a mapping")
    push = Push(
        task_id,
        1,
        recipient.strip(),
        title,
        body,
        dict(data) if data is not None else None,
        expires_at_ms,
        now_ms(),
        attributes=checked(attributes, trace_id),
        trace_id=trace_id,
    )
    return lambda seq: _encoded(replace(push, seq=seq))


def _encoded(push: Push) -> bytes:
    try:
        body = encode(push)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            "a push holds text that is not UTF-8, or data that JSON cannot hold"
        ) from error
    if len(body) > MAX_PUSH_BYTES:
        raise OversizedPush(
            f"a push has {len(body):,} bytes, over the limit of {MAX_PUSH_BYTES:,}; shorten its "
            "body or data"
        )
    try:
        decode(body)
    except MalformedPush as error:
        raise BadInput(
            "a push holds a value of the wrong type: title and body are texts, data maps texts "
            "to values, expires_at_ms is a whole number"
        ) from error
    return body
