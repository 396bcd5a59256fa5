"""Tells push services who we are: signed tokens of VAPID (RFC 8292).

A token is for one push service, its origin, and serves all pushes to it until it is renewed.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    derive_private_key,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks.es256 import base64url, read_key, signed

VALID_S = 12 * 3600
RENEWED_AHEAD_S = 3600
MOST_ORIGINS = 1_000

_PRIVATE_BYTES, _PUBLIC_BYTES = 32, 65
_MAILTO = re.compile(r"mailto:[^@\s<>]+@[^@\s<>]+")


def read_vapid_key(text: str) -> EllipticCurvePrivateKey:
    """Return the private key in a PEM text, or in base64url as tools for Web Push print it.

    Raises:
        BadInput: it is none.
    """
    text = text.strip()
    if text.startswith("-----"):
        return read_key(text, "vapid_key")
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
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
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64url(point)


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
            value = self._make(origin, now_s)
            renew_at_s = now_s + VALID_S - RENEWED_AHEAD_S
        self._made[origin] = (renew_at_s, value)
        if len(self._made) > MOST_ORIGINS:
            del self._made[next(iter(self._made))]
        return value

    def _make(self, origin: str, now_s: float) -> str:
        claims = {"aud": origin, "exp": int(now_s) + VALID_S, "sub": self._subject}
        return f"vapid t={signed(self._key, {'typ': 'JWT'}, claims)}, k={self._public}"
