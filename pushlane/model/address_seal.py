"""Encrypts addresses at rest, with the keys of the setting `address_key`.

Fernet (AES-CBC with an HMAC) rather than AES-GCM: its texts say which of several keys they are of,
so keys can be changed while old texts are still read, and there is no nonce that could be used
twice. An address takes 80 bytes more, and a third of all for being text.
"""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from pushlane.core.errors import BadInput
from pushlane.util.texts import Secret

_HELP = (
    "give 32 random bytes in base64, as `openssl rand -base64 32` prints them; several with "
    "commas between, of which the first encrypts"
)


class AddressSeal:
    """Seals with the first of the keys, and opens with any. Raises BadInput when a key is none."""

    def __init__(self, keys: Secret) -> None:
        given = [key.strip() for key in keys.reveal().split(",")]
        try:
            self._fernet = MultiFernet([Fernet(key) for key in given])
        except ValueError as error:
            raise BadInput(f"setting address_key cannot be used: {_HELP}") from error

    def sealed(self, address: str) -> str:
        return self._fernet.encrypt(address.encode()).decode()

    def opened(self, sealed: str) -> str | None:
        """Return the address, or None when it was sealed with another key, or damaged."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except (InvalidToken, ValueError):  # the latter for what is no ASCII
            return None
