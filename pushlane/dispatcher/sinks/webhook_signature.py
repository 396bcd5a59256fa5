"""Signatures by which a receiver knows that a request is ours and is new (Standard Webhooks).

Each live key signs, so that a key can be changed without a request that nobody can check: with two
keys a receiver may know either. See https://www.standardwebhooks.com.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

from pushlane.core.errors import BadInput

_PREFIX = "whsec_"
_OF_A_KEY_PAIR = ("whsk_", "whpk_")
_LEAST_BYTES = 24
_MOST_BYTES = 64
_MOST_KEYS = 2


class Signer:
    """Signs with one or two keys; without a key it adds nothing.

    `secrets` is a list of keys, or a text with white space between them, as a file may hold.

    Raises:
        BadInput: there are more, or one is no key; says what is wrong with it, never its value.
    """

    def __init__(self, secrets: str | Sequence[str]) -> None:
        given = secrets.split() if isinstance(secrets, str) else secrets
        if len(given) > _MOST_KEYS:
            raise BadInput(
                f"secrets has {len(given)} keys; give one, or two while you change from one to the "
                "other"
            )
        self._keys = [_read_key(key, f"key {n} of secrets") for n, key in enumerate(given, 1)]
        if len(set(self._keys)) < len(self._keys):
            raise BadInput("both keys of secrets are the same; leave one of them out")

    def headers(self, message_id: str, body: bytes, now_s: float) -> dict[str, str]:
        """Return the headers to send with exactly this body. The id has to be without a dot."""
        if not self._keys:
            return {}
        timestamp = str(int(now_s))
        signed = b"%b.%b.%b" % (message_id.encode(), timestamp.encode(), body)
        return {
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(_signature(key, signed) for key in self._keys),
        }


def _signature(key: bytes, signed: bytes) -> str:
    return f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}"


def _read_key(text: str, who: str) -> bytes:
    if text.startswith(_OF_A_KEY_PAIR):
        raise BadInput(f"{who} is one of a key pair; give a shared key, {_PREFIX} and base64")
    if not text.startswith(_PREFIX):
        raise BadInput(f"{who} does not begin with {_PREFIX}; give {_PREFIX} and base64")
    encoded = text.removeprefix(_PREFIX)
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(
            f"{who} is not base64 after {_PREFIX}; give the key as it was made"
        ) from None
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise BadInput(
            f"{who} has {len(key)} bytes; it has to have {_LEAST_BYTES} to {_MOST_BYTES}; "
            f'make one with: echo "{_PREFIX}$(openssl rand -base64 32)"'
        )
    return key
