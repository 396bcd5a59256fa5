"""Masks: what they keep of a value, and what nobody can get out of them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.model.masks import FieldType, Masks, Sensitivity

KEY = b"a key of the tests, of 32 bytes."
MASKS = Masks(KEY)
FIELDS = st.sampled_from(list(FieldType))
VALUES = st.text(st.characters(), min_size=1)  # halves of characters too


def meaning(value: str, field: str) -> str:
    """What a mask shows in front of its fingerprint."""
    mask = MASKS.mask(value, field)
    assert mask is not None
    shown, _, fingerprint = mask.rpartition("#")
    assert fingerprint == MASKS.fingerprint(value)
    return shown


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("phone", "+49 151 23456789", "+49151…"),
        ("phone", "0049-151-23456789", "+49151…"),
        ("phone", "+1 (415) 555-2671", "+1415…"),
        ("phone", "+35621234567", "+356…"),
        ("phone", "+420 601 123 456", "+420601…"),
        ("phone", "015123456789", "…"),
        ("phone", "+49", "…"),
        ("phone", "+00012345678", "…"),
        ("phone", "call me at +49 151 23456789", "…"),
        ("email", "foo@example.com", "…@example.com"),
        ("email", "Foo.Bar+x@Mail.Example.COM", "…@mail.example.com"),
        ("email", " foo@example.com\n", "…@example.com"),
        ("email", "foo@localhost", "…"),
        ("email", "a@b@example.com", "…"),
        ("email", "meet me @ five.o'clock", "…"),
        ("token", "f" * 64, "64…"),
        ("token", "https://fcm.googleapis.com/fcm/send/abc", "https://fcm.googleapis.com/…"),
        ("token", "https://user:pass@evil.example/x", "32…"),
        ("device", "ios:8D4E2C1A-77", "ios:…"),
        ("device", "deadbeef-0000-4000-8000-000000000000", "…"),
        ("device", "ios:1", "…"),
        ("date", "1990-05-17", "1990-05"),
        ("date", "1990-05-17T08:30:00Z", "1990-05"),
        ("date", "1990-13-17", "…"),
        ("date", "17.05.1990", "…"),
        ("coupon", "SUMMER-X7Q2-9ABC", "SUMMER-…"),
        ("coupon", "X7Q29ABC", "…"),
        ("coupon", "SUMMER-1", "…"),
        ("text", "device-0123456789", "de…89"),
        ("text", "user-17", "u…7"),
        ("text", "ann", "…"),
        ("text", "\nforged line of a log\n", "fo…og"),
        ("text", "\x1b[2J and all is gone", "…"),
        ("text", "   ", "…"),
    ],
)
def test_a_mask_keeps_the_part_that_has_a_meaning(field: str, value: str, shown: str) -> None:
    assert meaning(value, field) == shown


@given(VALUES, VALUES, FIELDS)
def test_equal_values_have_equal_masks_and_others_have_others(one, other, field) -> None:
    assert MASKS.mask(one, field) == Masks(KEY).mask(one, field)
    assert (MASKS.mask(one, field) == MASKS.mask(other, field)) == (one == other)


@given(VALUES, FIELDS)
def test_a_secret_shows_its_fingerprint_alone(value: str, field: FieldType) -> None:
    mask = MASKS.mask(value, field, Sensitivity.SECRET)

    assert mask == f"#{MASKS.fingerprint(value)}"
    assert mask.isascii()


@given(VALUES, FIELDS)
def test_what_is_shown_can_be_printed_on_one_line(value: str, field: FieldType) -> None:
    assert meaning(value, field).isprintable()


@given(st.from_regex(r"[0-9a-z]{7,40}", fullmatch=True), FIELDS)
def test_a_value_without_a_known_form_shows_four_characters_at_most(value, field) -> None:
    shown = meaning(value, field).removesuffix("…")

    if field is FieldType.TOKEN:
        assert shown == str(len(value))
    else:
        assert len(shown.replace("…", "")) <= min(4, len(value) / 3)


@given(FIELDS, st.sampled_from(list(Sensitivity)))
def test_nothing_stays_nothing(field: FieldType, level: Sensitivity) -> None:
    assert MASKS.mask(None, field, level) is None
    assert MASKS.mask("", field, level) == ""


@given(VALUES, FIELDS)
def test_what_is_public_is_shown(value: str, field: FieldType) -> None:
    assert MASKS.mask(value, field, "public") == value


def test_phone_numbers_cannot_be_tried_without_the_key() -> None:
    mine, others = MASKS.mask("+4915123456789", "phone"), Masks(bytes(16)).mask

    assert mine not in {others(f"+49151234567{last:02}", "phone") for last in range(100)}


def test_the_masks_of_many_neighbours_differ() -> None:
    masks = {MASKS.mask(f"+4915{number:09}", "phone") for number in range(100_000)}

    assert len(masks) == 100_000


def test_the_fields_of_one_value_share_its_fingerprint() -> None:
    masks = [MASKS.mask("a@b.example", field) or "" for field in FieldType]

    assert all(a.rpartition("#")[2] == b.rpartition("#")[2] for a, b in combinations(masks, 2))


def test_neither_key_nor_value_is_in_a_repr() -> None:
    assert repr(MASKS) == "Masks()"


@pytest.mark.parametrize("key", [b"", b"fifteen bytes..", "short"])
def test_a_key_that_can_be_guessed_is_refused_without_showing_it(key: bytes | str) -> None:
    with pytest.raises(BadInput, match=f"has {len(key)} bytes; give at least 16") as refused:
        Masks(key)
    assert not key or str(key) not in str(refused.value)


def test_an_unknown_field_or_level_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadInput, match="no field type 'mobile' to mask; use one of phone, email"):
        MASKS.mask("x", "mobile")
    with pytest.raises(BadInput, match="no level 'hidden' of sensitivity; use one of public"):
        MASKS.mask("x", "text", "hidden")


@pytest.mark.parametrize("value", [0, 4_915_123_456_789, 1.5, b"+4915123456789", False])
def test_what_is_no_text_is_refused_without_showing_it(value: Any) -> None:
    with pytest.raises(BadInput, match=f"has type {type(value).__name__}; give a text") as refused:
        MASKS.mask(value, "phone")

    assert "4915" not in str(refused.value)
