"""Sends each push to the push service of a browser (RFC 8030), encrypted for that browser alone.

The address of a push is the browser's subscription. Who names the URL is the browser: so only
services in a list are called, at addresses that were checked, and no redirect is followed. Nothing
is kept of a subscription.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from pushlane.core.errors import RefusedUrl, UnknownHost
from pushlane.core.push import DELIVERED, Arrival, Outcome
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.guarded_clients import GuardedClients, refusal
from pushlane.dispatcher.sinks.http_client import (
    MAX_ANSWER_BYTES,
    Timeouts,
    clock_note,
    clock_off_s,
    header_of,
    lost,
    read_answer,
    retry_after_s,
)
from pushlane.dispatcher.sinks.push_services import KNOWN_HOSTS, PushService, PushServices
from pushlane.dispatcher.sinks.vapid import VapidTokens, public_key, read_vapid_key, require_subject
from pushlane.dispatcher.sinks.webpush_encryption import encrypt
from pushlane.dispatcher.sinks.webpush_subscription import (
    MalformedSubscription,
    Subscription,
    read_subscription,
)
from pushlane.lanes.ports import Delivery
from pushlane.model.targets import PlainTarget
from pushlane.settings.payload_limits import WEB_PUSH_BYTES
from pushlane.util.url_guard import NOT_PUBLIC, UrlGuard

MAX_TTL_S = 28 * 86_400
"""Four weeks; Firefox takes 30 days, Chrome four weeks."""

_HEADERS = {"Content-Type": "application/octet-stream", "Content-Encoding": "aes128gcm"}
_URGENCY = {Level.HIGH: "high", Level.MEDIUM: "normal", Level.LOW: "low"}  # RFC 8030, 5.3
_TOPIC_CHARACTERS = 32
_GONE = frozenset({404, 410})
_REFUSED = frozenset({401, 403})
_OTHER_KEY = (  # a subscription that was made with another key, in the words of
    b"do not correspond to the credentials used to create the subscription",  # Chrome's service
    b"VAPID public key mismatch",  # Mozilla's
    b"VapidPkHashMismatch",  # Apple's
)
_BUSY = frozenset({406, 429, 503})  # the first is of Windows
_RETRY = frozenset({408, 425, *_BUSY})
_NOT_TAKEN = frozenset({406, 425, 429})
_TOO_LARGE = 413

_NOT_PUBLIC = "leads to an address that is not public; if it is meant, add it to `allow`"
_UNKNOWN_SERVICE = Outcome.dead("its endpoint is not of a push service that `hosts` lists")
_OVER_LIMIT = Outcome.dead(f"too large: over {WEB_PUSH_BYTES:,} bytes for a browser")


class BrowserMessage(msgspec.Struct, gc=False, omit_defaults=True):
    """The JSON that a browser reads when the push has no payload for it."""

    title: str
    body: str
    data: dict[str, Any] | None = None


class _Attempt(msgspec.Struct, gc=False):
    """A push on its way to a browser."""

    service: PushService
    subscription: Subscription
    delivery: Delivery
    plaintext: bytes


class WebPushOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Web Push: the key that browsers subscribed with, and how to reach its owner.

    `hosts` are the push services that may be called, `allow` opens addresses that are not public,
    and other ports and plain HTTP there. `ttl_s` is for pushes that do not expire, `streams` the
    most requests on a connection. `only_http2` speaks HTTP/2 at once where there is no TLS.
    """

    vapid_key: str
    subject: str
    hosts: Annotated[tuple[str, ...], Meta(min_length=1)] = KNOWN_HOSTS
    allow: tuple[str, ...] = ()
    ttl_s: Annotated[int, Meta(ge=0, le=MAX_TTL_S)] = 86_400
    streams: Annotated[int, Meta(ge=1, le=1_000)] = 100
    only_http2: bool = False

    def __repr__(self) -> str:
        return f"WebPushOptions({self.subject!r})"

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> WebPushSink:
        """Return the sink. Raises BadInput when the key, the subject or a host cannot be."""
        return WebPushSink(self, slots, timeout_s, retry_timeouts)

    def target(self) -> PlainTarget:
        """Return the public key: browsers subscribed with it, and their push services take no other
        one's pushes.
        """
        return PlainTarget("webpush", "", (public_key(read_vapid_key(self.vapid_key)),))


