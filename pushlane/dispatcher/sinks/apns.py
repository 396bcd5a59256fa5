"""Sends each push to the Apple Push Notification service (APNs), for one topic of one team.

It signs in with a provider token, signed anew every 40 minutes; certificates are not supported.
Apple takes a token that is up to an hour old, and no new one within 20 minutes of the last. Whether
it counts by connection or by team is not documented (threads 702056 and 674772 of its forums say
one each). A token says only who signed it and when, and our signatures are deterministic. So all
processes say that they signed at the last common boundary of time, and have the very same token:
however many there are, and however often they start, Apple sees one every 40 minutes. Clocks that
differ by less than a minute do no harm, as a boundary counts only once it is a minute old, when it
lies in nobody's future. Whoever first pushes shortly before a boundary has a second token minutes
later. Where Apple calls that one too many, the one before is used until it is an hour old.

docs/sinks-providers.md has a table of what each answer means. At
https://developer.apple.com/documentation/usernotifications are
`establishing-a-token-based-connection-to-apns`, `sending-notification-requests-to-apns` and
`handling-notification-responses-from-apns`.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID, uuid5

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.es256 import read_key, signed
from pushlane.dispatcher.sinks.http_client import (
    NO_JSON,
    Request,
    SignedIn,
    Timeouts,
    clock_note,
    clock_off_s,
    lost,
    retry_after_s,
)
from pushlane.dispatcher.transport.answer import Answer, Heard, Lost
from pushlane.dispatcher.transport.choice import OURS, Http2, http2_transport, why_not_http2
from pushlane.model.targets import PlainTarget, url_target
from pushlane.settings.payload_limits import APNS_BYTES, APNS_VOIP_BYTES
from pushlane.util.texts import require_http_url

_EVERY_S = 40 * 60
_SETTLED_S = 60
_LEAST_S = 20 * 60
_OLDEST_S = 60 * 60 - _SETTLED_S


@dataclass(eq=False, repr=False)
class ProviderToken:
    """The token of one key, for now by the clock `now`, in seconds of Unix time."""

    key: EllipticCurvePrivateKey
    key_id: str
    team_id: str
    now: Callable[[], float]

    def __post_init__(self) -> None:
        self._from_s = 0  # the boundaries are so many seconds later than those of all processes
        self._issued_at_s = -1
        self._kept_s = -_EVERY_S  # the token before is in use, and was issued then
        self._text = ""

    def current(self) -> str:
        now_s = int(self.now())
        settled_s = now_s - _SETTLED_S - self._from_s
        issued_at_s = settled_s // _EVERY_S * _EVERY_S + self._from_s
        if issued_at_s == self._kept_s + _EVERY_S and now_s < self._kept_s + _OLDEST_S:
            issued_at_s = self._kept_s
        if issued_at_s != self._issued_at_s:
            claims = {"iss": self.team_id, "iat": issued_at_s}
            self._text = signed(self.key, {"kid": self.key_id}, claims)
            self._issued_at_s = issued_at_s
        return self._text

    def renewed(self, expired: str) -> str | None:
        """Return a token in place of one that APNs finds expired, as it does if our clock is late.

        From then on this process has boundaries of its own. None if the token is younger than 20
        minutes by our clock: another would be expired too, and one too many.
        """
        current = self.current()
        if current != expired:
            return current
        now_s = int(self.now())
        if now_s - self._issued_at_s < _LEAST_S:
            return None
        self._from_s = (now_s - _SETTLED_S) % _EVERY_S
        return self.current()

    def before(self, one_too_many: str) -> str | None:
        """Return the token before one that comes too soon for APNs, to be used while it is valid.

        None if it is too old for that.
        """
        current = self.current()
        if current != one_too_many:
            return current
        before_s = self._issued_at_s - _EVERY_S
        if int(self.now()) >= before_s + _OLDEST_S:
            return None
        self._kept_s = before_s
        return self.current()


EXPIRED_TOKEN = "ExpiredProviderToken"  # noqa: S105 - a code of Apple's
TOO_MANY_TOKENS = "TooManyProviderTokenUpdates"

_CHECK_TOPIC = "check the topic, and which apps the key may send to"
_CHECK_ENVIRONMENT = "check the environment, and which ones the key is for"
_HELD = {
    EXPIRED_TOKEN: "check our clock",
    "InvalidProviderToken": "check key, key_id, team_id and our clock",
    "MissingProviderToken": "check that what stands between lets the header authorization through",
    "UnrelatedKeyIdInToken": "check key and key_id",
    "BadEnvironmentKeyIdInToken": _CHECK_ENVIRONMENT,
    "BadEnvironmentKeyInToken": _CHECK_ENVIRONMENT,
    "BadCertificate": "check key, key_id and team_id",
    "BadCertificateEnvironment": _CHECK_ENVIRONMENT,
    "Forbidden": "check what the key may do",
    "BadTopic": _CHECK_TOPIC,
    "MissingTopic": _CHECK_TOPIC,
    "TopicDisallowed": _CHECK_TOPIC,
}
_DOUBTFUL = frozenset({"BadDeviceToken", "DeviceTokenNotForTopic"})
_GONE = frozenset({*_DOUBTFUL, "Unregistered", "ExpiredToken"})
_OF_THE_PUSH = frozenset({"PayloadTooLarge", "PayloadEmpty", "BadCollapseId", "BadExpirationDate"})
_OF_THE_HEADERS = frozenset({"BadMessageId", "BadPriority", "DuplicateHeaders", "InvalidPushType"})
_OF_THE_REQUEST = _OF_THE_HEADERS | {"BadPath", "MethodNotAllowed", "MissingDeviceToken"}
_BUSY = frozenset({"ServiceUnavailable", "Shutdown", TOO_MANY_TOKENS})
_OTHERS = frozenset({"IdleTimeout", "InternalServerError", "TooManyRequests"})
_KNOWN = _HELD.keys() | _GONE | _OF_THE_PUSH | _OF_THE_REQUEST | _BUSY | _OTHERS
_BY_STATUS = {
    401: "Forbidden",
    403: "Forbidden",
    410: "Unregistered",
    413: "PayloadTooLarge",
    429: "ServiceUnavailable",
    503: "ServiceUnavailable",
}

_AGAIN_AFTER_ERROR_S = 900.0  # Apple: 5xx after 15 minutes
_MOST_MS = 2**53


class ApnsAnswer(msgspec.Struct, frozen=True):
    """An answer other than 200. `code` is empty where it has none of Apple's codes.

    `after_s` is from a Retry-After, `date` the header of that name.
    """

    status: int
    code: str = ""
    gone_at_ms: int = 0
    after_s: float | None = None
    date: str | None = None

    @property
    def is_doubtful(self) -> bool:
        """True for an answer about an address that a wrong environment or topic gets for all."""
        return self.code in _DOUBTFUL


class _Body(msgspec.Struct):
    reason: Any = None
    timestamp: Any = None


def read_body(body: bytes) -> tuple[str, int]:
    """Return the code and the time in ms that an answer has, an empty one and 0 where it has not.

    A code that is not Apple's is not kept: anything could be in it.
    """
    try:
        found = msgspec.json.decode(body, type=_Body)
    except NO_JSON:
        return "", 0
    code, at_ms = found.reason, found.timestamp
    is_time = isinstance(at_ms, int) and not isinstance(at_ms, bool) and 0 < at_ms < _MOST_MS
    return code if isinstance(code, str) and code in _KNOWN else "", at_ms if is_time else 0


def outcome_of(answer: ApnsAnswer, now_s: float) -> Outcome:
    """Return what becomes of a push that got this answer at `now_s`, where the address is believed
    to be as bad as it is called.
    """
    code = answer.code or _BY_STATUS.get(answer.status, "")
    reason = answer.code or f"HTTP {answer.status}"
    if hint := _HELD.get(code):
        return Outcome.refused(f"{reason}: {clock_note(clock_off_s(answer.date, now_s)) or hint}")
    if code in _GONE:
        return Outcome.gone(reason, answer.gone_at_ms)
    if code in _OF_THE_PUSH:
        return Outcome.dead(reason)
    if code == TOO_MANY_TOKENS:
        reason += ": does another program sign for this team, or is our clock off?"
    if code in _BUSY:
        return Outcome.throttled(reason, answer.after_s)
    if code == "TooManyRequests":
        return Outcome.throttled(reason, answer.after_s, Scope.RECIPIENT)
    if code == "IdleTimeout":
        return Outcome.retry(reason, arrival=Arrival.REFUSED)
    if answer.status >= 500:
        return Outcome.retry(reason, _AGAIN_AFTER_ERROR_S)
    return Outcome.dead(reason, scope=None)


class DoubtedAddresses:
    """The addresses in a row that APNs called bad, of which none was delivered to in between.

    A wrong environment or topic gets the same answer for every address as a token that is bad. So
    until something was delivered no address is dead, and its push loses an attempt: a bad one alone
    still comes to its end. Of too many in a row the sink is at fault, and is held.
    """

    MOST_UNPROVEN = 10
    MOST_PROVEN = 100

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._row: set[str] = set()
        self._has_delivered = False

    def delivered(self) -> None:
        """Note that environment and topic are right."""
        self._has_delivered = True
        if self._row:
            self._row.clear()

    def outcome(self, address: str, called_bad: Outcome) -> Outcome:
        """Return what becomes of a push to an address that is called bad."""
        most = self.MOST_PROVEN if self._has_delivered else self.MOST_UNPROVEN
        if len(self._row) < most:
            self._row.add(address)
        if len(self._row) >= most:
            return Outcome.refused(
                f"{called_bad.reason} for {most} addresses in a row: check the topic, and whether "
                f"they belong to the environment {self._environment}"
            )
        if self._has_delivered:
            return called_bad
        return Outcome.retry(called_bad.reason, arrival=Arrival.REFUSED)


_HOSTS = {
    "production": "https://api.push.apple.com",
    "sandbox": "https://api.sandbox.push.apple.com",
}
_TOPIC_ENDINGS = {
    "voip": ".voip",
    "complication": ".complication",
    "fileprovider": ".pushkit.fileprovider",
    "location": ".location-query",
    "liveactivity": ".push-type.liveactivity",
    "pushtotalk": ".voip-ptt",
    "widgets": ".push-type.widgets",
    "controls": ".push-type.controls",
}
_MOST_COLLAPSE_BYTES = 64
_PRIORITIES = {Level.HIGH: "10", Level.MEDIUM: "5", Level.LOW: "5"}
_BACKGROUND_PRIORITIES = {Level.HIGH: "5", Level.MEDIUM: "5", Level.LOW: "1"}  # 10 is an error
_ID = re.compile(r"[A-Za-z0-9]{10}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"[0-9A-Fa-f]{2,1024}")  # Apple: assume no length
_PLAIN = re.compile(r"[!-~]+")
_PUSH_IDS = UUID("5b0c2f5e-7f0e-4c0b-9a57-3d1c1f0a7f10")


class ApnsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of APNs: `key` is the text of the .p8 file that Apple gave for `key_id`.

    `topic` is the app's bundle id. `streams` is the most requests in flight on one connection; APNs
    may allow fewer. Apple names no number; 100 is the least that RFC 9113 (6.5.2) recommends to
    allow, and more connections spread over more of Apple's servers. `http2` names what speaks
    HTTP/2 in place of pyreqwest.
    """

    key: str
    key_id: str
    team_id: str
    topic: str
    environment: Literal["production", "sandbox"] = "production"
    endpoint: str = ""
    push_type: Literal[
        "alert",
        "background",
        "complication",
        "controls",
        "fileprovider",
        "liveactivity",
        "location",
        "pushtotalk",
        "voip",
        "widgets",
    ] = "alert"
    streams: Annotated[int, Meta(ge=1, le=1000)] = 100
    http2: Http2 = ""

    def __repr__(self) -> str:
        return f"ApnsOptions({self.topic})"

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> ApnsSink:
        """Return the sink. Raises BadInput when an option cannot be."""
        return ApnsSink(self, slots, Timeouts(timeout_s, is_final=not retry_timeouts))

    def target(self) -> PlainTarget:
        """Return the topic, at Apple's environment or the endpoint; a topic is of one team."""
        return url_target("apns", self.base_url(), _topic(self))

    def posted_by(self) -> str:
        """Say which client posts, and why where it is not our own."""
        return why_not_http2(self.base_url(), self.http2) or OURS

    def base_url(self) -> str:
        """Return the URL that requests begin with."""
        return (self.endpoint or _HOSTS[self.environment]).rstrip("/")


