"""Sends each push to the Apple Push Notification service (APNs), for one topic of one team.

It signs in with a provider token (`apns_token`); certificates are not supported. The meaning of an
answer is in `apns_answers`.
https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID, uuid5

import msgspec
from msgspec import Meta
from pyreqwest.exceptions import PyreqwestError

from pushlane.core.errors import BadInput
from pushlane.core.push import DELIVERED, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.apns_answers import (
    EXPIRED_TOKEN,
    TOO_MANY_TOKENS,
    ApnsAnswer,
    DoubtedAddresses,
    outcome_of,
    read_body,
)
from pushlane.dispatcher.sinks.apns_token import ProviderToken
from pushlane.dispatcher.sinks.es256 import read_key
from pushlane.dispatcher.sinks.http2_pool import Http2Pool
from pushlane.dispatcher.sinks.http_client import (
    MAX_ANSWER_BYTES,
    Timeouts,
    header_of,
    http2_builder,
    lost,
    read_answer,
    retry_after_s,
)
from pushlane.lanes.ports import Delivery
from pushlane.lanes.urls import require_http_url
from pushlane.model.targets import PlainTarget, url_target
from pushlane.settings.payload_limits import APNS_BYTES, APNS_VOIP_BYTES

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
_PRIORITIES = {Level.HIGH: "10", Level.MEDIUM: "5", Level.LOW: "5"}
_BACKGROUND_PRIORITIES = {Level.HIGH: "5", Level.MEDIUM: "5", Level.LOW: "1"}  # 10 is an error
_MOST_COLLAPSE_BYTES = 64
_ID = re.compile(r"[A-Za-z0-9]{10}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"[0-9A-Fa-f]{2,1024}")  # Apple: assume no length
_PLAIN = re.compile(r"[!-~]+")
_PUSH_IDS = UUID("5b0c2f5e-7f0e-4c0b-9a57-3d1c1f0a7f10")


class ApnsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of APNs: `key` is the text of the .p8 file that Apple gave for `key_id`.

    `topic` is the app's bundle id. `streams` is the most requests in flight on one connection; APNs
    may allow fewer. Apple names no number; 100 is the least that RFC 9113 (6.5.2) recommends to
    allow, and more connections spread over more of Apple's servers.
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

    def __repr__(self) -> str:
        return f"ApnsOptions({self.topic})"

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> ApnsSink:
        """Return the sink. Raises BadInput when an option cannot be."""
        return ApnsSink(self, slots, Timeouts(timeout_s, is_final=not retry_timeouts))

    def target(self) -> PlainTarget:
        """Return the topic, at Apple's environment or the endpoint; a topic is of one team."""
        return url_target("apns", self.base_url(), _topic(self))

    def base_url(self) -> str:
        """Return the URL that requests begin with."""
        return (self.endpoint or _HOSTS[self.environment]).rstrip("/")


class ApnsSink:
    """One request a push, over as many connections as those in flight take.

    Raises:
        BadInput: the key cannot be read, or an id, the topic or the endpoint cannot be.
    """

    name = "apns"
    batch_size = 1
    mixes_tasks = False
    hosts_code = False

    def __init__(
        self,
        options: ApnsOptions,
        slots: int,
        timeouts: Timeouts,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        _require_ids(options)
        base = options.base_url()
        require_http_url(base, "endpoint is not a URL like https://api.push.apple.com")
        self._url = f"{base}/3/device/"
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
        headers = {"apns-topic": _topic(options), "apns-push-type": options.push_type}
        self._pool = Http2Pool(
            lambda: http2_builder(base, timeouts, headers).build(), options.streams, slots
        )
        self._encode = msgspec.json.Encoder().encode

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self._send(delivery) for delivery in batch]

    async def close(self) -> None:
        await self._pool.close()

    async def _send(self, delivery: Delivery) -> Outcome:
        address = delivery.address
        if not _ADDRESS.fullmatch(address):
            return Outcome.gone("not an APNs token: it is no hexadecimal number")
        content = self._content(delivery)
        if isinstance(content, Outcome):
            return content
        headers = _headers(delivery.push, self._priorities[delivery.level])
        try:
            answer = await self._ask(address, headers, content)
        except PyreqwestError as error:
            return lost(error, self._timeouts, "APNs")
        if answer is None:
            self._doubted.delivered()
            return DELIVERED
        outcome = outcome_of(answer, self._now())
        return self._doubted.outcome(address, outcome) if answer.is_doubtful else outcome

    async def _ask(
        self, address: str, headers: dict[str, str], content: bytes
    ) -> ApnsAnswer | None:
        """Return what APNs says to a push, None if it took it.

        If our token is expired, or new too soon, it is sent again at once with another: the push is
        not at fault.
        """
        token, other = self._token.current(), None
        answer = await self._ask_once(address, headers, content, token)
        if answer is not None and answer.code == EXPIRED_TOKEN:
            other = self._token.renewed(token)
        elif answer is not None and answer.code == TOO_MANY_TOKENS:
            other = self._token.before(token)
        return answer if other is None else await self._ask_once(address, headers, content, other)

    async def _ask_once(
        self, address: str, headers: dict[str, str], content: bytes, token: str
    ) -> ApnsAnswer | None:
        async with self._pool.client() as client:
            request = (
                client.post(self._url + address)
                .headers({"authorization": f"bearer {token}", **headers})
                .body_bytes(content)
                .streamed_read_buffer_limit(MAX_ANSWER_BYTES)
            )
            async with request.build_streamed() as response:
                if response.status == 200:
                    return None
                code, gone_at_ms = read_body(await read_answer(response))
                after_s = retry_after_s(header_of(response, "Retry-After"), self._now())
                date = header_of(response, "Date")
                return ApnsAnswer(response.status, code, gone_at_ms, after_s, date)

    def _content(self, delivery: Delivery) -> bytes | Outcome:
        """Return the body of the request, or the outcome of a push that cannot have one."""
        payload = delivery.payload
        if payload is None:
            data = delivery.push.data or {}
            if "aps" in data:
                return Outcome.dead('data has the key "aps", which is Apple\'s: give a payload')
            payload = {"aps": _aps(delivery.push, self._push_type), **data}
        elif not isinstance(payload, dict):
            return Outcome.dead("the payload is not an object")
        content = self._encode(payload)
        if len(content) > self._most_bytes:
            return Outcome.dead(f"the payload is over {self._most_bytes:,} bytes")
        return content


def _require_ids(options: ApnsOptions) -> None:
    for name, value in (("key_id", options.key_id), ("team_id", options.team_id)):
        if not _ID.fullmatch(value):
            raise BadInput(
                f"{name} is not 10 letters and digits; it is shown in Apple's developer account"
            )
    if not _TOPIC.fullmatch(options.topic):
        raise BadInput("topic is not a bundle id like com.example.shop")


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


def _aps(push: Push, push_type: str) -> dict[str, Any]:
    if push_type == "background":
        return {"content-available": 1}
    alert = {"title": push.title, "body": push.body}
    return {"alert": {name: text for name, text in alert.items() if text}}
