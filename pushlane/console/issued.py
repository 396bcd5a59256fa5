"""Login at an OpenID Connect issuer: the code flow, with PKCE (RFC 7636), state and nonce.

The session's token is the access token, where that is one for us, else the ID token: both are
checked as the HTTP API checks them, and the session ends when it does.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from urllib.parse import quote, urlencode

import msgspec

from pushlane.console.sessions import Underway
from pushlane.core.errors import Unreachable
from pushlane.door.issuer import Issuer, asked
from pushlane.settings import Settings
from pushlane.util.errors import Unauthorized
from pushlane.util.files import WatchedFile

Post = Callable[[str, Mapping[str, str], str], Awaitable[bytes]]
"""Posts a form to a URL, with a header Authorization unless it is empty, and returns the answer."""

_RANDOM_BYTES = 32
_LONGEST_NEXT = 1_000
_AGAIN = "log in once more"


class _Tokens(msgspec.Struct):
    id_token: str
    access_token: str = ""


class CodeFlow:
    """Logins of the console at one issuer."""

    def __init__(self, issuer: Issuer, settings: Settings, post: Post = asked) -> None:
        self._issuer = issuer
        self._audience = settings.oidc_audience
        self._client_id = settings.oidc_client_id
        self._scope = settings.oidc_scope
        self._post = post
        path = settings.oidc_client_secret_file
        self._secret = None if path is None else WatchedFile("oidc_client_secret_file", path)

    async def begin(self, back: str, then: str) -> tuple[str, Underway]:
        """Return where a browser logs in, and what it has to bring back.

        The issuer leads it to the URL `back`; `then` is where to go on. Raises Unreachable.
        """
        found = await self._issuer.discovered()
        if not (found.authorization_endpoint and found.token_endpoint):
            raise Unreachable(
                f"the issuer {found.issuer} has no authorization endpoint, so nobody can log in "
                "there"
            )
        then = then if len(then) <= _LONGEST_NEXT else ""
        state, nonce, verifier = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(3))
        login = Underway(state, nonce, verifier, then)
        challenge = urlsafe_b64encode(sha256(login.verifier.encode()).digest()).decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": back,
            "scope": self._scope,
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": challenge.rstrip("="),
            "code_challenge_method": "S256",
        }
        there = found.authorization_endpoint
        return f"{there}{'&' if '?' in there else '?'}{urlencode(query)}", login

    async def finish(self, login: Underway, back: str, brought: Mapping[str, str]) -> str:
        """Return the token of who has come back from the issuer, with these fields in the query.

        Raises Unauthorized for what is no end of this login, and Unreachable.
        """
        if not hmac.compare_digest(brought.get("state", "").encode(), login.state.encode()):
            raise Unauthorized(f"this answer belongs to another login: {_AGAIN}")
        if "code" not in brought:
            raise Unauthorized(
                f"the issuer says {brought.get('error', 'nothing')[:60]!r}: {_AGAIN}"
            )
        found = await self._issuer.discovered()
        if brought.get("iss", found.issuer) != found.issuer:  # RFC 9207
            raise Unauthorized(f"another issuer has answered: {_AGAIN}")
        tokens = await self._tokens(found.token_endpoint, login, back, brought["code"])
        claims = await self._issuer.claims(tokens.id_token, self._client_id)
        is_for_other = claims.get("azp", self._client_id) != self._client_id
        if is_for_other or not hmac.compare_digest(
            str(claims.get("nonce", "")).encode(), login.nonce.encode()
        ):
            raise Unauthorized(f"the issuer's token belongs to another login: {_AGAIN}")
        return await self._of(tokens, claims)

    async def _of(self, tokens: _Tokens, claims: Mapping[str, object]) -> str:
        try:
            access = await self._issuer.claims(tokens.access_token, self._audience)
        except Unauthorized:  # it may be of any form, and for others
            return tokens.id_token
        return tokens.access_token if access["sub"] == claims["sub"] else tokens.id_token

    async def _tokens(self, endpoint: str, login: Underway, back: str, code: str) -> _Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self._client_id,
            "code_verifier": login.verifier,
        }
        authorization = ""
        if self._secret is not None:
            pair = f"{quote(self._client_id, safe='')}:{quote(self._secret.text(), safe='')}"
            authorization = f"Basic {b64encode(pair.encode()).decode()}"
        try:
            return msgspec.json.decode(
                await self._post(endpoint, form, authorization), type=_Tokens
            )
        except msgspec.DecodeError as error:
            raise Unreachable("the issuer's tokens cannot be read") from error
