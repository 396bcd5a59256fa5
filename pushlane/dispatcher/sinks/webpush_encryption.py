"""Encrypts what a browser is to read: Message Encryption for Web Push (RFC 8291), in one record of
`aes128gcm` (RFC 8188).

Each push has a key pair and a salt of its own, as RFC 8291 (3.1) demands: with a pair that served
twice, whoever comes by its private key could read all that was sent with it. It costs about 70 µs,
half of them the key agreement.
"""

from __future__ import annotations

import os

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AUTH_BYTES = 16
POINT_BYTES = 65
_SALT_BYTES = 16
_HEAD = (4096).to_bytes(4, "big") + bytes([POINT_BYTES])
_LAST_RECORD = b"\x02"
_CURVE, _ECDH, _SHA256 = SECP256R1(), ECDH(), SHA256()


class BrowserKeys(msgspec.Struct, frozen=True, gc=False):
    """The keys of a subscription: its point `p256dh`, as bytes and as a key, and its `auth`."""

    point: bytes
    auth: bytes
    public: EllipticCurvePublicKey

    @staticmethod
    def of(point: bytes, auth: bytes) -> BrowserKeys:
        """Return the keys. Raises ValueError for what is no uncompressed point of P-256."""
        if len(point) != POINT_BYTES:
            raise ValueError("not an uncompressed point")
        public = EllipticCurvePublicKey.from_encoded_point(_CURVE, point)
        return BrowserKeys(point, auth, public)

    def __repr__(self) -> str:
        return "BrowserKeys()"


def encrypt(plaintext: bytes, to: BrowserKeys) -> bytes:
    """Return the body of a request: 103 bytes more than the plaintext."""
    return seal(plaintext, to, generate_private_key(_CURVE), os.urandom(_SALT_BYTES))


def seal(plaintext: bytes, to: BrowserKeys, own: EllipticCurvePrivateKey, salt: bytes) -> bytes:
    """Return the body that this key pair and salt make, which no other push may have."""
    point = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    secret = own.exchange(_ECDH, to.public)
    shared = _derived(32, to.auth, b"WebPush: info\0" + to.point + point, secret)
    key = _derived(16, salt, b"Content-Encoding: aes128gcm\0", shared)
    nonce = _derived(12, salt, b"Content-Encoding: nonce\0", shared)
    sealed = AESGCM(key).encrypt(nonce, plaintext + _LAST_RECORD, None)
    return b"".join((salt, _HEAD, point, sealed))


def _derived(length: int, salt: bytes, info: bytes, secret: bytes) -> bytes:
    return HKDF(_SHA256, length, salt, info).derive(secret)
