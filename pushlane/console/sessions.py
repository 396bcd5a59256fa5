"""Sessions of people in a browser: a token, sealed in a cookie that no script reads.

Nothing is kept here, so every process of `serve` that has the same key takes a session, and a
session ends with its token. What is sealed says what it is for: one cannot stand for another.
"""

from __future__ import annotations

import binascii
import hmac
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from pushlane.core.errors import BadInput

SESSION_S = 12 * 3600
"""A session ends so long after its login, if its token has not ended before."""

KEPT_S = 3600
"""So long what was typed into a form waits for a login."""

LOGIN_S = 600
"""A login at an issuer may take so long."""

_KEY_BYTES = 32
_ID_BYTES = 16
_MOST_COOKIE = 3_800
"""Browsers keep cookies of up to 4,096 bytes, name and attributes included."""
_MOST_TOKEN = 16 * 1024


T = TypeVar("T")


class Login(NamedTuple):
    """A session as its cookie has it: the token that was shown, and an id of its own."""

    token: str
    id: str

    @property
    def authorization(self) -> str:
        """The header with which the HTTP API is asked."""
        return f"Bearer {self.token}"


def new_login(token: str) -> Login:
    """Return a session that begins now."""
    return Login(token, secrets.token_hex(_ID_BYTES))


class Underway(NamedTuple):
    """A login at an issuer that was begun: what has to come back, and where to go on then."""

    state: str
    nonce: str
    verifier: str
    next: str


class Kept(NamedTuple):
    """A form that was sent without a session: where to, and what was typed into it."""

    path: str
    fields: list[tuple[str, str]]


class Sessions:
    """Seals and opens with the first key, and opens with the others too."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._sessions = _sealer(keys, b"session")
        self._forms = _sealer(keys, b"form")
        self._logins = _sealer(keys, b"login")
        self._key = keys[0]
        self._others = keys[1:]

    def cookie(self, login: Login) -> str:
        """Return the cookie of a session. Raises BadInput for a token that is too long."""
        if len(login.token) <= _MOST_TOKEN:
            sealed = self._sessions.encrypt(msgspec.json.encode(login)).decode()
            if len(sealed) <= _MOST_COOKIE:
                return sealed
        raise BadInput("this token is too long for a cookie; use one made by `pushlane access`")

    def login(self, cookie: str) -> Login | None:
        """Return the session of a cookie, None when it is none, or over."""
        return _opened(self._sessions, cookie, SESSION_S, Login)

    def form_token(self, login: Login) -> str:
        """Return what a form of this session has to show."""
        return _of_session(self._key, b"form token", login)

    def fits(self, login: Login, shown: str) -> bool:
        """Tell whether a form has shown what it has to."""
        given = shown.encode()
        return any(
            hmac.compare_digest(_of_session(key, b"form token", login).encode(), given)
            for key in (self._key, *self._others)
        )

    def nonce(self, login: Login) -> str:
        """Return the word by which htmx tells our elements from those that somebody slips in."""
        return _of_session(self._key, b"nonce", login)

    def underway(self, login: Underway) -> str:
        """Return the cookie of a login at an issuer."""
        return self._logins.encrypt(msgspec.json.encode(login)).decode()

    def begun(self, cookie: str) -> Underway | None:
        """Return the login of a cookie, None when it is none, or was begun too long ago."""
        return _opened(self._logins, cookie, LOGIN_S, Underway)

    def sealed(self, kept: Kept) -> str:
        """Return a form as a text for the login page."""
        return self._forms.encrypt(msgspec.json.encode(kept)).decode()

    def kept(self, sealed: str) -> Kept | None:
        """Return the form again, None when it is none, or too old."""
        return _opened(self._forms, sealed, KEPT_S, Kept)


def sessions(key_file: Path | None) -> Sessions:
    """Return what seals with the keys of a file, or with one that ends with this process.

    Raises BadInput for a file that cannot be read or has no key.
    """
    if key_file is None:
        return Sessions([secrets.token_bytes(_KEY_BYTES)])
    try:
        lines = key_file.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"session_key_file {key_file} cannot be read: {error}") from error
    keys = [key for line in lines if (key := _read(line)) is not None]
    if not keys or len(keys) != len(lines):
        raise BadInput(
            f"session_key_file {key_file} must hold {_KEY_BYTES} random bytes in base64, as "
            "`openssl rand -base64 32` prints them; put each older key on a line after it"
        )
    return Sessions(keys)


def _read(line: str) -> bytes | None:
    try:
        key = b64decode(line.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _sealer(keys: Sequence[bytes], what_for: bytes) -> MultiFernet:
    derived = (hmac.digest(key, what_for, sha256) for key in keys)
    return MultiFernet([Fernet(urlsafe_b64encode(key)) for key in derived])


def _opened(sealer: MultiFernet, sealed: str, at_most_s: int, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(sealer.decrypt(sealed, at_most_s), type=kind)
    except (InvalidToken, msgspec.DecodeError, ValueError):
        return None


def _of_session(key: bytes, what_for: bytes, login: Login) -> str:
    derived = hmac.digest(key, what_for + b" " + login.id.encode(), sha256)
    return urlsafe_b64encode(derived[:24]).decode()
