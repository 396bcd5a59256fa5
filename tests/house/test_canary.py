"""The search for marked values can fail: each form in which one may come out is found."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from msgspec import msgpack

from tests.canary import Canaries, contents, leaks

CANARIES = Canaries()
VALUE = CANARIES.value("recipient")

FORMS: dict[str, Callable[[str], str | bytes]] = {
    "as it is": str,
    "in capitals": str.upper,
    "cut": lambda value: value[:30],
    "repr": repr,
    "JSON": json.dumps,
    "JSON twice": lambda value: json.dumps(json.dumps({"a": value})),
    "escaped through": lambda value: "".join(f"\\u{ord(each):04x}" for each in value),
    "URL": quote,
    "form": quote_plus,
    "URL through": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    "hex": lambda value: value.encode().hex(),
    "backwards": lambda value: value[::-1],
    "msgpack": msgpack.encode,
    **{
        f"base64 at {before}": lambda value, before=before: base64.b64encode(
            b"x" * before + value.encode()
        )
        for before in range(4)
    },
    "URL's base64": lambda value: base64.urlsafe_b64encode(value.encode()).rstrip(b"="),
    "HTTP's basic": lambda value: base64.b64encode(f"user:{value}".encode()),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_is_found_in_every_form(form: Callable[[str], str | bytes]) -> None:
    planted = form(VALUE)
    around = b"before %s after" % planted if isinstance(planted, bytes) else f"before {planted}."

    assert CANARIES.found_in(planted)
    assert CANARIES.found_in(around)


def test_what_is_not_marked_is_not_found() -> None:
    others = Canaries()

    assert all(not others.found_in(form(VALUE)) for form in FORMS.values())


def test_a_leak_is_told_with_who_said_it_and_which_field_it_was() -> None:
    said = {"tasks": "all is well", "dispatch": f"sink raised ValueError('{VALUE}')"}

    assert list(leaks(CANARIES, said)) == ["dispatch"]
    assert "-recipient@" in leaks(CANARIES, said)["dispatch"][0]


def test_files_are_searched_but_those_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "store" / "receipts").mkdir(parents=True)
    for name in ("store/lanes.db", "store/receipts/1.log"):
        (tmp_path / name).write_text(VALUE)

    assert list(leaks(CANARIES, contents(tmp_path, ["*/*.db"]))) == ["store/receipts/1.log"]
