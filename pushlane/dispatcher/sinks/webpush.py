"""Sends each push to the push service of a browser (RFC 8030), encrypted for that browser alone.

The address of a push is the browser's subscription, of which nothing is kept or shown. Who names
the URL is the browser: so only services in a list are called, at addresses that were checked, and
no redirect is followed. A token of VAPID (RFC 8292) tells a service who we are; it is for one
origin, and serves all pushes to it until it is renewed.

The content is one record of `aes128gcm` (RFC 8188, RFC 8291). Each push has a key pair and a salt
of its own, as RFC 8291 (3.1) demands: with a pair that served twice, whoever comes by its private
key could read all that was sent with it. It costs about 70 µs, half of them the key agreement.
"""

from __future__ import annotations

import os
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    derive_private_key,
    generate_private_key,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.address_posting import GuardedClients, refusal
from pushlane.dispatcher.sinks.es256 import base64url, read_key, signed
from pushlane.dispatcher.sinks.http_client import (
    NO_JSON,
    OneByOne,
    Timeouts,
    clock_note,
    clock_off_s,
    lost,
    retry_after_s,
)
from pushlane.dispatcher.sinks.push_services import KNOWN_HOSTS, PushService, PushServices
from pushlane.dispatcher.transport.answer import Heard, Lost
from pushlane.dispatcher.transport.http2_pool import guarded_pools
from pushlane.model.targets import PlainTarget
from pushlane.settings.payload_limits import WEB_PUSH_BYTES
from pushlane.util.errors import RefusedUrl, UnknownHost
from pushlane.util.url_guard import NOT_PUBLIC, UrlGuard

VALID_S = 12 * 3600
RENEWED_AHEAD_S = 3600
MOST_ORIGINS = 1_000

_PRIVATE_BYTES, _PUBLIC_BYTES = 32, 65
_MAILTO = re.compile(r"mailto:[^@\s<>]+@[^@\s<>]+")


def read_vapid_key(text: str) -> EllipticCurvePrivateKey:
    """Return the private key in a text of PEM or base64url. Raises BadInput when it is none."""
    text = text.strip()
    if text.startswith("-----"):
        return read_key(text, "vapid_key")
    raw = _bytes(text)
    if len(raw) == _PUBLIC_BYTES:
        raise BadInput("vapid_key is the public key; give the private one, of 43 characters")
    try:
        if len(raw) != _PRIVATE_BYTES:
            raise ValueError
        return derive_private_key(int.from_bytes(raw, "big"), SECP256R1())
    except ValueError:
        raise BadInput(
            "vapid_key is not a private key; give a PEM file, or the 43 characters that tools for "
            "Web Push print as the private key"
        ) from None


def public_key(key: EllipticCurvePrivateKey) -> str:
    """Return the public key of a private one, in base64url, as browsers subscribe with it."""
    return base64url(_point(key))


