"""Posts each push as JSON to one URL, or to its own, and reads the outcome off the status.

A push that has a payload for this sink is posted as that, without a word of ours.
The Idempotency-Key is the push id, the same for every attempt. With keys each request is signed,
with that id in it. A push's trace id goes along as the header `traceparent` when it is one (W3C
Trace Context), with its `tracestate` if any, else as `X-Trace-Id`. It never follows a redirect, and
never keeps or logs what the server answers. A table in docs/sinks-http.md says what each answer
means; a test holds each row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Scope
from pushlane.dispatcher.sinks.address_posting import AddressPoster, GuardedClients
from pushlane.dispatcher.sinks.http_client import (
    Posts,
    Request,
    Timeouts,
    clock_note,
    clock_off_s,
    retry_after_s,
)
from pushlane.dispatcher.sinks.posting import NO_HEADERS, Poster, PostOptions
from pushlane.dispatcher.transport.answer import Answer, Answered, Heard, Lost
from pushlane.dispatcher.transport.choice import guarded_opener
from pushlane.model.targets import PlainTarget, url_target
from pushlane.util.trace_context import read_traceparent
from pushlane.util.tracestate import kept_tracestate
from pushlane.util.url_guard import UrlGuard

_BUSY = frozenset({429, 503})
_RETRY = frozenset({408, 425, *_BUSY})
_NOT_TAKEN = frozenset({425, 429})
_GONE = 410
_REFUSED = frozenset({401, 403})


class PostedPush(msgspec.Struct, gc=False, omit_defaults=True):
    """The JSON of a push that has no payload for the sink; what is empty is left out."""

    push_id: str
    task_id: str
    seq: int
    attempt: int
    level: str
    recipient: str
    title: str
    body: str
    data: dict[str, Any] | None
    address: str = ""
    expires_at_ms: int = 0
    collapse: str = ""
    trace_id: str = ""
    traceparent: str = ""
    tracestate: str = ""


class WebhookOptions(PostOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a webhook: those of what posts, and `secrets`, one or two keys that sign.

    With `to_address` each push goes to the URL that is its address; then `allow` opens hosts and
    networks of the operator's, and `ports` are those that may be asked.
    """

    url: str = ""
    secrets: str | list[str] = ""
    to_address: bool = False
    allow: tuple[str, ...] = ()
    ports: tuple[Annotated[int, Meta(ge=1, le=65_535)], ...] = ()

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> WebhookSink:
        """Return the sink. Raises BadInput when an option cannot be."""
        timeouts = self.timeouts(timeout_s, retry_timeouts)
        self._require_one_place()
        return WebhookSink(self, slots, timeouts)

    def target(self) -> PlainTarget:
        """Return the URL that is posted to; with `to_address` each push names its own."""
        if self.to_address:
            return PlainTarget("webhook", "", ("to_address",))
        return url_target("webhook", self.url)

    def _require_one_place(self) -> None:
        """Refuse options that contradict each other, before a secret goes to a host of a row."""
        if not self.to_address and (self.allow or self.ports):
            raise BadInput("allow and ports need to_address = true; a webhook's own url is trusted")
        if not self.to_address and not self.url:
            raise BadInput("a webhook needs the option url, or to_address = true")
        if self.to_address and self.url:
            raise BadInput("url and to_address are both given; leave one of them out")
        if self.to_address and self.authorization:
            raise BadInput(
                "authorization would go to every host that a row names; with to_address sign with "
                "secrets instead"
            )


