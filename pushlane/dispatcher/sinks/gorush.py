"""Hands pushes to a gorush server, which sends them on to APNs, FCM or HMS.

With its setting `core.sync` gorush names the pushes that failed; without it, delivered means that
gorush has taken the push. It honours no idempotency key. Errors it passes on as text: the reason of
APNs, or the message of FCM without its code. Nothing of a text that is not listed here is kept, as
it may hold a token.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.http_batch import MAX_ANSWER_BYTES, UNREADABLE, BatchPoster
from pushlane.dispatcher.sinks.http_client import NO_JSON
from pushlane.dispatcher.sinks.posting import Poster, PostOptions
from pushlane.model.targets import PlainTarget, url_target

LIMIT_OF_GORUSH = 100
"""The setting `core.max_notification` of a gorush that was not told otherwise."""

NOT_ENABLED = Outcome.refused("gorush has this platform not enabled; enable it in its settings")
OVER_LIMIT = Outcome.refused(
    "gorush takes fewer pushes in a request; set batch_size to its core.max_notification"
)
UNKNOWN_ERROR = Outcome.retry("gorush failed to send it", arrival=Arrival.UNKNOWN)

GONE = ("Unregistered", "ExpiredToken", "NotRegistered")
ELSEWHERE = {
    "BadDeviceToken": "BadDeviceToken",
    "DeviceTokenNotForTopic": "DeviceTokenNotForTopic",
    "InvalidRegistration": "InvalidRegistration",
    "Requested entity was not found.": "FCM knows no such token, or no such project",
    "SenderId mismatch": "the token belongs to another sender",
    "The registration token is not a valid FCM registration token": "it is no token of FCM",
}
"""These are about the token, or about settings under which every token looks so."""
_ABOUT_HEADERS = ("BadCollapseId", "BadExpirationDate", "BadMessageId", "BadPriority")
_ABOUT_BODY = ("MissingDeviceToken", "PayloadEmpty", "PayloadTooLarge")
ABOUT_THE_PUSH = (*_ABOUT_HEADERS, "DuplicateHeaders", "InvalidPushType", *_ABOUT_BODY)
_CERTIFICATES = ("BadCertificate", "BadCertificateEnvironment", "BadEnvironmentKeyInToken")
_TOKENS = ("ExpiredProviderToken", "InvalidProviderToken", "MissingProviderToken")
_TOPICS = ("BadTopic", "MissingTopic", "TopicDisallowed")
CREDENTIALS = (*_CERTIFICATES, *_TOKENS, *_TOPICS, "Forbidden")
BUSY = ("TooManyProviderTokenUpdates", "ServiceUnavailable", "Shutdown", "max capacity reached")
FAILED = ("IdleTimeout", "InternalServerError")
NO_CONNECTION = re.compile(
    r"failed to establish a connection: "  # firebase-admin-go
    r'|Post "[^"]*": (?:proxyconnect tcp: )?dial tcp\b'  # net/http, to APNs
)


_KNOWN = {
    **{code: Outcome.gone(f"gorush: {code}") for code in GONE},
    **{text: Outcome.dead(f"gorush: {code}", scope=None) for text, code in ELSEWHERE.items()},
    **{code: Outcome.dead(f"gorush: {code}") for code in ABOUT_THE_PUSH},
    **{code: Outcome.refused(f"gorush: {code}") for code in CREDENTIALS},
    **{code: Outcome.throttled(f"gorush: {code}") for code in BUSY},
    **{code: Outcome.retry(f"gorush: {code}") for code in FAILED},
    "TooManyRequests": Outcome.throttled("gorush: TooManyRequests", scope=Scope.RECIPIENT),
}


def outcome_of(error: str) -> Outcome:
    """Return what becomes of a push that gorush failed to send for this error."""
    if NO_CONNECTION.match(error):
        return Outcome.throttled("gorush: no connection to the provider")
    return _KNOWN.get(error, UNKNOWN_ERROR)


_WITHOUT_PATH = re.compile(r"\A(https?://[^/?#]+)/?\Z")
_PLATFORMS = {"ios": 1, "android": 2, "huawei": 3}
_MAX_COLLAPSE_ID_BYTES = 64  # of APNs
_MAX_ANDROID_TTL_S = 28 * 86_400
_MAX_HUAWEI_TTL_S = 15 * 86_400
_NEVER = frozenset({"notif_id", "platform", "tokens", "to", "condition"})
NO_TABLE = Outcome.dead("its payload for gorush is not a table")


class GorushOptions(PostOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of gorush: those of what posts, and the platform that its pushes are for.

    `topic` is the bundle id of an iOS app. `batch_size` is at most `core.max_notification`.
    """

    platform: Literal["ios", "android", "huawei"]
    topic: str = ""
    batch_size: Annotated[int, Meta(ge=1, le=1000)] = LIMIT_OF_GORUSH

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> GorushSink:
        """Return the sink. Raises BadInput when an option cannot be."""
        if self.topic and self.platform != "ios":
            raise BadInput(
                f"topic is for the platform ios; with {self.platform} gorush would send each push "
                "to all that have subscribed to it: leave it out"
            )
        at = msgspec.structs.replace(self, url=self._full_url())
        timeouts = self.timeouts(timeout_s, retry_timeouts)
        poster = Poster(at, timeouts, slots, "gorush", most_body=MAX_ANSWER_BYTES)
        return GorushSink(at, poster)

    def target(self) -> PlainTarget:
        """Return gorush's URL with the platform and the app that it sends on to."""
        return url_target("gorush", self._full_url(), self.platform, self.topic)

    def _full_url(self) -> str:
        return _WITHOUT_PATH.sub(r"\1/api/push", self.url)