def _point(key: EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def require_subject(subject: str) -> None:
    """Raise BadInput unless push services can reach the operator at this subject."""
    try:
        parts = urlsplit(subject)
        is_page = parts.scheme == "https" and bool(parts.hostname)
    except ValueError:
        is_page = False
    if not is_page and not _MAILTO.fullmatch(subject):
        raise BadInput(
            "subject is not one that push services take; give an address to reach you at, like "
            "mailto:push@example.com or https://example.com/contact"
        )


class VapidTokens:
    """The values of the header `Authorization` by origin; those used last are kept.

    `now` returns the Unix time in seconds.
    """

    def __init__(
        self, key: EllipticCurvePrivateKey, subject: str, now: Callable[[], float]
    ) -> None:
        self._key = key
        self._subject = subject
        self._now = now
        self._public = public_key(key)
        self._made: dict[str, tuple[float, str]] = {}

    def authorization(self, origin: str) -> str:
        """Return the header for requests to an origin, like `https://push.example.com`."""
        now_s = self._now()
        renew_at_s, value = self._made.pop(origin, (0.0, ""))
        if now_s >= renew_at_s:
            claims = {"aud": origin, "exp": int(now_s) + VALID_S, "sub": self._subject}
            value = f"vapid t={signed(self._key, {'typ': 'JWT'}, claims)}, k={self._public}"
            renew_at_s = now_s + VALID_S - RENEWED_AHEAD_S
        self._made[origin] = (renew_at_s, value)
        if len(self._made) > MOST_ORIGINS:
            del self._made[next(iter(self._made))]
        return value


AUTH_BYTES = 16
POINT_BYTES = 65
_SALT_BYTES = 16
_LAST_RECORD = b"\x02"
_HEAD = (4096).to_bytes(4, "big") + bytes([POINT_BYTES])
_CURVE, _ECDH, _SHA256 = SECP256R1(), ECDH(), SHA256()


class BrowserKeys(msgspec.Struct, frozen=True, gc=False):
    """The keys of a subscription: its point `p256dh`, as bytes and as a key, and its `auth`."""

    point: bytes
    auth: bytes
    public: EllipticCurvePublicKey

    @staticmethod
    def of(point: bytes, auth: bytes) -> BrowserKeys:
        """Return the keys. Raises ValueError for what is no uncompressed point of P-256."""
        if len(point) != POINT_BYTES:
            raise ValueError("not an uncompressed point")
        public = EllipticCurvePublicKey.from_encoded_point(_CURVE, point)
        return BrowserKeys(point, auth, public)

    def __repr__(self) -> str:
        return "BrowserKeys()"


def encrypt(plaintext: bytes, to: BrowserKeys) -> bytes:
    """Return the body of a request: 103 bytes more than the plaintext."""
    return seal(plaintext, to, generate_private_key(_CURVE), os.urandom(_SALT_BYTES))


def seal(plaintext: bytes, to: BrowserKeys, own: EllipticCurvePrivateKey, salt: bytes) -> bytes:
    """Return the body that this key pair and salt make, which no other push may have."""
    point = _point(own)
    secret = own.exchange(_ECDH, to.public)
    shared = _derived(32, to.auth, b"WebPush: info\0" + to.point + point, secret)
    key = _derived(16, salt, b"Content-Encoding: aes128gcm\0", shared)
    nonce = _derived(12, salt, b"Content-Encoding: nonce\0", shared)
    sealed = AESGCM(key).encrypt(nonce, plaintext + _LAST_RECORD, None)
    return b"".join((salt, _HEAD, point, sealed))


def _derived(length: int, salt: bytes, info: bytes, secret: bytes) -> bytes:
    return HKDF(_SHA256, length, salt, info).derive(secret)


_ENDPOINT = re.compile(r"(https?://([a-z0-9.-]+)(?::[0-9]{1,5})?)/[!-~]*")


class MalformedSubscription(Exception):
    """A subscription cannot be used. Its message is for people, and has nothing of it."""


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """The URL that pushes go to, its origin and host, and the browser's keys."""

    endpoint: str
    origin: str
    host: str
    keys: BrowserKeys

    def __repr__(self) -> str:
        return "Subscription()"


class _GivenKeys(msgspec.Struct, frozen=True, gc=False):
    p256dh: str = ""
    auth: str = ""


class _GivenSubscription(msgspec.Struct, gc=False):
    endpoint: str = ""
    keys: _GivenKeys = _GivenKeys()


_decoder = msgspec.json.Decoder(_GivenSubscription)


def read_subscription(text: str) -> Subscription:
    """Return the subscription in a text like `{"endpoint": …, "keys": {"p256dh": …, "auth": …}}`.

    Raises MalformedSubscription when it is none, or a part is missing or cannot be.
    """
    try:
        given = _decoder.decode(text)
    except (*NO_JSON, UnicodeEncodeError):
        raise MalformedSubscription(
            "its subscription is not the JSON of a browser's PushSubscription"
        ) from None  # the error may quote it
    found = _ENDPOINT.fullmatch(given.endpoint)
    if found is None:
        raise MalformedSubscription("its subscription has no https endpoint")
    auth = _bytes(given.keys.auth)
    if len(auth) != AUTH_BYTES:
        raise MalformedSubscription("its subscription's auth is not 16 bytes in base64url")
    try:
        keys = BrowserKeys.of(_bytes(given.keys.p256dh), auth)
    except ValueError:
        raise MalformedSubscription(
            "its subscription's p256dh is not a point of P-256 in base64url"
        ) from None
    return Subscription(given.endpoint, found[1].removesuffix(":443"), found[2], keys)


def _bytes(text: str) -> bytes:
    """Return what base64url stands for, nothing if it is none."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


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
        """Return the public key: a browser subscribed with it takes no pushes of another."""
        return PlainTarget("webpush", "", (public_key(read_vapid_key(self.vapid_key)),))


class WebPushSink(OneByOne):
    """Connections to each push service, a token for each, and what each has refused.

    `now` returns the Unix time in seconds, `clock_s` a time that never goes back. Raises BadInput
    when an option cannot be; says which.
    """

    name = "webpush"

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
        self._guard = UrlGuard(options.allow, options.hosts)
        self._clients = GuardedClients(
            guarded_pools(
                options.streams,
                slots,
                self._timeouts,
                _HEADERS,
                only_http2=options.only_http2,
                reads_ahead=True,
            )
        )
        self._ttl_s = options.ttl_s
        self._now = now
        self._encode = msgspec.json.Encoder().encode

    async def close(self) -> None:
        await self._clients.close()

    async def send(self, delivery: Delivery) -> Outcome:
        try:
            subscription = read_subscription(delivery.address)
        except MalformedSubscription as error:
            return Outcome.dead(str(error))
        service = self._services.of(subscription.host)
        if service is None:
            return _UNKNOWN_SERVICE
        given, push = delivery.payload, delivery.push
        content = BrowserMessage(push.title, push.body, push.data) if given is None else given
        plaintext = self._encode(content)
        if len(plaintext) > WEB_PUSH_BYTES:
            return _OVER_LIMIT
        if (rests := self._services.refusal(service)) is not None:
            return rests
        leave = self._services.admit(service)
        outcome = None
        try:
            outcome = await self._ask(service, subscription, delivery, plaintext)
        finally:
            if outcome is None:  # cancelled
                self._services.give_back(service, leave)
        return self._services.landed(service, leave, delivery, outcome)

    async def _ask(
        self, service: PushService, subscription: Subscription, delivery: Delivery, plaintext: bytes
    ) -> Outcome:
        """Return what the push service makes of a push, or what keeps it from being asked.

        A service in the list at an address that is not public is no fault of a push.
        """
        try:
            checked = await self._guard.check(subscription.endpoint)
        except (RefusedUrl, UnknownHost) as error:
            if isinstance(error, RefusedUrl) and error.reason == NOT_PUBLIC:
                return Outcome.refused(f"{service.name} {_NOT_PUBLIC}")
            return refusal(error)
        headers = self.headers_of(delivery, subscription.origin)
        content = encrypt(plaintext, subscription.keys)
        return self.outcome(await self._clients.send(checked, headers, content), service)

    def headers_of(self, delivery: Delivery, origin: str) -> dict[str, str]:
        """Return the headers of the request of a push to an origin."""
        push = delivery.push
        headers = {
            "Authorization": self._tokens.authorization(origin),
            "TTL": str(self._ttl(push.expires_at_ms)),
            "Urgency": _URGENCY[delivery.level],
        }
        if push.collapse:
            headers["Topic"] = topic(push.collapse)
        return headers

    def _ttl(self, expires_at_ms: int) -> int:
        if not expires_at_ms:
            return self._ttl_s
        return min(max(0, int(expires_at_ms / 1000 - self._now())), MAX_TTL_S)

    def outcome(self, heard: Heard, service: PushService) -> Outcome:
        """Return what becomes of a push of which this was heard of its service."""
        if isinstance(heard, Lost):
            return lost(heard, self._timeouts, "the push service")
        if 200 <= heard.status < 300:
            return DELIVERED
        now_s = self._now()
        return outcome_of(
            heard.status,
            heard.body,
            retry_after_s(heard.headers.get("retry-after"), now_s),
            clock_note(clock_off_s(heard.headers.get("date"), now_s)),
            is_key_good=service.has_delivered,
        )


def topic(collapse: str) -> str:
    """Return the Topic of a collapse key: letters and digits alone, as Firefox asks for."""
    return sha256(collapse.encode()).hexdigest()[:_TOPIC_CHARACTERS]


def outcome_of(
    status: int, answer: bytes, after_s: float | None, clock: str = "", *, is_key_good: bool = False
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
