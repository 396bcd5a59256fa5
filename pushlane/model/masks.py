"""Masks stand for personal values where people or reports have to tell them apart.

A mask keeps what a value means (a country, a domain, a month) and ends in a fingerprint under a
key: equal values have equal masks, and whoever has the mask but not the key cannot find out by
trying whom it stands for. A fingerprint has 60 bits: two given values share one once in 10^18, any
two of ten million once in 20,000 times. Masks of another key have nothing in common with these.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from enum import StrEnum

from pushlane.core.errors import BadInput
from pushlane.model.receipt import masked_recipients
from pushlane.model.recipients import Hasher
from pushlane.util.conversion import Word

LEAST_KEY_BYTES = 16
_REST = "…"
_LEFT = 6  # so much of a phone number, a coupon or a device id stays hidden at least


class Sensitivity(StrEnum):
    """The levels of sensitivity: how much of a value is shown."""

    PUBLIC = "public"
    """The value as it is."""

    PERSONAL = "personal"
    """A mask: the part that has a meaning, and the fingerprint."""

    SECRET = "secret"  # noqa: S105 - the name of a level
    """The fingerprint alone."""


class FieldType(StrEnum):
    """The types of fields, by which part of a value has a meaning."""

    PHONE = "phone"
    """The country's calling code, and the three digits after it of a number that is long enough."""

    EMAIL = "email"
    """The domain."""

    TOKEN = "token"  # noqa: S105 - the name of a type
    """The length of a push token, or the host of a Web Push endpoint."""

    DEVICE = "device"
    """The platform that an id of a device begins with, such as `ios:`."""

    DATE = "date"
    """The year and the month."""

    COUPON = "coupon"
    """The word before the first dash, which names the campaign."""

    TEXT = "text"
    """At most four characters, and never over a third, as receipts show a recipient."""


class Masks:
    """Makes masks, comparable under one key. Raises BadInput for a key of under 16 bytes."""

    def __init__(self, key: bytes | str) -> None:
        secret = key.encode() if isinstance(key, str) else key
        if len(secret) < LEAST_KEY_BYTES:
            raise BadInput(
                f"the key of masks has {len(secret)} bytes; give at least {LEAST_KEY_BYTES} random "
                "ones, like those of `openssl rand -hex 32`"
            )
        self._hasher = Hasher(b"masks\0" + secret)

    def __repr__(self) -> str:
        return "Masks()"

    def fingerprint(self, value: str) -> str:
        """Return twelve letters and digits that stand for this value under this key."""
        digest = self._hasher.digest(value.encode("utf-8", "surrogatepass"))
        return base64.b32encode(digest).decode()[:12].lower()

    def mask(
        self,
        value: str | None,
        field: FieldType | str = FieldType.TEXT,
        level: Sensitivity | str = Sensitivity.PERSONAL,
    ) -> str | None:
        """Return the mask of a value; None and an empty text are themselves.

        Raises BadInput when it is no text, or there is no such type of field or level.
        """
        field, level = field_type(field), sensitivity(level)
        if level is Sensitivity.PUBLIC:
            return value
        if not isinstance(value, str | None):
            raise BadInput(f"a value to mask has type {type(value).__name__}; give a text")
        if not value:
            return value
        shown = _MEANING[field](value.strip()) if level is Sensitivity.PERSONAL else ""
        return f"{shown}#{self.fingerprint(value)}"


def field_type(name: str) -> FieldType:
    """Return the type of field of this name. Raises BadInput with those there are."""
    return _member(FieldType, name, f"there is no field type {name!r} to mask")


def sensitivity(name: str) -> Sensitivity:
    """Return the level of this name. Raises BadInput with those there are."""
    return _member(Sensitivity, name, f"there is no level {name!r} of sensitivity")


def _member(kind: type[Word], name: str, refusal: str) -> Word:
    try:
        return kind(name)
    except ValueError:
        raise BadInput(f"{refusal}; use one of {', '.join(kind)}") from None


_DIALLED = re.compile(r"(?:\+|00)([0-9][0-9 ()./\-]{5,30})")
_CALLING_CODE = re.compile(  # ITU-T E.164: codes of one digit, of two, else of three
    r"1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|[2-9][0-9]{2}"
)
_DOMAIN = re.compile(r"[^@\s]+@((?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,24})", re.I)
_ENDPOINT = re.compile(r"https://((?:[a-z0-9-]{1,63}\.)+[a-z]{2,24})(?::[0-9]+)?/", re.I)
_PLATFORM = re.compile(
    rf"(android|chrome|firefox|harmony|ios|macos|safari|web|windows)[:_-].{{{_LEFT},}}", re.I
)
_MONTH = re.compile(r"([0-9]{4}-(?:0[1-9]|1[0-2]))(?:-[0-9]{2}(?:[T ][0-9:.,+Z -]*)?)?")
_CAMPAIGN = re.compile(rf"([A-Za-z]{{2,12}})-.{{{_LEFT},}}")


def _phone(value: str) -> str:
    dialled = _DIALLED.fullmatch(value)
    digits = re.sub(r"[^0-9]", "", dialled[1]) if dialled else ""
    code = _CALLING_CODE.match(digits)
    if code is None:
        return _REST
    area = code.end() + 3
    end = area if len(digits) - area >= _LEFT else code.end()
    return f"+{digits[:end]}{_REST}"


def _token(value: str) -> str:
    endpoint = _ENDPOINT.match(value)
    return f"https://{endpoint[1].lower()}/{_REST}" if endpoint else f"{len(value)}{_REST}"


def _found(pattern: re.Pattern[str], show: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that shows what this pattern finds in a value, if it is of its form."""

    def shown(value: str) -> str:
        found = pattern.fullmatch(value)
        return show(found[1]) if found else _REST

    return shown


def _text(value: str) -> str:
    [shown] = masked_recipients([value])
    return shown if shown.isprintable() else _REST


_MEANING: dict[FieldType, Callable[[str], str]] = {
    FieldType.PHONE: _phone,
    FieldType.EMAIL: _found(_DOMAIN, lambda domain: f"{_REST}@{domain.lower()}"),
    FieldType.TOKEN: _token,
    FieldType.DEVICE: _found(_PLATFORM, lambda platform: f"{platform.lower()}:{_REST}"),
    FieldType.DATE: _found(_MONTH, str),
    FieldType.COUPON: _found(_CAMPAIGN, lambda campaign: f"{campaign}-{_REST}"),
    FieldType.TEXT: _text,
}
