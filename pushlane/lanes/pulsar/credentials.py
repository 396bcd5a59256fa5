"""Who we are to Pulsar: nobody, the holder of a token or of a certificate, or an OAuth 2.0 client.

One object serves the data path and the admin REST. A token in a file is read again when the file
changes, so that a rotated one is used from the next connection on.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import msgspec

from pushlane.settings import Settings
from pushlane.util.files import WatchedFile

_A_MOMENT_S = 5.0  # clocks differ


class Claims(msgspec.Struct):
    """The parts of a JSON Web Token that are looked at; whether it is genuine only Pulsar knows."""

    sub: str = ""
    exp: float | None = None


class Credentials:
    """No token: Pulsar is told nothing, unless a certificate of ours says who we are.

    `name` says in errors what was shown to Pulsar.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name

    @property
    def has_token(self) -> bool:
        return False

    def token(self) -> str:
        """Return the token to show now. Never blocks or raises: other threads call this."""
        return ""

    async def fresh_token(self) -> str:
        """Return the token to show now, after a new one was fetched where that is needed."""
        return self.token()

    async def keep_fresh(self) -> None:
        """Renew the token before it expires, for ever; return at once when there is no need."""

    def role(self) -> str:
        """Return the role that the token names; '' when it names none."""
        return claims_of(self.token()).sub

    def has_expired(self) -> bool:
        """Return whether the token says that its time is over."""
        expires_s = claims_of(self.token()).exp
        return expires_s is not None and expires_s < time.time() + _A_MOMENT_S

    def problem(self) -> str:
        """Return the probable reason why Pulsar does not accept this, and what to do."""
        if self.name:
            return f"it does not know the role of {self.name}: ask its administrator"
        return (
            "it asks who we are, and nothing is set to say so: set pulsar_token_file, "
            "pulsar_cert_file with pulsar_key_file, or pulsar_oauth2_issuer_url"
        )


class TokenCredentials(Credentials):
    """A token that somebody gave us; `name` is the setting, with the file if it is in one."""

    def __init__(self, name: str, read: Callable[[], str]) -> None:
        super().__init__(name)
        self._read = read

    @property
    def has_token(self) -> bool:
        return True

    def token(self) -> str:
        return self._read()

    def problem(self) -> str:
        if self.has_expired():
            expires_s = claims_of(self.token()).exp
            at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(expires_s))
            return f"the token of {self.name} has expired at {at}: put a new one there"
        return (
            f"the token of {self.name} is not accepted: put one there that this cluster's "
            "administrator has signed with its present key"
        )


def token_credentials(settings: Settings) -> Credentials:
    """Return the credentials that the settings name, but for OAuth 2.0.

    Raises:
        BadInput: the file of the token cannot be read.
    """
    if settings.pulsar_token is not None:
        return TokenCredentials("pulsar_token", settings.pulsar_token.reveal)
    if settings.pulsar_token_file is not None:
        file = WatchedFile("pulsar_token_file", settings.pulsar_token_file)
        file.text()
        return TokenCredentials(f"pulsar_token_file {file.path}", file.last_text)
    if settings.pulsar_cert_file is not None:
        return Credentials(f"pulsar_cert_file {settings.pulsar_cert_file}")
    return Credentials()


def claims_of(token: str) -> Claims:
    """Read what a token says of itself; nothing when it is no JSON Web Token."""
    try:
        body = token.split(".")[1]
        content = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        return msgspec.json.decode(content, type=Claims)
    except (IndexError, ValueError):  # msgspec's own are of these
        return Claims()
