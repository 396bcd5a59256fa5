"""Reads what becomes of a push off an answer of FCM. The table is in docs/sinks.md.

https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode has the codes. What FCM says in
words is never shown; only where a code means two things do words tell which.
"""

from __future__ import annotations

import re

import msgspec

from pushlane.core.push import Arrival, Outcome, Scope
from pushlane.dispatcher.sinks.http_client import NO_JSON, retry_after_s

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
            return _mismatch(has_delivered)
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


def _mismatch(has_delivered: bool) -> Outcome:
    """The device is of another project; so would all be where the project is the wrong one."""
    if has_delivered:
        return Outcome.gone("HTTP 403 SENDER_ID_MISMATCH")
    return Outcome.refused(
        "HTTP 403 SENDER_ID_MISMATCH, and nothing got through before: check that credentials and "
        "project are those of the app"
    )


def _forbidden(error: _FcmError) -> Outcome:
    known = [one.reason for one in error.of(_ERROR_INFO) if one.reason in _FORBIDDEN]
    if not known:
        return Outcome.refused("HTTP 403: FCM refuses our account; check its project and role")
    return Outcome.refused(f"HTTP 403 {known[0]}: {_FORBIDDEN[known[0]]}")


def _too_many(error: _FcmError, after_s: float | None) -> Outcome:
    """The rate of a device or topic is about the address; that of the project about the sink."""
    wait_s = THROTTLED_S if after_s is None else after_s
    for detail in error.of(_QUOTA_FAILURE):
        for violation in detail.violations:
            about = f"{violation.subject} {violation.description}".lower()
            if "device" in about or "topic" in about:
                return Outcome.throttled("HTTP 429 of the address", wait_s, Scope.RECIPIENT)
    return Outcome.throttled("HTTP 429", wait_s)
