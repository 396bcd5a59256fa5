"""What a browser gets to decrypt: the RFC's example, and a reader that shares no code with ours."""

from base64 import urlsafe_b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from pushlane.dispatcher.sinks.webpush import BrowserKeys, encrypt, seal
from pushlane.settings.payload_limits import WEB_PUSH_BYTES
from tests.emulators.webpush_browser import Browser, Undecryptable

CURVE = ec.SECP256R1()

# RFC 8291, section 5 and appendix A.
PLAINTEXT = b"When I grow up, I want to be a watermelon"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
BROWSERS_PRIVATE = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
BROWSERS_POINT = (
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)
OWN_PRIVATE = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS"
    "6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qu"
    "lcy4a-fN"
)


def plain(text):
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def private(text):
    return ec.derive_private_key(int.from_bytes(plain(text), "big"), CURVE)


def keys_of(browser):
    return BrowserKeys.of(browser.point, browser.auth)


def test_the_body_is_that_of_the_rfc():
    to = BrowserKeys.of(plain(BROWSERS_POINT), plain(AUTH))

    assert seal(PLAINTEXT, to, private(OWN_PRIVATE), plain(SALT)) == plain(BODY)


def test_the_reader_of_the_tests_reads_the_rfcs_body():
    assert Browser(private(BROWSERS_PRIVATE), plain(AUTH)).decrypt(plain(BODY)) == PLAINTEXT


@pytest.mark.parametrize("size", [0, 1, 41, WEB_PUSH_BYTES])
def test_the_browser_reads_what_was_encrypted_for_it(size):
    browser = Browser()

    assert browser.decrypt(encrypt(b"x" * size, keys_of(browser))) == b"x" * size


def test_no_other_browser_can_read_it():
    body = encrypt(PLAINTEXT, keys_of(Browser()))

    with pytest.raises(Undecryptable):
        Browser().decrypt(body)


def test_the_largest_plaintext_fills_what_a_push_service_takes():
    assert len(encrypt(b"x" * WEB_PUSH_BYTES, keys_of(Browser()))) == 4096


def test_each_push_has_a_key_pair_and_a_salt_of_its_own():
    keys = keys_of(Browser())
    bodies = [encrypt(PLAINTEXT, keys) for _ in range(3)]

    assert len({body[:16] for body in bodies}) == 3
    assert len({body[21:86] for body in bodies}) == 3


@pytest.mark.parametrize(
    "point", [b"", b"\x04" + b"\1" * 64, b"\x04" * 64, bytes(65), b"\x02" + b"\1" * 32]
)
def test_a_point_that_is_not_on_the_curve_is_refused(point):
    with pytest.raises(ValueError):
        BrowserKeys.of(point, bytes(16))


def test_keys_are_not_shown():
    keys = keys_of(Browser())

    assert repr(keys) == "BrowserKeys()"
