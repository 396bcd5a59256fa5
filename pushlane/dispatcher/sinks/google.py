"""Google credentials, and the access token that they give: renewed before it expires.

No message shows what the JSON of credentials holds. A renewal runs in a thread, and only one at a
time. While the present token is good no push waits for it, and one that fails is only a warning.
Without a token it says what becomes of a push.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from typing import Any

import msgspec
from google.auth import aws, identity_pool
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport import Request, Response
from google.oauth2 import service_account
from pyreqwest.client import SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError

from pushlane.core.errors import BadInput
from pushlane.core.push import Outcome
from pushlane.dispatcher.sinks.http_client import NO_JSON, clock_note, clock_off_s
from pushlane.util.texts import require_http_url

_NEW_KEY = (
    "create a key in the Firebase console (project settings, service accounts) and name its file "
    "as credentials_file"
)
_NEEDED = ("client_email", "private_key", "token_uri")
_UNUSABLE = (GoogleAuthError, ValueError, KeyError, TypeError, AttributeError)


def read_credentials(text: str, scope: str) -> tuple[Credentials, str]:
    """Return the credentials for a scope, and the project that they are of, empty if not said.

    Raises BadInput when they are no service account's key nor a workload identity's configuration.
    """
    info = _read_object(text)
    match info.get("type"):
        case "service_account":
            return _service_account(info, scope), str(info.get("project_id") or "")
        case "external_account":
            return _external_account(info, scope), ""
    if "project_info" in info:
        raise BadInput(f"credentials are an app's google-services.json, not a key; {_NEW_KEY}")
    raise BadInput(
        f'credentials are not of the type "service_account" or "external_account"; {_NEW_KEY}'
    )


def _read_object(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except NO_JSON:
        if text.strip().endswith(".json"):
            told = "credentials are the name of a file; give it as credentials_file"
        else:
            told = f"credentials are not a JSON object; {_NEW_KEY}"
        raise BadInput(told) from None  # the error may quote them


def _service_account(info: Mapping[str, Any], scope: str) -> Credentials:
    for name in _NEEDED:
        if not isinstance(info.get(name), str) or not info[name]:
            raise BadInput(f"credentials of a service account have no {name}; {_NEW_KEY}")
    require_http_url(info["token_uri"], f"token_uri of the credentials is not a URL; {_NEW_KEY}")
    kind: Any = service_account.Credentials
    try:
        credentials: Credentials = kind.from_service_account_info(info, scopes=[scope])
    except _UNUSABLE:
        raise BadInput(
            "private_key of the credentials is not an RSA key in PEM (are its line breaks, written "
            f"\\n, still there?); {_NEW_KEY}"
        ) from None  # the error may quote it
    return credentials


def _external_account(info: Mapping[str, Any], scope: str) -> Credentials:
    """Return the credentials of a workload, by a token of its own platform."""
    source = info.get("credential_source")
    is_aws = isinstance(source, Mapping) and "environment_id" in source
    kind: Any = aws.Credentials if is_aws else identity_pool.Credentials
    try:
        credentials: Credentials = kind.from_info(info, scopes=[scope])
    except _UNUSABLE:
        raise BadInput(
            "credentials of an external account are not as `gcloud iam workload-identity-pools "
            "create-cred-config` writes them; create them anew"
        ) from None
    return credentials


log = logging.getLogger("pushlane.sinks")

RENEW_AHEAD_S = 300.0
TRY_AGAIN_S = 10.0
_TIMEOUT_S = 10.0
_LIFETIME_S = 3600.0  # where the server does not say

# google-auth raises all of these over an answer or a file that it cannot read.
_NO_TOKEN = (GoogleAuthError, OSError, ValueError, TypeError, KeyError, AttributeError)
_OF_OAUTH = frozenset({"access_denied", "invalid_client", "invalid_grant", "invalid_request"})
_OF_CLIENTS = frozenset({"deleted_client", "disabled_client", "unauthorized_client"})
_OF_ACCESS = frozenset({"admin_policy_enforced", "invalid_scope", "invalid_target", "org_internal"})
_CODES = _OF_OAUTH | _OF_CLIENTS | _OF_ACCESS
_MEANINGS = (
    ("signature", "their key was deleted or disabled; create a new one"),
    ("account not found", "their service account was deleted; create a new one"),
    ("disabled", "they are disabled; enable them or create new ones"),
    ("reasonable timeframe", "set our clock by NTP"),
)
"""Parts of what Google says of an invalid_grant, and what each means."""


class AccessToken:
    """Keeps the value of the header `Authorization` that is good now."""

    def __init__(self, credentials: Credentials, now: Callable[[], float] = time.time) -> None:
        self._credentials = credentials
        self._now = now
        self._server = _TokenServer()
        self._header = ""
        self._renew_at_s = self._expires_at_s = 0.0
        self._renewal: asyncio.Task[Outcome | None] | None = None

    def present(self) -> str:
        """Return the header, empty when there is none; begin a renewal where it is due."""
        now_s = self._now()
        if now_s < self._renew_at_s:
            return self._header
        if now_s >= self._expires_at_s:
            return ""
        self._begun()
        return self._header

    async def fresh(self, instead_of: str = "") -> str | Outcome:
        """Return another header than one that was refused, or what becomes of a push without."""
        if instead_of and self._header != instead_of and (header := self.present()):
            return header
        failure = await asyncio.shield(self._begun())
        return failure or self._header

    async def close(self) -> None:
        if self._renewal is not None:
            await asyncio.wait([self._renewal])
        self._server.close()

    def _begun(self) -> asyncio.Task[Outcome | None]:
        """Return the renewal that is under way, a new one if there is none."""
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
        return self._renewal

    async def _renew(self) -> Outcome | None:
        """Get a new token; return what became of the pushes that wait for it if that fails."""
        try:
            await asyncio.to_thread(self._credentials.refresh, self._server)
        except TransportError:
            return self._failed(Outcome.throttled("no access token: Google's server is not there"))
        except _NO_TOKEN:  # its text may quote the answer
            return self._failed(Outcome.refused(self._server.refusal(self._now())))
        finally:
            self._renewal = None
        self._header = f"Bearer {self._credentials.token}"
        expiry = self._credentials.expiry
        now_s = self._now()
        self._expires_at_s = (
            expiry.replace(tzinfo=UTC).timestamp() if expiry else now_s + _LIFETIME_S
        )
        ahead_s = min(RENEW_AHEAD_S, (self._expires_at_s - now_s) / 2)
        self._renew_at_s = self._expires_at_s - ahead_s
        return None

    def _failed(self, outcome: Outcome) -> Outcome:
        left_s = self._expires_at_s - self._now()
        if left_s > 0:
            self._renew_at_s = self._now() + min(TRY_AGAIN_S, left_s)
            told = "cannot renew the access token, the present one is good for %d s: %s"
            log.warning(told, left_s, outcome.reason, extra={"action": "token_not_renewed"})
        return outcome


class _TokenError(msgspec.Struct, frozen=True):
    """The error of a token server (RFC 6749, 5.2)."""

    error: str = ""
    error_description: str = ""


class _TokenAnswer(Response):
    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self._parts = status, headers, data

    @property
    def status(self) -> int:
        return self._parts[0]

    @property
    def headers(self) -> Mapping[str, str]:
        return self._parts[1]

    @property
    def data(self) -> bytes:
        return self._parts[2]


class _TokenServer(Request):
    """Asks for tokens. It keeps the last answer, which says why there was none."""

    def __init__(self) -> None:
        builder = SyncClientBuilder().user_agent("pushlane").timeout(timedelta(seconds=_TIMEOUT_S))
        self._client = builder.follow_redirects(False).build()
        self._last: _TokenAnswer | None = None

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> _TokenAnswer:
        """Ask once. A server that is busy counts as not there, as the caller would sleep on it."""
        self._last = None
        request = self._client.request(method, url).headers(dict(headers or {}))
        if body is not None:
            request = request.body_bytes(body.encode() if isinstance(body, str) else body)
        try:
            response = request.build().send()
            data = bytes(response.bytes())
        except PyreqwestError:
            raise _not_there() from None  # the error may have the URL
        if response.status >= 500 or response.status in (408, 429):
            raise _not_there()
        self._last = _TokenAnswer(response.status, dict(response.headers), data)
        return self._last

    def refusal(self, now_s: float) -> str:
        """Return why there is no token, in words of ours alone."""
        last = self._last
        if last is None or last.status == 200:
            return (
                "no access token: the credentials give none; check what they name as their source"
            )
        try:
            said = msgspec.json.decode(last.data, type=_TokenError)
        except NO_JSON:
            said = _TokenError()
        code = said.error if said.error in _CODES else f"HTTP {last.status}"
        description = said.error_description.lower()
        why = next((means for part, means in _MEANINGS if part in description), "check them")
        off = clock_note(clock_off_s(last.headers.get("date"), now_s), "theirs")
        return f"Google refuses the credentials ({code}): {why}{off and f'; {off}'}"

    def close(self) -> None:
        self._client.close()


def _not_there() -> TransportError:
    return TransportError()  # type: ignore[no-untyped-call]
