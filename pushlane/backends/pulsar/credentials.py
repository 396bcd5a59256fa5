"""Who we are to Pulsar: nobody, the holder of a token or of a certificate, or an OAuth 2.0 client.

One object serves the data path and the admin REST. A token in a file is read again when the file
changes, so that a rotated one is used from the next connection on.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.settings import Settings
from pushlane.settings.transport import tls_files
from pushlane.util.errors import Denied
from pushlane.util.files import Stamp, WatchedFile, stamp_of
from pushlane.util.texts import shown_url
from pushlane.util.tls import url_tls_problem

_A_MOMENT_S = 5.0  # clocks differ


class Claims(msgspec.Struct):
    """The parts of a JSON Web Token that are looked at; whether it is genuine only Pulsar knows."""

    sub: str = ""
    exp: float | None = None


class Credentials:
    """No token: Pulsar is told nothing, unless a certificate of ours says who we are.

    `name` says in errors what was shown to Pulsar.
    """

    has_token = False

    def __init__(self, name: str = "") -> None:
        self.name = name

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
            "it asks for credentials, and none are set: set pulsar_token_file, "
            "pulsar_cert_file with pulsar_key_file, or pulsar_oauth2_issuer_url"
        )


class TokenCredentials(Credentials):
    """A token that somebody gave us; `name` is the setting, with the file if it is in one."""

    has_token = True

    def __init__(self, name: str, read: Callable[[], str]) -> None:
        super().__init__(name)
        self._read = read

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


def claims_of(token: str) -> Claims:
    """Read what a token says of itself; nothing when it is no JSON Web Token."""
    try:
        body = token.split(".")[1]
        content = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        return msgspec.json.decode(content, type=Claims)
    except (IndexError, ValueError):  # msgspec's own are of these
        return Claims()


log = logging.getLogger("pushlane.lanes")

_TIMEOUT_S = 10
_KEPT_SHARE = 0.8  # of a token's life; then a new one is fetched
_AGAIN_S = 5.0
_UNTOLD_LIFE_S = 300.0  # of a token that does not say how long it is good

T = TypeVar("T")


class _ClientFile(msgspec.Struct):
    client_id: str
    client_secret: str


class _Discovered(msgspec.Struct):
    token_endpoint: str


class _Issued(msgspec.Struct):
    access_token: str
    expires_in: float = _UNTOLD_LIFE_S


class _Refused(msgspec.Struct):
    error: str = ""


class OAuth2Credentials(TokenCredentials):
    """Tokens of OAuth 2.0 client credentials (RFC 6749, section 4.4).

    One is fetched at first use, and anew before it expires or when the file has changed.
    pulsar-client has an implementation of its own, which the admin REST could not use, which says
    nothing of what went wrong, and which reads the file of the client only once.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.pulsar_oauth2_issuer_url
        assert settings.pulsar_oauth2_key_file
        self._issuer = settings.pulsar_oauth2_issuer_url.rstrip("/")
        super().__init__(f"pulsar_oauth2_issuer_url {shown_url(self._issuer)}", lambda: self._token)
        self._file = WatchedFile("pulsar_oauth2_key_file", settings.pulsar_oauth2_key_file)
        audience, scope = settings.pulsar_oauth2_audience, settings.pulsar_oauth2_scope
        self._asked = {"audience": audience, "scope": scope}
        self._tls = tls_files(settings, "pulsar")
        self._token = ""
        self._of: Stamp | None = None
        self._renew_at_s = self._expires_at_s = 0.0
        self._fetching = asyncio.Lock()

    async def fresh_token(self) -> str:
        """See `Credentials`. Nobody with a good token waits for an issuer that is asked already."""
        if self._fetching.locked() and time.monotonic() < self._expires_at_s:
            return self._token
        async with self._fetching:
            if time.monotonic() >= self._renew_at_s or stamp_of(self._file.path) != self._of:
                await self._renew()
        return self._token

    async def keep_fresh(self) -> None:
        """Renew the token in time, for as long as this runs; say so when that fails."""
        while True:
            await asyncio.sleep(max(_AGAIN_S, self._renew_at_s - time.monotonic()))
            with suppress(PushlaneError):  # who needs a token says so
                await self.fresh_token()

    async def _renew(self) -> None:
        """Fetch a new token. One that is still good is kept when that fails."""
        try:
            await self._fetch()
        except PushlaneError as error:
            now_s = time.monotonic()
            if now_s >= self._expires_at_s and self._token and isinstance(error, BadInput):
                raise Denied(str(error)) from error  # it was good once: who runs waits for it
            if now_s >= self._expires_at_s:
                raise
            self._renew_at_s = now_s + _AGAIN_S
            log.warning("%s", error, extra={"action": "token_not_renewed"})

    async def _fetch(self) -> None:
        self._of = stamp_of(self._file.path)
        form = {"grant_type": "client_credentials", **msgspec.to_builtins(self._client())}
        form |= {name: value for name, value in self._asked.items() if value}
        builder = ClientBuilder().timeout(timedelta(seconds=_TIMEOUT_S)).follow_redirects(False)
        if pem := self._tls.check_ca():
            builder = builder.add_root_certificate_pem(pem)
        async with builder.build() as client:
            found = f"{self._issuer}/.well-known/openid-configuration"
            endpoint = (await self._ask(client, found, None, _Discovered)).token_endpoint
            self._check_endpoint(endpoint)
            issued = await self._ask(client, endpoint, form, _Issued)
        self._token = issued.access_token
        now_s = time.monotonic()
        self._renew_at_s = now_s + _KEPT_SHARE * issued.expires_in
        self._expires_at_s = now_s + issued.expires_in

    def _check_endpoint(self, endpoint: str) -> None:
        """Refuse to send the client's secret over http when the issuer is at https."""
        if urlsplit(endpoint).scheme != urlsplit(self._issuer).scheme:
            raise Unreachable(
                f"the OAuth 2.0 issuer at {shown_url(self._issuer)} leads to "
                f"{shown_url(endpoint)}, which has another scheme: no secret is sent there; "
                "check pulsar_oauth2_issuer_url"
            )

    def _client(self) -> _ClientFile:
        try:
            return msgspec.json.decode(self._file.text(), type=_ClientFile)
        except ValueError as error:
            raise BadInput(
                f"pulsar_oauth2_key_file {self._file.path} is not the JSON of a client: give an "
                "object with client_id and client_secret"
            ) from error

    async def _ask(
        self, client: Client, url: str, form: Mapping[str, str] | None, shape: type[T]
    ) -> T:
        """Get a JSON object, or post a form and get one."""
        request = client.get(url) if form is None else client.post(url).form(dict(form))
        try:
            response = await request.build().send()
            status, content = response.status, bytes(await response.bytes())
        except (ValueError, PyreqwestError) as error:
            advice = await url_tls_problem(url, self._tls)
            raise Unreachable(
                f"the OAuth 2.0 issuer at {shown_url(url)} did not answer "
                f"({type(error).__name__}): "
                f"{advice or 'check pulsar_oauth2_issuer_url, and that it runs'}"
            ) from error
        if status >= 300:
            raise self._refused(status, content, url)
        try:
            return msgspec.json.decode(content, type=shape, strict=False)  # some tell "3600"
        except ValueError as error:
            raise Unreachable(
                f"the OAuth 2.0 issuer gave an unexpected answer at {shown_url(url)}: check "
                "pulsar_oauth2_issuer_url"
            ) from error

    def _refused(self, status: int, content: bytes, url: str) -> Denied:
        reason = ""
        with suppress(ValueError):
            reason = msgspec.json.decode(content, type=_Refused).error
        shown = f", {reason[:60]}" if reason else ""
        return Denied(
            f"the OAuth 2.0 issuer at {shown_url(url)} gives no token (status {status}{shown}): "
            f"check the client in pulsar_oauth2_key_file {self._file.path}, and "
            "pulsar_oauth2_audience and pulsar_oauth2_scope"
        )


def credentials_of(settings: Settings) -> Credentials:
    """Return the credentials that the settings name.

    Raises:
        BadInput: a file of theirs cannot be read.
    """
    if settings.pulsar_oauth2_issuer_url:
        return OAuth2Credentials(settings)
    if settings.pulsar_token is not None:
        return TokenCredentials("pulsar_token", settings.pulsar_token.reveal)
    if settings.pulsar_token_file is not None:
        file = WatchedFile("pulsar_token_file", settings.pulsar_token_file)
        file.text()
        return TokenCredentials(f"pulsar_token_file {file.path}", file.last_text)
    if settings.pulsar_cert_file is not None:
        return Credentials(f"pulsar_cert_file {settings.pulsar_cert_file}")
    return Credentials()