class WebhookSink(Posts):
    """Posts each push for itself. Raises BadInput when an option cannot be."""

    name = "webhook"

    def __init__(
        self,
        options: WebhookOptions,
        slots: int,
        timeouts: Timeouts,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._encode = msgspec.json.Encoder().encode
        self._poster = _poster(options, slots, timeouts, now)
        self.can_post = isinstance(self._poster, Poster) and self._poster.transport.can_post

    async def close(self) -> None:
        await self._poster.close()

    async def send(self, delivery: Delivery) -> Outcome:
        poster = self._poster
        if isinstance(poster, AddressPoster):
            content = self._content_of(delivery)
            return await poster.post(delivery.address, *content, self._read)
        return self.outcome(await poster.transport.send(*self.request_of(delivery)))

    def posted(self, delivery: Delivery, answered: Answered, token: Any) -> bool:
        """Post a push, where all go to one URL and a connection is free."""
        assert isinstance(self._poster, Poster)
        return self._poster.transport.post(*self.request_of(delivery), answered, token)

    def request_of(self, delivery: Delivery) -> Request:
        """Return the request of a push, where all go to one URL."""
        assert isinstance(self._poster, Poster)
        return self._poster.request(*self._content_of(delivery))

    def outcome(self, heard: Heard) -> Outcome:
        """Return what becomes of a push of which this was heard, where all go to one URL."""
        return self._poster.lost(heard) if isinstance(heard, Lost) else self._read(heard)

    def _content_of(self, delivery: Delivery) -> tuple[str, bytes, Mapping[str, str]]:
        """Return the key, the body and the headers of a push."""
        push = delivery.push
        content = message_of(delivery) if delivery.payload is None else delivery.payload
        traced = NO_HEADERS
        if push.trace_id or delivery.traceparent:
            traced = _trace_headers(delivery)
        return push.push_id, self._encode(content), traced

    def _read(self, answer: Answer) -> Outcome:
        return outcome_of_answer(answer, self._now())


def _trace_headers(delivery: Delivery) -> dict[str, str]:
    """Tracers read the first two; what a push may have as its trace id a header can hold."""
    push, traceparent = delivery.push, delivery.traceparent
    found = {"traceparent": traceparent, "X-Trace-Id": push.trace_id}
    if read_traceparent(push.trace_id) is not None:
        tracestate = kept_tracestate(push.trace_id, push.tracestate)
        found = {"traceparent": traceparent or push.trace_id, "tracestate": tracestate}
    return {name: text for name, text in found.items() if text}


def _poster(
    options: WebhookOptions, slots: int, timeouts: Timeouts, now: Callable[[], float]
) -> Poster | AddressPoster:
    secrets = options.secrets
    if not options.to_address:
        return Poster(options, timeouts, slots, "the webhook", secrets=secrets, now=now)
    guard = UrlGuard(options.allow, ports=options.ports)
    connect = guarded_opener(
        slots,
        timeouts,
        options.all_headers(),
        client=options.client,
        tls=options.tls,
        only_http2=options.only_http2,
    )
    return AddressPoster(guard, GuardedClients(connect), timeouts, secrets, now)


def outcome_of_answer(answer: Answer, now_s: float) -> Outcome:
    """Return what the status and the headers of an answer mean for the push."""
    if 200 <= answer.status < 300:
        return DELIVERED
    headers = answer.headers
    outcome = outcome_of(answer.status, headers.get("retry-after"), now_s)
    if outcome.refuses_us and (off := clock_note(clock_off_s(headers.get("date"), now_s))):
        return Outcome.refused(f"{outcome.reason}; {off}")
    return outcome


def outcome_of(status: int, retry_after: str | None, now_s: float) -> Outcome:
    """Return what a status other than 2xx means for the push."""
    reason = f"HTTP {status}"
    if status >= 500 or status in _RETRY:
        after_s = retry_after_s(retry_after, now_s)
        arrival = Arrival.REFUSED if status in _NOT_TAKEN else Arrival.FAILED
        if status in _BUSY:
            return Outcome.throttled(reason, after_s, arrival=arrival)
        return Outcome.retry(reason, after_s, arrival=arrival)
    if status in _REFUSED:
        return Outcome.refused(f"{reason}: check its credentials")
    if 300 <= status < 400:
        reason = f"{reason}: redirects are not followed; give the final URL"
    return Outcome.dead(reason, scope=Scope.PUSH if status == _GONE else None)


def message_of(delivery: Delivery, *, has_trace: bool = False) -> PostedPush:
    """Return the JSON of a push, with its trace where no header of the request can have it."""
    push = delivery.push
    return PostedPush(
        push.push_id,
        push.task_id,
        push.seq,
        push.attempt,
        delivery.level,
        push.recipient,
        push.title,
        push.body,
        push.data,
        "" if delivery.address == push.recipient else delivery.address,
        push.expires_at_ms,
        push.collapse,
        push.trace_id if has_trace else "",
        delivery.traceparent if has_trace else "",
        kept_tracestate(push.trace_id, push.tracestate) if has_trace else "",
    )
