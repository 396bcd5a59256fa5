"""Checks tokens of an OpenID Connect issuer, and says what their bearers may do.

A token is a JWT that the issuer has signed with a key of its own (RFC 7519, RFC 8725): symmetric
algorithms and `none` are never taken. Keys are those that the issuer shows (OpenID Connect
Discovery 1.0); they are kept while it is away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import jwt
import msgspec

from pushlane.core.errors import Unreachable
from pushlane.model.access import LEAST_PER_S, MOST_PER_S, Access, Role, roles_of
from pushlane.settings import Settings
from pushlane.settings.transport import is_loopback
from pushlane.util.errors import Unauthorized

log = logging.getLogger("pushlane.serve")

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns what is at a URL. Raises Unreachable when nothing usable is."""

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
_REQUIRED = ("exp", "iss", "aud", "sub")
_LEEWAY_S = 30
_LONGEST = 8 * 1024
_FRESH_S = 3_600.0
_KEPT_S = 86_400.0
_AGAIN_S = 60.0
_WAIT_S = 5.0
_MOST_BYTES = 1024 * 1024
_REFUSED = "the issuer's token is not valid here: {why}"


class Discovery(msgspec.Struct):
    """The addresses that an issuer publishes of itself, with that of its login where it has one."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class Bearer(msgspec.Struct, frozen=True):
    """The holder of a valid token of the issuer: their name, their rights, and their pace.

    Whatever tokens they show, they may ask `requests_per_s` times a second; None is no bound.
    """

    name: str
    access: Access
    requests_per_s: float | None = None


class Issuer:
    """One issuer, whose keys are fetched when they are needed, and kept for an hour.

    A key that is not known has them fetched again, at most once a minute.
    """

    def __init__(
        self,
        settings: Settings,
        fetch: Fetch | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = settings.oidc_issuer.rstrip("/")
        self._audience = settings.oidc_audience
        self._roles = roles_of(settings.oidc_roles)
        self._role_claim = settings.oidc_role_claim
        self._apps_claim = settings.oidc_apps_claim
        self._requests_per_s = settings.oidc_requests_per_s
        self._pace_claim = settings.oidc_requests_claim
        self._fetch = fetch or _fetched
        self._clock_s = clock_s
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s = self._asked_s = -_KEPT_S
        self._asking = asyncio.Lock()

    async def bearer(self, text: str) -> Bearer:
        """Return who a token is of. Raises Unauthorized for one that is not valid, or gives no
        role, and Unreachable when the keys cannot be known.
        """
        claims = await self.claims(text, self._audience)
        return Bearer(str(claims["sub"])[:200], self._access(claims), self._pace(claims))

    async def discovered(self) -> Discovery:
        """Return what the issuer says of itself now. Raises Unreachable when it cannot be asked."""
        place = f"{self._issuer}/.well-known/openid-configuration"
        try:
            found = msgspec.json.decode(await self._fetch(place), type=Discovery)
        except (ValueError, msgspec.DecodeError) as error:
            raise Unreachable(f"{place} cannot be read: {error}") from error
        if found.issuer.rstrip("/") != self._issuer:
            raise Unreachable(
                f"the issuer {self._issuer} names itself {found.issuer[:200]}: set oidc_issuer "
                "to its own name"
            )
        return found

    async def claims(self, text: str, audience: str) -> Mapping[str, Any]:
        """Return what a token for this audience says. Raises Unauthorized for one that is not
        valid, and Unreachable when the keys cannot be known.
        """
        if len(text) > _LONGEST:
            raise _refusal(f"it has more than {_LONGEST:,} characters")
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise _refusal("it is not a JWT") from None
        if header.get("alg") not in _ALGORITHMS:
            raise _refusal(f"its algorithm is not one of {', '.join(_ALGORITHMS)}")
        key = await self._key(str(header.get("kid", "")))
        try:
            found: dict[str, Any] = jwt.decode(
                text,
                key,
                algorithms=[*_ALGORITHMS],
                audience=audience,
                issuer=[self._issuer, f"{self._issuer}/"],
                leeway=_LEEWAY_S,
                options={"require": [*_REQUIRED]},
            )
        except jwt.PyJWTError as error:
            raise _refusal(_why(error)) from None
        return found

    def _pace(self, claims: Mapping[str, Any]) -> float | None:
        """Return how often the bearer may ask a second: by their claim, else as all of them."""
        if not self._pace_claim:
            return self._requests_per_s
        found = _claim(claims, self._pace_claim)
        if found is None:
            return self._requests_per_s
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if not (is_number and LEAST_PER_S <= found <= MOST_PER_S):
            raise _refusal(
                f"its claim {self._pace_claim} is not a number from {LEAST_PER_S:g} to "
                f"{MOST_PER_S:g}"
            )
        return float(found)

    def _access(self, claims: Mapping[str, Any]) -> Access:
        """Return what claims allow: the highest role of those that they have."""
        given = [self._roles[one] for one in _texts(claims, self._role_claim) if one in self._roles]
        if not given:
            raise _refusal(f"its claim {self._role_claim} has none of the roles of oidc_roles")
        role = max(given, key=[*Role].index)
        if not self._apps_claim:
            return Access(role)
        return Access(role, frozenset(_texts(claims, self._apps_claim)))

    async def _key(self, kid: str) -> jwt.PyJWK:
        if (found := self._known(kid)) is not None:
            return found
        async with self._asking:
            if (found := self._known(kid)) is not None:
                return found
            if self._clock_s() - self._asked_s >= _AGAIN_S:
                self._asked_s = self._clock_s()
                await self._renew()
        if not self._keys:
            raise self._away()
        found = self._keys.get(kid)
        if found is None or self._clock_s() - self._fetched_s >= _KEPT_S:
            raise _refusal("the issuer has no key that matches its signature")
        return found

    def _known(self, kid: str) -> jwt.PyJWK | None:
        is_fresh = self._clock_s() - self._fetched_s < _FRESH_S
        return self._keys.get(kid) if is_fresh else None

    async def _renew(self) -> None:
        """Fetch the keys. Those that are known stay where that cannot be done."""
        try:
            found = await self.discovered()
            shown = jwt.PyJWKSet.from_json((await self._fetch(found.jwks_uri)).decode())
        except (Unreachable, ValueError, msgspec.DecodeError, jwt.PyJWTError) as error:
            told = "the keys of the issuer %s cannot be fetched: %s"
            log.warning(told, self._issuer, error, extra={"action": "issuer_away"})
            return
        self._keys = {str(key.key_id or ""): key for key in shown.keys}
        self._fetched_s = self._clock_s()

    def _away(self) -> Unreachable:
        return Unreachable(
            f"the keys of the issuer {self._issuer} cannot be fetched; try again later"
        )


def _refusal(why: str) -> Unauthorized:
    return Unauthorized(_REFUSED.format(why=why))


def _why(error: jwt.PyJWTError) -> str:
    """Say which check a token has not passed, and nothing that it holds."""
    for kind, why in (
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not valid yet"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.InvalidIssuerError, "it belongs to another issuer"),
        (jwt.MissingRequiredClaimError, f"it lacks one of {', '.join(_REQUIRED)}"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    ):
        if isinstance(error, kind):
            return why
    return "it cannot be verified"


def _texts(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts of a claim. One text may have several, by spaces."""
    found = _claim(claims, path)
    if isinstance(found, str):
        return found.split()
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return what a claim is, None where there is none; `a.b` is b within a."""
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


async def _fetched(url: str) -> bytes:
    """Return what is at a URL of the issuer."""
    return await asked(url)


async def asked(url: str, form: Mapping[str, str] | None = None, authorization: str = "") -> bytes:
    """Return what is at a URL of the issuer, or what it answers to a form.

    Raises Unreachable when nothing usable is.
    """
    from urllib.parse import urlsplit

    from pyreqwest.client import ClientBuilder
    from pyreqwest.exceptions import PyreqwestError

    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Unreachable(f"{url[:200]} is not https")
    try:
        building = ClientBuilder().follow_redirects(False).timeout(timedelta(seconds=_WAIT_S))
        async with building.error_for_status(True).build() as client:
            request = client.get(url) if form is None else client.post(url).form(dict(form))
            if authorization:
                request = request.header("Authorization", authorization)
            content = bytes(await (await request.build().send()).bytes())
    except PyreqwestError as error:
        raise Unreachable(f"{url[:200]} does not answer ({type(error).__name__})") from None
    if len(content) > _MOST_BYTES:
        raise Unreachable(f"{url[:200]} answers with more than {_MOST_BYTES:,} bytes")
    return content
