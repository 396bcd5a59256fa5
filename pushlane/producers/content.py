"""Encodes one push of an application, once its seq is known.

What a dispatcher could not read is refused here, before it takes a seq.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pushlane.core.errors import BadInput, MalformedPush, OversizedPush
from pushlane.core.push import MAX_PUSH_BYTES, Push, decode, encode
from pushlane.core.task import Task, now_ms
from pushlane.model.times import FIRST_MS, LAST_MS
from pushlane.producers.addresses import given_addresses
from pushlane.producers.labels import checked
from pushlane.producers.outbox.buffer import Encode
from pushlane.producers.payloads import given_payloads
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.util.conversion import moment_ms, shown


class Content(NamedTuple):
    """The fields of a push as an application gives them; an expiry of 0 means never."""

    recipient: str
    title: str
    body: str
    data: Mapping[str, Any] | None
    expires_at_ms: int | datetime | timedelta | str
    attributes: Mapping[str, str] | None = None
    trace_id: str = ""
    address: str | Mapping[str, Any] | None = None
    payload: Mapping[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to show or to read in it."""
        return not (self.title or self.body or self.data or self.payload)


def encoder(task: Task, limits: PayloadLimits, content: Content) -> Encode:
    """Return a function from the seq to the bytes; it raises BadInput for what cannot travel.

    An expiry of 0 ms means never.

    Raises:
        BadInput: there is no recipient, data that is no mapping, labels out of bounds, or an
            address or payload for no sink of the task.

    The push must also be within the `limits` of the sinks that the task goes to.
    """
    if not isinstance(content.recipient, str) or not content.recipient.strip():
        raise BadInput("a push has no recipient; give a text that is not empty")
    if not isinstance(content.data, Mapping | None):
        raise BadInput(f"the data of a push is a {type(content.data).__name__}, not a mapping")
    recipient, submitted_at_ms = content.recipient.strip(), now_ms()
    expires_at_ms = _expiry_ms(content.expires_at_ms, submitted_at_ms)
    data = dict(content.data) if content.data is not None else None
    attributes = checked(content.attributes, content.trace_id)
    addresses = given_addresses(content.address, task.chain)
    payloads = given_payloads(content.payload, task.chain)

    def encode_push(seq: int) -> bytes:
        return _encoded(
            limits,
            Push(
                task.id,
                seq,
                recipient,
                content.title,
                content.body,
                data,
                expires_at_ms,
                submitted_at_ms,
                attributes=attributes,
                trace_id=content.trace_id,
                addresses=addresses,
                payloads=payloads,
            ),
        )

    return encode_push


def _expiry_ms(given: Any, now_ms: int) -> int:
    expires_at_ms = moment_ms("expires_at_ms", given, now_ms)
    if expires_at_ms and not FIRST_MS <= expires_at_ms <= LAST_MS:
        raise BadInput(
            f"expires_at_ms is {shown(expires_at_ms)}, which is not from the years 2001 to 3000; "
            "give Unix milliseconds, or 0 for never"
        )
    return expires_at_ms


def _encoded(limits: PayloadLimits, push: Push) -> bytes:
    try:
        body = encode(push)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            "a push holds text that is not UTF-8, or data that JSON cannot hold"
        ) from error
    if len(body) > MAX_PUSH_BYTES:
        raise OversizedPush(
            f"a push has {len(body):,} bytes, over the limit of {MAX_PUSH_BYTES:,}; shorten its "
            "body, data or payload"
        )
    if excess := limits.excess(push, len(body)):
        raise OversizedPush(f"a push has {excess}; shorten its body, data or payload")
    try:
        decode(body)
    except MalformedPush as error:
        raise BadInput(
            "a push holds a value of the wrong type: title and body are texts, and data maps texts "
            "to values"
        ) from error
    return body
