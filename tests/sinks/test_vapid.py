"""The tokens that tell push services who we are, read with PyJWT, and the keys that are taken."""

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from pushlane.core.errors import BadInput
from pushlane.dispatcher.sinks.webpush import (
    MOST_ORIGINS,
    RENEWED_AHEAD_S,
    VALID_S,
    VapidTokens,
    read_vapid_key,
    require_subject,
)
from tests.emulators.webpush_browser import base64url

KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
RAW = base64url(KEY.private_numbers().private_value.to_bytes(32, "big"))
PLAIN = NoEncryption()
ORIGIN = "https://push.example.com"


class Clock:
    now_s = 1_800_000_000.0

    def __call__(self):
        return self.now_s


def pem(key, form=PrivateFormat.PKCS8, encryption=PLAIN):
    return key.private_bytes(Encoding.PEM, form, encryption).decode()


def tokens(clock):
    return VapidTokens(KEY, "mailto:push@example.com", clock)


def claims_of(authorization, clock):
    token = authorization.removeprefix("vapid t=").partition(",")[0]
    options = {"verify_exp": False}
    claims = jwt.decode(token, KEY.public_key(), ["ES256"], audience=ORIGIN, options=options)
    assert claims["exp"] - clock.now_s <= 24 * 3600
    return claims


def test_a_token_is_for_the_origin_half_a_day_long():
    clock = Clock()

    authorization = tokens(clock).authorization(ORIGIN)

    assert authorization.endswith(f", k={base64url(PUBLIC)}")
    assert claims_of(authorization, clock) == {
        "aud": ORIGIN,
        "exp": int(clock.now_s) + VALID_S,
        "sub": "mailto:push@example.com",
    }


def test_a_token_serves_until_it_is_renewed_ahead_of_its_end():
    clock = Clock()
    made = tokens(clock)
    first = made.authorization(ORIGIN)

    clock.now_s += VALID_S - RENEWED_AHEAD_S - 1
    assert made.authorization(ORIGIN) is first
    clock.now_s += 1
    renewed = made.authorization(ORIGIN)

    assert claims_of(renewed, clock)["exp"] == int(clock.now_s) + VALID_S


def test_another_origin_has_a_token_of_its_own():
    made = tokens(Clock())

    assert made.authorization(ORIGIN) != made.authorization("https://other.example.com")


def test_only_the_origins_that_were_used_last_are_remembered():
    clock = Clock()
    made = tokens(clock)
    first = made.authorization(ORIGIN)
    for number in range(MOST_ORIGINS - 1):
        made.authorization(f"https://{number}.example.com")
    assert made.authorization(ORIGIN) is first
    old = made.authorization("https://1.example.com")
    for number in range(MOST_ORIGINS - 1):
        made.authorization(f"https://other-{number}.example.com")

    clock.now_s += 1
    assert made.authorization("https://1.example.com") is old
    assert made.authorization(ORIGIN) != first


@pytest.mark.parametrize(
    "text",
    [
        RAW,
        f" {RAW}=\n",
        pem(KEY),
        pem(KEY, PrivateFormat.TraditionalOpenSSL),
    ],
    ids=["as printed", "padded", "PEM", "PEM of OpenSSL"],
)
def test_a_key_in_pem_or_as_tools_print_it(text):
    assert read_vapid_key(text).private_numbers() == KEY.private_numbers()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "vapid_key is not a private key; give a PEM file, or the 43 characters"),
        ("secret-key", "vapid_key is not a private key"),
        ("é" * 43, "vapid_key is not a private key"),
        (base64url(bytes(32)), "vapid_key is not a private key"),
        (base64url(b"\xff" * 32), "vapid_key is not a private key"),
        (base64url(PUBLIC), "vapid_key is the public key; give the private one"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n", "vapid_key is not a private key in PEM"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "vapid_key is a key of another kind"),
        (pem(rsa.generate_private_key(65537, 2048)), "vapid_key is a key of another kind"),
        (pem(KEY, encryption=BestAvailableEncryption(b"x")), "without a password"),
    ],
    ids=[
        *("empty", "a word", "not ASCII", "zero", "over the order", "public", "no PEM"),
        *("P-384", "RSA", "with a password"),
    ],
)
def test_what_is_no_key_is_refused_without_being_shown(text, told):
    with pytest.raises(BadInput, match=told) as raised:
        read_vapid_key(text)

    assert "secret" not in str(raised.value)
    assert raised.value.__context__ is None or raised.value.__suppress_context__


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "push@example.com",
        "mailto:",
        "mailto: <push@example.com>",
        "http://example.com",
        "https:",
    ],
)
def test_a_subject_that_push_services_refuse_is_refused_at_once(subject):
    with pytest.raises(BadInput, match="subject is not one that push services take"):
        require_subject(subject)


@pytest.mark.parametrize("subject", ["mailto:push@example.com", "https://example.com/contact"])
def test_a_subject_at_which_somebody_can_be_reached(subject):
    require_subject(subject)