class ApnsSink(SignedIn):
    """One request a push, over as many connections as those in flight take.

    Raises BadInput when the key cannot be read, or an id, the topic or the endpoint cannot be.
    """

    name = "apns"
    asks_again = frozenset({403, 429})

    def __init__(
        self,
        options: ApnsOptions,
        slots: int,
        timeouts: Timeouts,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        for id_name in ("key_id", "team_id"):
            if not _ID.fullmatch(getattr(options, id_name)):
                told = "is not 10 letters and digits; it is shown in Apple's developer account"
                raise BadInput(f"{id_name} {told}")
        if not _TOPIC.fullmatch(options.topic):
            raise BadInput("topic is not a bundle id like com.example.shop")
        base = options.base_url()
        require_http_url(base, "endpoint is not a URL like https://api.push.apple.com")
        headers = {"apns-topic": _topic(options), "apns-push-type": options.push_type}
        transport, self._path = http2_transport(
            f"{base}/3/device/", options.streams, slots, timeouts, headers, options.http2
        )
        super().__init__(transport)
        self._push_type = options.push_type
        self._priorities = (
            _BACKGROUND_PRIORITIES if options.push_type == "background" else _PRIORITIES
        )
        self._most_bytes = APNS_VOIP_BYTES if options.push_type == "voip" else APNS_BYTES
        self._timeouts = timeouts
        self._now = now
        self._token = ProviderToken(
            read_key(options.key, "key"), options.key_id, options.team_id, now
        )
        self._doubted = DoubtedAddresses(options.environment)
        self._encode = msgspec.json.Encoder().encode

    async def send(self, delivery: Delivery) -> Outcome:
        request = self.request_of(delivery, self._token.current())
        if isinstance(request, Outcome):
            return request
        return await self.settled(request, await self._transport.send(*request))

    def request_now(self, delivery: Delivery) -> Request | None:
        request = self.request_of(delivery, self._token.current())
        return None if isinstance(request, Outcome) else request

    def outcome_of(self, request: Request, heard: Heard) -> Outcome:
        return self.outcome(heard, request[0].removeprefix(self._path))

    async def settled(self, request: Request, heard: Heard) -> Outcome:
        path, headers, content = request
        token = headers["authorization"].removeprefix("bearer ")
        if (other := self.other_token(heard, token)) is not None:
            headers = {**headers, "authorization": f"bearer {other}"}
            heard = await self._transport.send(path, headers, content)
        return self.outcome_of(request, heard)

    def request_of(self, delivery: Delivery, token: str) -> Request | Outcome:
        """Return the request of a push, or the outcome of one that cannot have one."""
        address = delivery.address
        if not _ADDRESS.fullmatch(address):
            return Outcome.gone("not an APNs token: it is no hexadecimal number")
        content = self._content(delivery)
        if isinstance(content, Outcome):
            return content
        headers = {
            "authorization": f"bearer {token}",
            **_headers(delivery.push, self._priorities[delivery.level]),
        }
        return self._path + address, headers, content

    def other_token(self, heard: Heard, token: str) -> str | None:
        """Return the token to send a push with again at once, None if that is no help.

        Ours is expired, or new too soon: the push is not at fault.
        """
        if isinstance(heard, Lost) or heard.status == 200:
            return None
        code, _ = read_body(heard.body)
        if code == EXPIRED_TOKEN:
            return self._token.renewed(token)
        return self._token.before(token) if code == TOO_MANY_TOKENS else None

    def outcome(self, heard: Heard, address: str) -> Outcome:
        """Return what becomes of a push to an address of which this was heard."""
        if isinstance(heard, Lost):
            return lost(heard, self._timeouts, "APNs")
        if heard.status == 200:
            self._doubted.delivered()
            return DELIVERED
        answer = self._read(heard)
        outcome = outcome_of(answer, self._now())
        return self._doubted.outcome(address, outcome) if answer.is_doubtful else outcome

    def _read(self, heard: Answer) -> ApnsAnswer:
        code, gone_at_ms = read_body(heard.body)
        after_s = retry_after_s(heard.headers.get("retry-after"), self._now())
        return ApnsAnswer(heard.status, code, gone_at_ms, after_s, heard.headers.get("date"))

    def _content(self, delivery: Delivery) -> bytes | Outcome:
        """Return the body of the request, or the outcome of a push that cannot have one."""
        payload = delivery.payload
        if payload is None:
            data = delivery.push.data or {}
            if "aps" in data:
                return Outcome.dead('data has the key "aps", which is Apple\'s: give a payload')
            alert = {"title": delivery.push.title, "body": delivery.push.body}
            shown = {"alert": {name: text for name, text in alert.items() if text}}
            is_background = self._push_type == "background"
            payload = {"aps": {"content-available": 1} if is_background else shown, **data}
        elif not isinstance(payload, dict):
            return Outcome.dead("the payload is not an object")
        content = self._encode(payload)
        if len(content) > self._most_bytes:
            return Outcome.dead(f"the payload is over {self._most_bytes:,} bytes")
        return content


def _topic(options: ApnsOptions) -> str:
    """Return the topic with the ending that its push type has to have."""
    ending = _TOPIC_ENDINGS.get(options.push_type, "")
    return options.topic if options.topic.endswith(ending) else options.topic + ending


def _headers(push: Push, priority: str) -> dict[str, str]:
    headers = {"apns-id": str(uuid5(_PUSH_IDS, push.push_id)), "apns-priority": priority}
    if push.expires_at_ms:
        headers["apns-expiration"] = str(max(1, push.expires_at_ms // 1000))  # 0 is "store never"
    if push.collapse:
        headers["apns-collapse-id"] = _collapse_id(push.collapse)
    return headers


def _collapse_id(key: str) -> str:
    """Return the key, or its hash in 64 characters if a header could not hold it."""
    if len(key) <= _MOST_COLLAPSE_BYTES and _PLAIN.fullmatch(key):
        return key
    return hashlib.sha256(key.encode()).hexdigest()
