"""Addresses encrypted at rest."""

from __future__ import annotations

import base64

import pytest

from pushlane.model.address_seal import AddressSeal
from pushlane.util.texts import Secret

SEAL = AddressSeal(Secret(base64.b64encode(b"\xff" * 32).decode()))  # has a slash, as openssl's may


def test_an_address_is_opened_as_it_was() -> None:
    assert SEAL.opened(SEAL.sealed('{"endpoint": "https://é.example/"}')) == (
        '{"endpoint": "https://é.example/"}'
    )


@pytest.mark.parametrize("damaged", ["", "gAAAA", "gAAAé", "\x00"])
def test_what_is_damaged_is_not_opened(damaged: str) -> None:
    assert SEAL.opened(damaged) is None
