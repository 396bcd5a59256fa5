"""Signed tokens, checked by PyJWT."""

import json
from base64 import urlsafe_b64decode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks.es256 import base64url, read_key, signed

CLAIMS = {"iss": "DEF123GHIJ", "iat": 1_764_000_000}


def pem(key, encryption=None, style=PrivateFormat.PKCS8):
    return key.private_bytes(Encoding.PEM, style, encryption or NoEncryption()).decode()


def public(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_token_holds_its_claims_and_who_signed_it():
    key = generate_private_key(SECP256R1())

    token = signed(key, {"kid": "ABC123DEFG"}, CLAIMS)

    options = {"verify_iat": False}
    assert jwt.decode(token, public(key), algorithms=["ES256"], options=options) == CLAIMS
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": "ABC123DEFG"}


def test_another_key_did_not_sign_it():
    token = signed(generate_private_key(SECP256R1()), {}, CLAIMS)

    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, public(generate_private_key(SECP256R1())), algorithms=["ES256"])


def test_the_same_claims_have_the_same_token_wherever_they_are_signed():
    text = pem(generate_private_key(SECP256R1()))

    first, second = (signed(read_key(text, "key"), {"kid": "A"}, CLAIMS) for _ in range(2))

    assert first == second
    assert first != signed(read_key(text, "key"), {"kid": "A"}, {**CLAIMS, "iat": 1})


def test_every_signature_has_64_bytes_however_small_its_numbers_are():
    key = generate_private_key(SECP256R1())

    tokens = [signed(key, {}, {"iat": number}) for number in range(600)]

    for token in tokens:
        *_, signature = token.split(".")
        assert len(urlsafe_b64decode(signature + "==")) == 64
        jwt.decode(token, public(key), algorithms=["ES256"], options={"verify_iat": False})


def test_a_key_in_the_older_form_of_pem_is_read_too():
    key = generate_private_key(SECP256R1())

    read = read_key(pem(key, style=PrivateFormat.TraditionalOpenSSL), "key")

    assert read.private_numbers() == key.private_numbers()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "key is not a private key in PEM"),
        ("c2VjcmV0", "key is not a private key in PEM"),
        (pem(generate_private_key(SECP256R1()))[:80], "key is not a private key in PEM"),
        (
            pem(generate_private_key(SECP256R1()), BestAvailableEncryption(b"x")),
            "without a password",
        ),
        (public(generate_private_key(SECP256R1())).decode(), "key is not a private key in PEM"),
        (pem(generate_private_key(SECP384R1())), "key is a key of another kind"),
        (pem(Ed25519PrivateKey.generate()), "key is a key of another kind"),
    ],
    ids=["empty", "no PEM", "cut off", "with a password", "public", "P-384", "Ed25519"],
)
def test_what_is_no_key_for_this_is_refused_and_not_shown(text, told):
    with pytest.raises(BadInput, match=told) as refused:
        read_key(text, "key")

    lines = [line for line in text.splitlines() if line and not line.startswith("-----")]
    assert not any(line in str(refused.value) for line in lines)


def test_base64url_has_no_padding_and_needs_no_escape():
    assert base64url(b"\xfb\xff") == "-_8"
    assert json.loads(urlsafe_b64decode(base64url(b'{"a":1}') + "==")) == {"a": 1}
