"""A browser that has subscribed to Web Push: it hands out its subscription and reads what comes.

The reading side of RFC 8291, written after the RFC with plain HMACs and without any code of ours.
"""

import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64encode

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class Undecryptable(Exception):
    """The browser cannot read a body."""


def base64url(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Browser:
    """What is not given is made up; `token` is the last part of its endpoint."""

    def __init__(self, private=None, auth=None, token=""):
        self.private = private or ec.generate_private_key(ec.SECP256R1())
        self.auth = secrets.token_bytes(16) if auth is None else auth
        self.point = self.private.public_key().public_bytes(
            Encoding.X962, PublicFormat.UncompressedPoint
        )
        self.token = token or secrets.token_urlsafe(16)

    def subscription(self, service):
        """Return what `JSON.stringify(subscription)` gives, at the push service with this URL."""
        keys = {"p256dh": base64url(self.point), "auth": base64url(self.auth)}
        endpoint = f"{service}/push/{self.token}"
        return json.dumps({"endpoint": endpoint, "expirationTime": None, "keys": keys})

    def decrypt(self, body):
        """The plaintext of a body in `aes128gcm`. Raises Undecryptable."""
        salt, record_size, id_length = body[:16], int.from_bytes(body[16:20], "big"), body[20:21]
        if id_length != b"\x41" or record_size < len(body) - 86:
            raise Undecryptable("not one record that begins with a key of 65 bytes")
        sender, record = body[21:86], body[86:]
        try:
            public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
            padded = self._opened(salt, sender, public, record)
        except Exception as error:
            raise Undecryptable(type(error).__name__) from error
        plaintext = padded.rstrip(b"\0")
        if plaintext[-1:] != b"\x02":
            raise Undecryptable("the last record does not end as one")
        return plaintext[:-1]

    def _opened(self, salt, sender, public, record):
        agreed = self.private.exchange(ec.ECDH(), public)
        info = b"WebPush: info\0" + self.point + sender
        shared = _expand(_hmac(self.auth, agreed), info, 32)
        pseudorandom = _hmac(salt, shared)
        key = _expand(pseudorandom, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _expand(pseudorandom, b"Content-Encoding: nonce\0", 12)
        return AESGCM(key).decrypt(nonce, record, None)


def _hmac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def _expand(key, info, length):
    return _hmac(key, info + b"\x01")[:length]