class _FailedPush(msgspec.Struct, gc=False):
    """One failed push in an answer of gorush. It has the token too, which is not read."""

    notif_id: str = ""
    error: str = ""


class _Logs(msgspec.Struct, gc=False):
    counts: int
    logs: list[_FailedPush] | None = None


_read = msgspec.json.Decoder(_Logs).decode


class GorushSink:
    """Posts pushes of one task together: what spoils a request spoils no other task's."""

    name = "gorush"
    mixes_tasks = False
    hosts_code = False

    def __init__(self, options: GorushOptions, poster: Poster) -> None:
        self.batch_size = options.batch_size
        self._platform = options.platform
        self._never = _NEVER if options.platform == "ios" else {*_NEVER, "topic"}
        self._topic = {"topic": options.topic} if options.topic else {}
        self._encode = msgspec.json.Encoder().encode
        self._batches = BatchPoster(poster, "notifications", _outcomes, _refusal)

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        messages = [self._notification(each) for each in batch]
        sent = [(each, one) for each, one in zip(batch, messages, strict=True) if one is not None]
        if not sent:
            return [NO_TABLE] * len(batch)
        outcomes = iter(
            await self._batches.deliver(
                [each for each, _ in sent], [self._encode(one) for _, one in sent]
            )
        )
        return [NO_TABLE if one is None else next(outcomes) for one in messages]

    async def close(self) -> None:
        await self._batches.close()

    def _notification(self, delivery: Delivery) -> dict[str, Any] | None:
        """Return what gorush gets of a push; to whom it goes is never its payload's to say."""
        given = delivery.payload
        if given is None:
            content = {**self._topic, **self._content(delivery)}
        elif isinstance(given, dict):
            # Go takes the name of a field in any case.
            kept = {name: given[name] for name in given if name.lower() not in self._never}
            content = {**self._topic, **kept}
        else:
            return None
        return {
            **content,
            "notif_id": delivery.push.push_id,
            "platform": _PLATFORMS[self._platform],
            "tokens": [delivery.address],
        }

    def _content(self, delivery: Delivery) -> dict[str, Any]:
        push = delivery.push
        common = {
            "title": push.title,
            "message": push.body,
            "priority": "high" if delivery.level is Level.HIGH else "normal",
        }
        return {**common, **_OWN[self._platform](push, time.time())}


def _for_ios(push: Push, now_s: float) -> dict[str, Any]:
    own: dict[str, Any] = {"data": push.data} if push.data else {}
    if push.expires_at_ms:
        own["expiration"] = push.expires_at_ms // 1000
    if collapse := push.collapse.encode():
        is_long = len(collapse) > _MAX_COLLAPSE_ID_BYTES
        own["collapse_id"] = hashlib.sha256(collapse).hexdigest() if is_long else push.collapse
    return own


def _for_android(push: Push, now_s: float) -> dict[str, Any]:
    own: dict[str, Any] = {"data": push.data} if push.data else {}
    more = {"collapse_key": push.collapse} if push.collapse else {}
    if push.expires_at_ms:
        more["ttl"] = _left(push, now_s, _MAX_ANDROID_TTL_S)
    return {**own, "android": more} if more else own


def _for_huawei(push: Push, now_s: float) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if push.data:
        own["huawei_data"] = msgspec.json.encode(push.data).decode()
    if push.expires_at_ms:
        own["huawei_ttl"] = _left(push, now_s, _MAX_HUAWEI_TTL_S)
    return own


_OWN = {"ios": _for_ios, "android": _for_android, "huawei": _for_huawei}


def _left(push: Push, now_s: float, most_s: int) -> str:
    """Return how long a push may wait for its device, within what the provider takes."""
    return f"{min(max(int(push.expires_at_ms / 1000 - now_s), 0), most_s)}s"


def _outcomes(body: bytes, part: Sequence[Delivery]) -> list[Outcome]:
    """Read who failed. What gorush does not name it has sent, or taken if it does not wait."""
    try:
        answer = _read(body)
    except NO_JSON:
        return [UNREADABLE] * len(part)
    if not answer.counts:
        return [NOT_ENABLED] * len(part)
    failed = {one.notif_id: one.error for one in answer.logs or ()}  # the last of its attempts
    errors = (failed.get(each.push.push_id) for each in part)
    return [DELIVERED if error is None else outcome_of(error) for error in errors]


def _refusal(status: int, body: bytes) -> Outcome | None:
    return OVER_LIMIT if status == 400 and b'"Number of notifications(' in body else None