class WebPushSink:
    """Connections to each push service, a token for each, and what each has refused.

    `now` returns the Unix time in seconds, `clock_s` a time that never goes back.

    Raises:
        BadInput: an option cannot be; says which.
    """

    name = "webpush"
    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    def __init__(
        self,
        options: WebPushOptions,
        slots: int,
        timeout_s: float,
        retry_timeouts: bool = False,
        *,
        now: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        require_subject(options.subject)
        self._tokens = VapidTokens(read_vapid_key(options.vapid_key), options.subject, now)
        self._services = PushServices(options.hosts, slots, clock_s)
        self._timeouts = Timeouts(timeout_s, is_final=not retry_timeouts)
        self._clients = GuardedClients(
            UrlGuard(options.allow, options.hosts),
            slots,
            self._timeouts,
            _HEADERS,
            options.streams,
            only_http2=options.only_http2,
        )
        self._ttl_s = options.ttl_s
        self._now = now
        self._encode = msgspec.json.Encoder().encode

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self._deliver(delivery) for delivery in batch]

    async def close(self) -> None:
        await self._clients.close()

    async def _deliver(self, delivery: Delivery) -> Outcome:
        try:
            subscription = read_subscription(delivery.address)
        except MalformedSubscription as error:
            return Outcome.dead(str(error))
        service = self._services.of(subscription.host)
        if service is None:
            return _UNKNOWN_SERVICE
        plaintext = self._encode(_content(delivery))
        if len(plaintext) > WEB_PUSH_BYTES:
            return _OVER_LIMIT
        if (rests := self._services.refusal(service)) is not None:
            return rests
        leave = self._services.admit(service)
        outcome = None
        try:
            outcome = await self._ask(_Attempt(service, subscription, delivery, plaintext))
        finally:
            if outcome is None:  # cancelled
                self._services.give_back(service, leave)
        return self._services.landed(service, leave, delivery, outcome)

    async def _ask(self, attempt: _Attempt) -> Outcome:
        """Return what the push service makes of a push, or what keeps it from being asked.

        A service in the list at an address that is not public is no fault of a push.
        """
        try:
            async with self._clients.to(attempt.subscription.endpoint) as client:
                return await self._post(client, attempt)
        except (RefusedUrl, UnknownHost) as error:
            if isinstance(error, RefusedUrl) and error.reason == NOT_PUBLIC:
                return Outcome.refused(f"{attempt.service.name} {_NOT_PUBLIC}")
            return refusal(error)
        except PyreqwestError as error:
            return lost(error, self._timeouts, "the push service")

    async def _post(self, client: Client, attempt: _Attempt) -> Outcome:
        subscription, push = attempt.subscription, attempt.delivery.push
        request = (
            client.post(subscription.endpoint)
            .header("Authorization", self._tokens.authorization(subscription.origin))
            .header("TTL", str(self._ttl(push.expires_at_ms)))
            .header("Urgency", _URGENCY[attempt.delivery.level])
            .body_bytes(encrypt(attempt.plaintext, subscription.keys))
            .streamed_read_buffer_limit(MAX_ANSWER_BYTES)
        )
        if push.collapse:
            request = request.header("Topic", topic(push.collapse))
        async with request.build_streamed() as response:
            return await self._outcome(response, attempt.service)

    def _ttl(self, expires_at_ms: int) -> int:
        if not expires_at_ms:
            return self._ttl_s
        return min(max(0, int(expires_at_ms / 1000 - self._now())), MAX_TTL_S)

    async def _outcome(self, response: Response, service: PushService) -> Outcome:
        status = response.status
        if 200 <= status < 300:
            return DELIVERED
        now_s = self._now()
        return outcome_of(
            status,
            await read_answer(response),
            retry_after_s(header_of(response, "Retry-After"), now_s),
            clock_note(clock_off_s(header_of(response, "Date"), now_s)),
            is_key_good=service.has_delivered,
        )


def topic(collapse: str) -> str:
    """Return the Topic of a collapse key: letters and digits alone, as Firefox asks for."""
    return sha256(collapse.encode()).hexdigest()[:_TOPIC_CHARACTERS]


def outcome_of(
    status: int,
    answer: bytes,
    after_s: float | None,
    clock: str = "",
    *,
    is_key_good: bool = False,
) -> Outcome:
    """Return what a status other than 2xx means.

    `clock` says so if ours is off. `is_key_good`: the service took pushes that our key had signed.
    """
    reason = f"HTTP {status}"
    if status in _GONE:
        return Outcome.gone(f"{reason}: the subscription has ended")
    if any(words in answer for words in _OTHER_KEY):
        reason = f"{reason}: the browser subscribed with another vapid_key"
        return Outcome.dead(reason) if is_key_good else Outcome.refused(reason)
    if status in _REFUSED:
        why = f"{reason}: check subject and vapid_key"
        return Outcome.refused(f"{why}; {clock}" if clock else why)
    if status >= 500 or status in _RETRY:
        arrival = Arrival.REFUSED if status in _NOT_TAKEN else Arrival.FAILED
        if status in _BUSY:
            return Outcome.throttled(reason, after_s, arrival=arrival)
        return Outcome.retry(reason, after_s, arrival=arrival)
    if status == _TOO_LARGE:
        return Outcome.dead(f"{reason}: too large for the push service")
    if 300 <= status < 400:
        reason = f"{reason}: redirects are not followed"
    return Outcome.dead(reason, scope=None)


def _content(delivery: Delivery) -> Any:
    if delivery.payload is not None:
        return delivery.payload
    push = delivery.push
    return BrowserMessage(push.title, push.body, push.data)
