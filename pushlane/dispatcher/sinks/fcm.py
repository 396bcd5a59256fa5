"""Sends each push to Firebase Cloud Messaging over its HTTP v1 API (projects.messages.send).

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages has the message, and
`…/v1/ErrorCode` the codes; docs/sinks-providers.md has a table of what each answer means. What FCM
says in words is never shown; only where a code means two things do words tell which. FCM knows no
idempotency key: a push that is tried again may arrive twice.
"""

from __future__ import annotations

import re
import time
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from google.auth.credentials import Credentials
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.google import AccessToken, read_credentials
from pushlane.dispatcher.sinks.http_client import (
    NO_JSON,
    Request,
    SignedIn,
    Timeouts,
    lost,
    retry_after_s,
)
from pushlane.dispatcher.transport.answer import Heard, Lost
from pushlane.dispatcher.transport.choice import OURS, Http2, http2_transport, why_not_http2
from pushlane.model.targets import PlainTarget, url_target
from pushlane.util.texts import require_http_url

LONGEST_TTL_S = 2_419_200
"""Four weeks, the longest that FCM keeps a message."""

_LONGEST_COLLAPSE_ID = 64
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,32}")  # RFC 8030, 5.4
_INSTALLATION = re.compile(r"[cdef][\w-]{21}", re.ASCII)  # as Firebase's own SDKs make them


class Target(StrEnum):
    """The kind of address that a sink's pushes have."""

    DEVICE = "device"
    """A Firebase installation id where it looks like one, else a registration token."""

    TOKEN = "token"  # noqa: S105
    FID = "fid"
    TOPIC = "topic"
    CONDITION = "condition"

    @property
    def is_device(self) -> bool:
        return self not in (Target.TOPIC, Target.CONDITION)


class _FcmNotification(msgspec.Struct, gc=False, omit_defaults=True):
    title: str = ""
    body: str = ""


class _FcmAndroid(msgspec.Struct, gc=False, omit_defaults=True):
    priority: str
    ttl: str = ""
    collapse_key: str = ""


class _FcmMessage(msgspec.Struct, omit_defaults=True):
    android: _FcmAndroid
    notification: _FcmNotification | None = None
    data: dict[str, str] | None = None
    apns: dict[str, dict[str, str]] | None = None
    webpush: dict[str, dict[str, str]] | None = None
    token: str = ""
    fid: str = ""
    topic: str = ""
    condition: str = ""


_HIGH, _NORMAL = _FcmAndroid("HIGH"), _FcmAndroid("NORMAL")


class MessageEncoder:
    """Encodes the request of each push; `dry_run` has FCM check it and deliver nothing."""

    def __init__(self, target: Target, dry_run: bool) -> None:
        self._target = target
        self._end = b',"validate_only":true}' if dry_run else b"}"
        self._encode = msgspec.json.Encoder().encode

    def body(self, delivery: Delivery, now_s: float) -> bytes:
        """Return the body of the request. Raises TypeError when its payload is not an object."""
        address, target = delivery.address, self._target
        if target is Target.DEVICE:
            target = Target.FID if _INSTALLATION.fullmatch(address) else Target.TOKEN
        payload = delivery.payload
        if payload is None:
            message: Any = _message(delivery, now_s)
            setattr(message, target, address)
        elif isinstance(payload, dict):
            message = {**payload, target.value: address}
        else:
            raise TypeError("a payload for FCM is an object")
        return b'{"message":' + self._encode(message) + self._end


def _message(delivery: Delivery, now_s: float) -> _FcmMessage:
    push = delivery.push
    message = _FcmMessage(_HIGH if delivery.level is Level.HIGH else _NORMAL)
    if push.title or push.body:
        message.notification = _FcmNotification(push.title, push.body)
    if push.data:
        message.data = {  # FCM takes text only: all else goes as its JSON
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in push.data.items()
        }
    if push.expires_at_ms or push.collapse:
        _set_delivery(message, push, now_s)
    return message


