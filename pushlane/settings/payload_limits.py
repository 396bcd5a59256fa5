"""Sizes that providers allow: what a push may have at most, in bytes of what they receive.

FCM counts a message's notification and data, APNs and Web Push all that is sent (before it is
encrypted). A submit tells of rows that are over a limit whatever a sink adds; what it cannot know
is dead at its sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pushlane.core.push import Push
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings

FCM_BYTES = 4_096
"""https://firebase.google.com/docs/cloud-messaging/customize-messages/set-message-type"""

FCM_TOPIC_BYTES = 2_048
"""https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode"""

APNS_BYTES = 4_096
APNS_VOIP_BYTES = 5_120
"""https://developer.apple.com/documentation/usernotifications/generating-a-remote-notification"""

WEB_PUSH_BYTES = 3_993
"""RFC 8291, 4: what is left of 4,096 bytes once it is encrypted."""

_BY_KIND = {"fcm": FCM_BYTES, "apns": APNS_BYTES, "webpush": WEB_PUSH_BYTES}
_SURELY_FITS = 300  # bytes as we pack a push: as JSON it is at most six times that
_COUNTED_BY_FCM = ("notification", "data")
_TO_MANY = ("topic", "condition")  # addresses of FCM that stand for many devices

_encode = msgspec.json.Encoder().encode


class PayloadLimits(msgspec.Struct, frozen=True):
    """The limits of the sinks that a task's pushes may go to: by name their kind and bytes.

    A sink of `silent` sends neither title nor body.
    """

    sinks: dict[str, tuple[str, int]] = {}
    silent: tuple[str, ...] = ()

    def excess(self, push: Push, packed: int) -> str:
        """Tell which limit a push exceeds, empty if none; `packed` is its size on a lane."""
        if packed <= _SURELY_FITS:
            return ""
        for sink, (kind, most) in self.sinks.items():
            if push.address(sink) and (size := self._least_bytes(kind, push, sink)) > most:
                return f"{size:,} bytes for the sink {sink}, over the {most:,} that {kind} allows"
        return ""

    def _least_bytes(self, kind: str, push: Push, sink: str) -> int:
        """Return what the provider will count at least; a sink adds its own fields to it."""
        payload = push.payload(sink)
        if payload is None:
            texts = () if sink in self.silent else (push.title, push.body)
            return sum(len(text.encode()) for text in texts) + _texts(push.data)
        if kind == "fcm":
            return sum(_texts(payload.get(name)) for name in _COUNTED_BY_FCM)
        return len(_encode(payload))


def payload_limits(settings: Settings, chain: Iterable[str]) -> PayloadLimits:
    """Return what the settings know of the sinks of a chain."""
    limits: dict[str, tuple[str, int]] = {}
    silent: list[str] = []
    for name in chain:
        own = settings.sinks.get(name)
        if own is not None and own.kind in _BY_KIND:
            limits[name] = own.kind, _most_bytes(own)
            if own.kind == "apns" and own.options.get("push_type") == "background":
                silent.append(name)
    return PayloadLimits(limits, tuple(silent))


def _most_bytes(sink: SinkSettings) -> int:
    if sink.kind == "apns" and sink.options.get("push_type") == "voip":
        return APNS_VOIP_BYTES
    if sink.kind == "fcm" and sink.options.get("address") in _TO_MANY:
        return FCM_TOPIC_BYTES
    return _BY_KIND[sink.kind]


def _texts(value: Any) -> int:
    """Return the bytes of all names and values in it, without what JSON puts between them."""
    if isinstance(value, dict):
        return sum(_texts(name) + _texts(one) for name, one in value.items())
    if isinstance(value, str):
        return len(value.encode())
    return 0 if value is None else len(_encode(value))
