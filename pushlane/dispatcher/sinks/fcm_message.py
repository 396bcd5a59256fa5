"""Turns a push into the body of a request to FCM (HTTP v1, projects.messages.send).

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages has the message.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.lanes.ports import Delivery

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


class _FcmHeaders(msgspec.Struct, gc=False):
    headers: dict[str, str]


class _FcmMessage(msgspec.Struct, omit_defaults=True):
    android: _FcmAndroid
    notification: _FcmNotification | None = None
    data: dict[str, str] | None = None
    apns: _FcmHeaders | None = None
    webpush: _FcmHeaders | None = None
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
        """Return the body of the request.

        Raises:
            TypeError: its payload is not an object.
        """
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
        message.data = {name: _text(value) for name, value in push.data.items()}
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
    if push.collapse and len(push.collapse.encode()) <= _LONGEST_COLLAPSE_ID:
        apns["apns-collapse-id"] = push.collapse
    if _TOPIC.fullmatch(push.collapse):
        webpush["Topic"] = push.collapse
    message.android = android
    message.apns = _FcmHeaders(apns) if apns else None
    message.webpush = _FcmHeaders(webpush) if webpush else None


def _text(value: Any) -> str:
    """Return a value of `data`, which FCM takes as text only: all but text as its JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