def _set_delivery(message: _FcmMessage, push: Push, now_s: float) -> None:
    """Say until when the message is kept, and what it replaces, in each platform's own words."""
    apns: dict[str, str] = {}
    webpush: dict[str, str] = {}
    android = _FcmAndroid(message.android.priority, collapse_key=push.collapse)
    if push.expires_at_ms:
        expires_s = push.expires_at_ms // 1000
        ttl_s = int(min(max(expires_s - now_s, 0), LONGEST_TTL_S))
        android.ttl = f"{ttl_s}s"
        apns["apns-expiration"] = str(expires_s)
        webpush["TTL"] = str(ttl_s)
    if 0 < len(push.collapse.encode()) <= _LONGEST_COLLAPSE_ID:
        apns["apns-collapse-id"] = push.collapse
    if _TOPIC.fullmatch(push.collapse):
        webpush["Topic"] = push.collapse
    message.android = android
    message.apns = {"headers": apns} if apns else None
    message.webpush = {"headers": webpush} if webpush else None


THROTTLED_S = 60.0
PLATFORM_REST_S = 600.0

_TYPE = "type.googleapis.com/"
_BAD_REQUEST = f"{_TYPE}google.rpc.BadRequest"
_FCM_ERROR = f"{_TYPE}google.firebase.fcm.v1.FcmError"
_ERROR_INFO = f"{_TYPE}google.rpc.ErrorInfo"
_QUOTA_FAILURE = f"{_TYPE}google.rpc.QuotaFailure"
_TARGETS = frozenset({"message.token", "message.fid"})
_PART = re.compile(r"message\.(notification|data|android|apns|webpush|fcm_options)\b")

REFUSED = Outcome.refused(
    "HTTP 401: FCM does not accept our access token; check credentials and project"
)
_FORBIDDEN = {
    "SERVICE_DISABLED": "enable the Firebase Cloud Messaging API in the project",
    "IAM_PERMISSION_DENIED": "give the account the role Firebase Cloud Messaging API Admin",
    "CONSUMER_INVALID": "there is no such project; check project",
}


class _FcmViolation(msgspec.Struct, frozen=True):
    """A field that is wrong, or a quota that is used up."""

    field: str = ""
    subject: str = ""
    description: str = ""


