"""Posts many pushes in one request to a server, which answers with a result for each.

The contract is in docs/sinks-http.md. A batch of over 1 MiB goes in several requests. An answer
that is no success is about every message of its request; but one message alone may have spoilt it:
then its halves are posted, and theirs, until the others are through. A result is matched by its
push id. What the receiver says in words is not kept, as it may hold a recipient: of a reason only a
short code is.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Scope
from pushlane.dispatcher.sinks.http_client import MAX_RETRY_AFTER_S, NO_JSON
from pushlane.dispatcher.sinks.posting import Poster, PostOptions
from pushlane.dispatcher.sinks.webhook import message_of, outcome_of_answer
from pushlane.dispatcher.transport.answer import Heard, Lost
from pushlane.model.targets import PlainTarget, url_target

MAX_REQUEST_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
SPOILT = frozenset({400, 413, 422})
"""The statuses of a request that was not taken for what it holds (RFC 9110, 15.5)."""
UNREADABLE = Outcome.retry("the answer to a batch cannot be read", arrival=Arrival.UNKNOWN)

Read = Callable[[bytes, Sequence[Delivery]], list[Outcome]]
"""Gives each of these deliveries its outcome, by the body of an answer with a status of 2xx."""


@dataclass(eq=False, repr=False)
class BatchPoster:
    """Posts `{"field": [message, …]}`.

    `read_refusal` reads a status other than 2xx and its body; None when the status says it all.
    """

    poster: Poster
    field: str
    read: Read
    read_refusal: Callable[[int, bytes], Outcome | None] = lambda status, body: None

    async def deliver(self, batch: Sequence[Delivery], messages: list[bytes]) -> list[Outcome]:
        """Return what became of each delivery, whose message is JSON."""
        answers = await asyncio.gather(
            *(self._post(batch[part], messages[part]) for part in _parts(messages))
        )
        return [outcome for answer in answers for outcome in answer]

    async def close(self) -> None:
        await self.poster.close()

    async def _post(self, part: Sequence[Delivery], messages: list[bytes]) -> list[Outcome]:
        if (outcomes := await self._answer(part, messages)) is not None:
            return outcomes
        half = len(part) // 2
        first = await self._post(part[:half], messages[:half])
        return first + await self._post(part[half:], messages[half:])

    async def _answer(
        self, part: Sequence[Delivery], messages: list[bytes]
    ) -> list[Outcome] | None:
        """Return the outcomes of a request, None if one of its messages may have spoilt it."""
        body = b'{"%b":[%b]}' % (self.field.encode(), b",".join(messages))
        request = self.poster.request(_key(part), body)
        return self._outcomes(await self.poster.transport.send(*request), part)

    def _outcomes(self, heard: Heard, part: Sequence[Delivery]) -> list[Outcome] | None:
        if isinstance(heard, Lost):
            return [self.poster.lost(heard)] * len(part)
        if 200 <= heard.status < 300:
            if heard.cut:
                return [self.poster.lost(Lost(heard.cut))] * len(part)
            return self.read(heard.body, part)
        refusal = self.read_refusal(heard.status, heard.body)
        if refusal is None and heard.status in SPOILT and len(part) > 1:
            return None
        return [refusal or outcome_of_answer(heard, time.time())] * len(part)


def _key(part: Sequence[Delivery]) -> str:
    """Return the id of a request: the same for the same pushes, and without a dot."""
    ids = "\n".join(delivery.push.push_id for delivery in part)
    return f"batch-{hashlib.sha256(ids.encode()).hexdigest()[:32]}"


def _parts(messages: Sequence[bytes]) -> Iterator[slice]:
    """Cut a batch where a request would be too large. One message alone always goes."""
    start = size = 0
    for at, message in enumerate(messages):
        if at > start and size + len(message) > MAX_REQUEST_BYTES:
            yield slice(start, at)
            start, size = at, 0
        size += len(message) + 1
    yield slice(start, len(messages))


_CODE = re.compile(r"(?=[a-z])[a-z0-9_.-]{1,40}")
_MOST_CODES = 32
_MOST_DIGITS = 4  # a code with more may be a number that somebody is known by

NO_RESULT = Outcome.retry("the receiver gave no result for it", arrival=Arrival.UNKNOWN)
NO_STATUS = Outcome.retry("the receiver gave a status that is none", arrival=Arrival.UNKNOWN)


class HttpBatchOptions(PostOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of batches: those of what posts, the keys that sign, and the most in one batch."""

    secrets: str | list[str] = ""
    batch_size: Annotated[int, Meta(ge=1, le=1000)] = 100

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> HttpBatchSink:
        """Return the sink. Raises BadInput when an option cannot be."""
        timeouts = self.timeouts(timeout_s, retry_timeouts)
        who, most = "the receiver", MAX_ANSWER_BYTES
        poster = Poster(self, timeouts, slots, who, secrets=self.secrets, most_body=most)
        return HttpBatchSink(poster, self.batch_size)

    def target(self) -> PlainTarget:
        """Return the URL that is posted to."""
        return url_target("http", self.url)


class _PostedPayload(msgspec.Struct, gc=False, omit_defaults=True):
    """The JSON of a push that has a payload for the sink; what is empty is left out."""

    push_id: str
    payload: Any
    trace_id: str = ""
    traceparent: str = ""
    tracestate: str = ""


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
        one = message_of(delivery, has_trace=True)
        if delivery.payload is None:
            return self._encode(one)
        trace = one.trace_id, one.traceparent, one.tracestate
        return self._encode(_PostedPayload(one.push_id, delivery.payload, *trace))

    def _outcomes(self, body: bytes, part: Sequence[Delivery]) -> list[Outcome]:
        try:
            results = _read(body).results
        except NO_JSON:
            return [UNREADABLE] * len(part)
        # The first result of a push counts: so the last is written first.
        found = {one.push_id: one for one in reversed(results) if isinstance(one.push_id, str)}
        outcomes = []
        for delivery in part:
            outcome = NO_RESULT
            if (result := found.get(delivery.push.push_id)) is not None:
                code = self._code(result.reason, delivery)
                outcome = outcome_of(result.status, code, _seconds(result.after_s))
            outcomes.append(outcome)
        return outcomes

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
