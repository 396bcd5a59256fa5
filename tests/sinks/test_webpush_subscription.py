"""Subscriptions as browsers give them, and what is said of those that cannot be used."""

import json
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from pushlane.dispatcher.sinks.webpush import MalformedSubscription, read_subscription
from tests.emulators.webpush_browser import Browser, base64url

BROWSER = Browser(ec.derive_private_key(7, ec.SECP256R1()), bytes(range(16)), "token-1")
SERVICE = "https://push.example.com"
ENDPOINT = "its subscription has no https endpoint"
AUTH = "its subscription's auth is not 16 bytes in base64url"
POINT = "its subscription's p256dh is not a point of P-256 in base64url"
JSON = "its subscription is not the JSON of a browser's PushSubscription"


def but(**parts):
    """The subscription with other parts; None leaves one out."""
    given = json.loads(BROWSER.subscription(SERVICE))
    for name, value in parts.items():
        holder = given if name in ("endpoint", "keys") else given["keys"]
        if value is None:
            del holder[name]
        else:
            holder[name] = value
    return json.dumps(given)


def test_a_browsers_subscription():
    found = read_subscription(BROWSER.subscription(SERVICE))

    assert found.endpoint == f"{SERVICE}/push/{BROWSER.token}"
    assert (found.origin, found.host) == (SERVICE, "push.example.com")
    assert (found.keys.point, found.keys.auth) == (BROWSER.point, BROWSER.auth)


@pytest.mark.parametrize(
    ("endpoint", "origin"),
    [
        ("https://push.example.com:443/a", "https://push.example.com"),
        ("https://push.example.com:8443/a?b=c", "https://push.example.com:8443"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
    ],
)
def test_the_origin_of_an_endpoint_is_without_the_default_port(endpoint, origin):
    assert read_subscription(but(endpoint=endpoint)).origin == origin


def test_padding_is_taken():
    padded = but(auth=base64url(BROWSER.auth) + "==")

    assert read_subscription(padded).keys.auth == BROWSER.auth


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", JSON),
        ("device-token-1", JSON),
        ("[]", JSON),
        ("null", JSON),
        ('{"endpoint": 7}', JSON),
        (but(keys="p256dh"), JSON),
        ("\ud800", JSON),
        ('{"a":' + "[" * 20_000, JSON),
        ("{}", ENDPOINT),
        (but(endpoint=None), ENDPOINT),
        (but(endpoint=""), ENDPOINT),
        (but(endpoint="push.example.com/a"), ENDPOINT),
        (but(endpoint="ftp://push.example.com/a"), ENDPOINT),
        (but(endpoint="https://"), ENDPOINT),
        (but(endpoint="https://user@push.example.com/a"), ENDPOINT),
        (but(endpoint="https://push.example.com\\@evil.example/a"), ENDPOINT),
        (but(endpoint="https://push.example.com/a b"), ENDPOINT),
        (but(endpoint="https://push.example.com/a\nHost: b"), ENDPOINT),
        (but(keys=None), AUTH),
        (but(auth=None), AUTH),
        (but(auth=""), AUTH),
        (but(auth=base64url(b"x" * 15)), AUTH),
        (but(auth="é" * 22), AUTH),
        (but(p256dh=None), POINT),
        (but(p256dh=base64url(BROWSER.point[:-1])), POINT),
        (but(p256dh=base64url(b"\x04" + b"\1" * 64)), POINT),
        (but(p256dh="*"), POINT),
    ],
)
def test_one_that_cannot_be_used_says_which_part_is_wrong(text, reason):
    with pytest.raises(MalformedSubscription, match=f"^{re.escape(reason)}$") as raised:
        read_subscription(text)

    assert raised.value.__cause__ is None


def test_a_subscription_is_not_shown():
    assert repr(read_subscription(but())) == "Subscription()"