class _FcmDetail(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = msgspec.field(default="", name="@type")
    error_code: str = ""
    reason: str = ""
    field_violations: tuple[_FcmViolation, ...] = ()
    violations: tuple[_FcmViolation, ...] = ()


class _FcmError(msgspec.Struct, frozen=True):
    message: str = ""
    details: tuple[_FcmDetail, ...] = ()

    def of(self, kind: str) -> list[_FcmDetail]:
        return [detail for detail in self.details if detail.kind == kind]

    @property
    def code(self) -> str:
        """The error code of FCM itself, empty when the answer is not FCM's own."""
        return next((detail.error_code for detail in self.of(_FCM_ERROR)), "")


class _FcmAnswer(msgspec.Struct, frozen=True):
    error: _FcmError = _FcmError()


_decode = msgspec.json.Decoder(_FcmAnswer).decode


def outcome_of(
    status: int,
    body: bytes,
    retry_after: str | None,
    now_s: float,
    *,
    has_delivered: bool = True,
    to_device: bool = True,
) -> Outcome:
    """Return what an answer other than 200 means for the push.

    `has_delivered`: this sink got a push through, so that its project is the one of the devices.
    `to_device`: the address is one device's, not a topic or a condition.
    """
    try:
        error = _decode(body).error
    except NO_JSON:
        error = _FcmError()
    reason = f"HTTP {status}"
    after_s = retry_after_s(retry_after, now_s)
    match status, error.code:
        case 400, _:
            return _invalid(error, to_device)
        case 401, "THIRD_PARTY_AUTH_ERROR":
            return Outcome.throttled(
                f"{reason} THIRD_PARTY_AUTH_ERROR: FCM has no valid APNs or web push key of the "
                "project; give it one in the Firebase console",
                PLATFORM_REST_S,
                Scope.RECIPIENT,
            )
        case 401, _:
            return REFUSED
        case 403, "SENDER_ID_MISMATCH":
            return _of_another_sender(has_delivered)
        case 403, _:
            return _forbidden(error)
        case 404, "UNREGISTERED":
            return Outcome.gone(f"{reason} UNREGISTERED")
        case 429, _:
            return _too_many(error, after_s)
        case 503, _:
            return Outcome.throttled(reason, after_s, arrival=Arrival.FAILED)
        case (408 | 425, _):
            return Outcome.retry(reason, after_s)
    if status >= 500:
        return Outcome.retry(reason, after_s)
    return Outcome.dead(reason, scope=None)


def _of_another_sender(has_delivered: bool) -> Outcome:
    """The token is of another project; so would all be where ours is the wrong one."""
    if has_delivered:
        return Outcome.gone("HTTP 403 SENDER_ID_MISMATCH")
    return Outcome.refused(
        "HTTP 403 SENDER_ID_MISMATCH, and nothing got through before: check that "
        "credentials and project are those of the app"
    )


def _invalid(error: _FcmError, to_device: bool) -> Outcome:
    """A field is wrong. FCM's own code alone, with a word on the token, is about the address."""
    fields = [
        violation.field for one in error.of(_BAD_REQUEST) for violation in one.field_violations
    ]
    is_target = any(field in _TARGETS for field in fields)
    if not fields:
        is_target = error.code == "INVALID_ARGUMENT" and "registration token" in error.message
    if is_target and to_device:
        return Outcome.gone("HTTP 400 INVALID_ARGUMENT: not an address of FCM")
    part = next(filter(None, map(_PART.match, fields)), None)  # names further in are of the push
    where = f"'s {part[1]}" if part else ""
    return Outcome.dead(f"HTTP 400 INVALID_ARGUMENT: FCM does not take the message{where}")


def _forbidden(error: _FcmError) -> Outcome:
    known = (one.reason for one in error.of(_ERROR_INFO) if one.reason in _FORBIDDEN)
    if why := next(known, ""):
        return Outcome.refused(f"HTTP 403 {why}: {_FORBIDDEN[why]}")
    return Outcome.refused("HTTP 403: FCM refuses our account; check its project and role")


def _too_many(error: _FcmError, after_s: float | None) -> Outcome:
    """The rate of a device or topic is about the address; that of the project about the sink."""
    wait_s = THROTTLED_S if after_s is None else after_s
    for detail in error.of(_QUOTA_FAILURE):
        for violation in detail.violations:
            about = f"{violation.subject} {violation.description}".lower()
            if "device" in about or "topic" in about:
                return Outcome.throttled("HTTP 429 of the address", wait_s, Scope.RECIPIENT)
    return Outcome.throttled("HTTP 429", wait_s)


ENDPOINT = "https://fcm.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"

_JSON = {"Content-Type": "application/json"}
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")


class FcmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of FCM: `credentials` is the JSON of a service account, or of a workload identity.

    `project` is the one of the service account unless given. `address` says what the pushes'
    addresses are. With `dry_run` FCM checks messages and delivers none. `streams` is the most that
    is in flight on a connection. `http2` names what speaks HTTP/2 in place of pyreqwest.
    """

    credentials: str
    project: str = ""
    address: Target = Target.DEVICE
    endpoint: str = ENDPOINT
    dry_run: bool = False
    streams: Annotated[int, Meta(ge=1, le=1000)] = 100
    http2: Http2 = ""

    def __repr__(self) -> str:
        return f"FcmOptions(project={self.project!r})"

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> FcmSink:
        """Return the sink. Raises BadInput when credentials, project or endpoint cannot be."""
        return FcmSink(self, slots, Timeouts(timeout_s, is_final=not retry_timeouts))

    def target(self) -> PlainTarget:
        """Return the project, at the endpoint; with `dry_run` FCM delivers none."""
        _, project = self.signed_in()
        return url_target("fcm", self.endpoint, project, delivers=not self.dry_run)

    def posted_by(self) -> str:
        """Say which client posts, and why where it is not our own."""
        return why_not_http2(self.endpoint, self.http2) or OURS

    def signed_in(self) -> tuple[Credentials, str]:
        """Return the credentials and the project. Raises BadInput when one cannot be."""
        credentials, project = read_credentials(self.credentials, SCOPE)
        project = self.project or project
        if not project:
            raise BadInput("credentials name no project: give the option project")
        if not _PROJECT.fullmatch(project):
            raise BadInput(f"project {project[:40]!r} cannot be the id of a Firebase project")
        return credentials, project


class FcmSink(SignedIn):
    """One request a push, over as many HTTP/2 connections as its slots take.

    Raises BadInput when credentials, project or endpoint cannot be.
    """

    name = "fcm"
    asks_again = frozenset({401})

    def __init__(self, options: FcmOptions, slots: int, timeouts: Timeouts) -> None:
        credentials, project = options.signed_in()
        require_http_url(options.endpoint, f"endpoint is not a URL like {ENDPOINT}")
        url = f"{options.endpoint.rstrip('/')}/v1/projects/{project}/messages:send"
        transport, self._path = http2_transport(
            url, options.streams, slots, timeouts, _JSON, options.http2
        )
        super().__init__(transport)
        self._token = AccessToken(credentials)
        self._messages = MessageEncoder(options.address, options.dry_run)
        self._timeouts = timeouts
        self._to_devices = options.address.is_device
        self._has_delivered = False

    async def close(self) -> None:
        await super().close()
        await self._token.close()

    async def send(self, delivery: Delivery) -> Outcome:
        body = self.body_of(delivery)
        if isinstance(body, Outcome):
            return body
        header: str | Outcome = self._token.present() or await self._token.fresh()
        if isinstance(header, Outcome):
            return header
        request = self.request_of(body, header)
        return await self.settled(request, await self._transport.send(*request))

    def request_now(self, delivery: Delivery) -> Request | None:
        header = self._token.present()
        body = self.body_of(delivery)
        return self.request_of(body, header) if header and not isinstance(body, Outcome) else None

    def outcome_of(self, request: Request, heard: Heard) -> Outcome:
        return self.outcome(heard)

    async def settled(self, request: Request, heard: Heard) -> Outcome:
        outcome = self.outcome(heard)
        if outcome is not REFUSED:
            return outcome
        _, headers, body = request
        header = await self._token.fresh(instead_of=headers["Authorization"])
        if isinstance(header, Outcome):
            return header
        return self.outcome(await self._transport.send(*self.request_of(body, header)))

    def body_of(self, delivery: Delivery) -> bytes | Outcome:
        """Return the body of the request, or the outcome of a push that cannot have one."""
        try:
            return self._messages.body(delivery, time.time())
        except TypeError:
            return Outcome.dead("its payload for FCM is no JSON object", arrival=Arrival.REFUSED)

    def request_of(self, body: bytes, authorization: str) -> Request:
        """Return the request that posts a body."""
        return self._path, {"Authorization": authorization}, body

    def outcome(self, heard: Heard) -> Outcome:
        """Return what becomes of a push of which this was heard.

        It is REFUSED itself where another access token may help.
        """
        if isinstance(heard, Lost):
            return lost(heard, self._timeouts, "FCM")
        if heard.status == 200:
            self._has_delivered = True
            return DELIVERED
        return outcome_of(
            heard.status,
            heard.body,
            heard.headers.get("retry-after"),
            time.time(),
            has_delivered=self._has_delivered,
            to_device=self._to_devices,
        )
