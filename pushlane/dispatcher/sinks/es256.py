"""Signed tokens (JWT, RFC 7519) of ECDSA on P-256, which APNs and Web Push ask for.

The signature is deterministic (RFC 6979): processes that sign the same claims have the same token,
so a token that must not be renewed often needs no store to be shared through.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pushlane.core.errors import BadInput

_HALF = 32


def read_key(pem: str, what: str) -> EllipticCurvePrivateKey:
    """Return the key in a PEM text (PKCS #8, as in Apple's .p8 files); `what` names it in messages.

    Raises BadInput when it is not an unencrypted key on the curve P-256.
    """
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        raise BadInput(
            f"{what} is not a private key in PEM; give the file as it was downloaded, from "
            "-----BEGIN PRIVATE KEY----- to the end, without a password"
        ) from None  # the error may quote it
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise BadInput(f"{what} is a key of another kind; it has to be one on the curve P-256")
    return key


def signed(
    key: EllipticCurvePrivateKey, header: Mapping[str, str], claims: Mapping[str, Any]
) -> str:
    """Return the token with these claims, in its compact form."""
    head = base64url(msgspec.json.encode({"alg": "ES256", **header}))
    text = f"{head}.{base64url(msgspec.json.encode(claims))}"
    signature = key.sign(text.encode(), ECDSA(SHA256(), deterministic_signing=True))
    r, s = decode_dss_signature(signature)
    return f"{text}.{base64url(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"


def base64url(data: bytes) -> str:
    """Return the text that stands for these bytes, without padding (RFC 7515, 2)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()
