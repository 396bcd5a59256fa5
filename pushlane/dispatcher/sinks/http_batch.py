"""Posts many pushes in one request to a server of yours, which answers with a result for each.

The contract is in docs/sinks.md. A result is matched by its push id. What the receiver says in
words is not kept, as it may hold a recipient: of a reason only a short code is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.push import DELIVERED, Arrival, Outcome, Scope
from pushlane.dispatcher.sinks.batch_posting import UNREADABLE, BatchPoster
from pushlane.dispatcher.sinks.http_client import MAX_RETRY_AFTER_S, NO_JSON
from pushlane.dispatcher.sinks.posting import Poster, PostOptions
from pushlane.dispatcher.sinks.webhook import message_of
from pushlane.lanes.ports import Delivery
from pushlane.model.targets import PlainTarget, url_target

_CODE = re.compile(r"(?=[a-z])[a-z0-9_.-]{1,40}")
_MOST_DIGITS = 4  # a code with more may be a number that somebody is known by
_MOST_CODES = 32

NO_RESULT = Outcome.retry("the receiver gave no result for it", arrival=Arrival.UNKNOWN)
NO_STATUS = Outcome.retry("the receiver gave a status that is none", arrival=Arrival.UNKNOWN)


class HttpBatchOptions(PostOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of batches: those of what posts, the keys that sign, and the most in one batch."""

    secrets: str | list[str] = ""
    batch_size: Annotated[int, Meta(ge=1, le=1000)] = 100

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> HttpBatchSink:
        """Return the sink. Raises BadInput when an option cannot be."""
        timeouts = self.timeouts(timeout_s, retry_timeouts)
        poster = Poster(self, timeouts, slots, "the receiver", secrets=self.secrets)
        return HttpBatchSink(poster, self.batch_size)

    def target(self) -> PlainTarget:
        """Return the URL that is posted to."""
        return url_target("http", self.url)


class _Result(msgspec.Struct, gc=False):
    """The result of one push, as a receiver gives it. None of it is trusted."""

    push_id: Any = None
    status: Any = None
    reason: Any = None
    after_s: Any = None


class _Results(msgspec.Struct, gc=False):
    results: list[_Result]


_read = msgspec.json.Decoder(_Results).decode


class HttpBatchSink:
    """Posts pushes of one task together: what spoils a batch spoils no other task's."""

    name = "http"
    mixes_tasks = False
    hosts_code = False

    def __init__(self, poster: Poster, batch_size: int) -> None:
        self.batch_size = batch_size
        self._codes: set[str] = set()
        self._encode = msgspec.json.Encoder().encode
        self._batches = BatchPoster(poster, "messages", self._outcomes)

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return await self._batches.deliver(batch, [self._message(each) for each in batch])

    async def close(self) -> None:
        await self._batches.close()

    def _message(self, delivery: Delivery) -> bytes:
        push = delivery.push
        if delivery.payload is None:
            return self._encode(message_of(delivery, push.trace_id))
        return self._encode({"push_id": push.push_id, "payload": delivery.payload})

    def _outcomes(self, body: bytes, part: Sequence[Delivery]) -> list[Outcome]:
        try:
            results = _read(body).results
        except NO_JSON:
            return [UNREADABLE] * len(part)
        # The first result of a push counts: so the last is written first.
        found = {one.push_id: one for one in reversed(results) if isinstance(one.push_id, str)}
        return [self._outcome(found.get(each.push.push_id), each) for each in part]

    def _outcome(self, result: _Result | None, delivery: Delivery) -> Outcome:
        if result is None:
            return NO_RESULT
        code = "" if result.reason is None else self._code(result.reason, delivery)
        return outcome_of(result.status, code, _seconds(result.after_s))

    def _code(self, reason: Any, delivery: Delivery) -> str:
        """Return a reason that people may see, out of a bounded number; else nothing."""
        if not isinstance(reason, str) or not _CODE.fullmatch(reason):
            return ""
        if sum(letter.isdigit() for letter in reason) > _MOST_DIGITS:
            return ""
        if any(reason in text.lower() for text in (delivery.push.recipient, delivery.address)):
            return ""
        if reason not in self._codes and len(self._codes) >= _MOST_CODES:
            return ""
        self._codes.add(reason)
        return reason


def outcome_of(status: Any, code: str, after_s: float | None) -> Outcome:
    """Return what a status of a receiver's result means; `code` is its reason."""
    told = f": {code}" if code else ""
    match status:
        case "delivered":
            return DELIVERED
        case "retry":
            return Outcome.retry(f"the receiver asks for another attempt{told}", after_s)
        case "throttled":
            reason = f"the receiver takes no more for this address now{told}"
            return Outcome.throttled(reason, after_s, Scope.RECIPIENT)
        case "gone":
            return Outcome.gone(f"the receiver says that the address is gone{told}")
        case "dead":
            return Outcome.dead(f"the receiver cannot deliver it{told}")
    return NO_STATUS


def _seconds(value: Any) -> float | None:
    """Return a wait in seconds, up to an hour; None for what is no wait."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(min(value, MAX_RETRY_AFTER_S))
