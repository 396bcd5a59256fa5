"""Reads the address of a Web Push: a subscription, as a browser gives it in JSON.

It names what is wrong with one by its part, and never shows a value.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode

import msgspec

from pushlane.dispatcher.sinks.http_client import NO_JSON
from pushlane.dispatcher.sinks.webpush_encryption import AUTH_BYTES, BrowserKeys

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

    Raises:
        MalformedSubscription: it is none, or a part is missing or cannot be.
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
