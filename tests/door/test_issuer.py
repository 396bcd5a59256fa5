"""Tokens of an issuer: what is not signed by it, for us and for now opens nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pushlane import BadInput, Settings
from pushlane.backends.backend import connect
from pushlane.core.errors import Unreachable
from pushlane.door.gate import Gate
from pushlane.door.issuer import Issuer
from pushlane.model.access import Role
from pushlane.settings import load
from pushlane.util.errors import TooMany, Unauthorized

URL = "https://id.example.com"
OPTIONS: dict[str, Any] = {
    "oidc_issuer": URL,
    "oidc_audience": "pushlane",
    "oidc_roles": "ops=operator, devs=viewer",
    "oidc_role_claim": "realm.roles",
    "oidc_apps_claim": "apps",
}
SETTINGS = Settings(**OPTIONS)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Signer:
    """An issuer of the test: its keys, and how often they were fetched."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"one": rsa.generate_private_key(65_537, 2_048)}
        self.fetched: list[str] = []
        self.is_away = False

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        if self.is_away:
            raise Unreachable("it is away")
        if url.endswith("/.well-known/openid-configuration"):
            return msgspec.json.encode({"issuer": URL, "jwks_uri": f"{URL}/keys"})
        shown = []
        for kid, key in self.keys.items():
            kind = jwt.algorithms.ECAlgorithm if is_ec(key) else jwt.algorithms.RSAAlgorithm
            found = msgspec.json.decode(kind.to_jwk(key.public_key()))
            shown.append({**found, "kid": kid, "alg": "ES256" if is_ec(key) else "RS256"})
        return msgspec.json.encode({"keys": shown})

    def token(self, kid: str = "one", algorithm: str = "RS256", **changes: Any) -> str:
        now = int(time.time())
        claims = {"iss": URL, "aud": "pushlane", "sub": "u-7", "exp": now + 300}
        claims |= {"realm": {"roles": ["ops", "other"]}, "apps": ["shop"]} | changes
        given = {name: one for name, one in claims.items() if one is not None}
        return jwt.encode(given, self.keys[kid], algorithm, headers={"kid": kid})


def is_ec(key: Any) -> bool:
    return isinstance(key, ec.EllipticCurvePrivateKey)


@pytest.fixture
def signer() -> Signer:
    return Signer()


async def test_a_token_gives_its_bearer_a_role_and_apps(signer: Signer) -> None:
    issuer = Issuer(SETTINGS, signer.fetch, Clock())

    found = await issuer.bearer(signer.token())
    lower = await issuer.bearer(signer.token(realm={"roles": "devs other"}, apps="shop news"))

    assert (found.name, found.access.role, found.access.apps) == ("u-7", Role.OPERATOR, {"shop"})
    assert (lower.access.role, lower.access.apps) == (Role.VIEWER, {"shop", "news"})
    assert len(signer.fetched) == 2  # the discovery, and the keys


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"exp": 1_000}, "it has expired"),
        ({"nbf": 4_000_000_000}, "it is not valid yet"),
        ({"aud": "shop"}, "it is for another audience"),
        ({"iss": "https://other.example.com"}, "it belongs to another issuer"),
        ({"sub": None}, "it lacks one of"),
        ({"exp": None}, "it lacks one of"),
        ({"realm": {"roles": ["other"]}}, "has none of the roles of oidc_roles"),
        ({"realm": None}, "has none of the roles of oidc_roles"),
    ],
)
async def test_what_is_not_for_us_and_now_is_refused(
    signer: Signer, changes: Any, told: str
) -> None:
    with pytest.raises(Unauthorized, match=told):
        await Issuer(SETTINGS, signer.fetch, Clock()).bearer(signer.token(**changes))


async def test_without_apps_it_sees_none(signer: Signer) -> None:
    found = await Issuer(SETTINGS, signer.fetch, Clock()).bearer(signer.token(apps=None))

    assert found.access.apps == frozenset()


async def test_no_other_way_of_signing_is_taken(signer: Signer) -> None:
    issuer = Issuer(SETTINGS, signer.fetch, Clock())
    claims = jwt.decode(signer.token(), options={"verify_signature": False})
    public = signer.keys["one"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    unsigned = jwt.encode(claims, None, "none", headers={"kid": "one"})  # type: ignore[arg-type]
    head, body, _ = signer.token().split(".")
    symmetric = jwt.api_jws.PyJWS()
    symmetric._algorithms["HS256"].prepare_key = lambda key: key  # type: ignore[method-assign]
    by_public_key = symmetric.encode(
        msgspec.json.encode(claims), pem, "HS256", headers={"kid": "one"}
    )
    other = Signer().token()

    for text in (unsigned, by_public_key):
        with pytest.raises(Unauthorized, match="its algorithm is not one of"):
            await issuer.bearer(text)
    for text in (f"{head}.{body}.AAAA", other):
        with pytest.raises(Unauthorized, match="its signature is wrong"):
            await issuer.bearer(text)
    for text, told in (("x" * 9_000, "more than 8,192"), ("a.b", "it is not a JWT")):
        with pytest.raises(Unauthorized, match=told):
            await issuer.bearer(text)


async def test_keys_are_changed_and_asked_for_once_a_minute(signer: Signer) -> None:
    issuer = Issuer(SETTINGS, signer.fetch, clock := Clock())
    await issuer.bearer(signer.token())
    signer.keys["two"] = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(Unauthorized, match="no key that matches its signature"):
        await issuer.bearer(signer.token("two", "ES256"))
    for _ in range(20):
        with pytest.raises(Unauthorized):
            await issuer.bearer(signer.token("two", "ES256"))

    assert len(signer.fetched) == 2
    clock.now_s += 60
    assert (await issuer.bearer(signer.token("two", "ES256"))).name == "u-7"
    assert len(signer.fetched) == 4


async def test_a_key_that_is_shown_no_more_is_over_within_an_hour(signer: Signer) -> None:
    issuer = Issuer(SETTINGS, signer.fetch, clock := Clock())
    old = signer.token(exp=int(time.time()) + 90_000)
    await issuer.bearer(old)
    signer.keys = {"two": ec.generate_private_key(ec.SECP256R1())}
    clock.now_s += 3_600

    with pytest.raises(Unauthorized, match="no key"):
        await issuer.bearer(old)


async def test_while_the_issuer_is_away_its_keys_are_kept_for_a_day(signer: Signer) -> None:
    issuer = Issuer(SETTINGS, signer.fetch, clock := Clock())
    await issuer.bearer(signer.token())
    signer.is_away = True
    clock.now_s += 7_200
    assert (await issuer.bearer(signer.token())).name == "u-7"
    clock.now_s += 86_400

    with pytest.raises(Unauthorized, match="no key"):
        await issuer.bearer(signer.token())


async def test_keys_that_were_never_there_are_told_as_that(signer: Signer) -> None:
    signer.is_away = True
    issuer = Issuer(SETTINGS, signer.fetch, clock := Clock())

    for _ in range(3):  # also while it is not asked again
        with pytest.raises(Unreachable, match=r"the keys of the issuer .* cannot be fetched"):
            await issuer.bearer(signer.token())
    assert len(signer.fetched) == 1
    signer.is_away = False
    clock.now_s += 60
    assert (await issuer.bearer(signer.token())).name == "u-7"


@asynccontextmanager
async def served(answers: Callable[[str], tuple[str, bytes]]) -> AsyncIterator[str]:
    """A server that answers a path with a status line's end, with headers, and a body."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, body = answers(head.split(" ")[1])
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_keys_are_fetched_over_http(signer: Signer) -> None:
    paths: list[str] = []
    keys = msgspec.json.decode(await signer.fetch("keys"))

    def answers(path: str) -> tuple[str, bytes]:
        paths.append(path)
        found = keys if path == "/keys" else {"issuer": url, "jwks_uri": f"{url}/keys"}
        return "200 OK", msgspec.json.encode(found)

    async with served(answers) as url:
        issuer = Issuer(SETTINGS.but(oidc_issuer=f"{url}/"))
        found = await issuer.bearer(signer.token(iss=url))

    assert found.name == "u-7"
    assert paths == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("302 Found\r\nlocation: /keys", b""),
        ("500 Oh", b"{}"),
        ("200 OK", b"x" * (1024 * 1024 + 1)),
        ("200 OK", b"no JSON"),
    ],
)
async def test_an_issuer_that_answers_something_else_has_no_keys(
    signer: Signer, status: str, body: bytes
) -> None:
    async with served(lambda path: (status, body)) as url:
        issuer = Issuer(SETTINGS.but(oidc_issuer=url))
        with pytest.raises(Unreachable, match="cannot be fetched"):
            await issuer.bearer(signer.token(iss=url))


async def test_keys_that_the_issuer_shows_in_the_clear_are_not_fetched(signer: Signer) -> None:
    def answers(path: str) -> tuple[str, bytes]:
        found = {"issuer": url, "jwks_uri": "http://id.example.com/keys"}
        return "200 OK", msgspec.json.encode(found)

    async with served(answers) as url:
        with pytest.raises(Unreachable, match="cannot be fetched"):
            await Issuer(SETTINGS.but(oidc_issuer=url)).bearer(signer.token(iss=url))


async def test_our_own_tokens_are_taken_beside(settings: Settings, signer: Signer) -> None:
    async with connect(settings) as backend:
        gate = Gate(backend.documents, Issuer(SETTINGS, signer.fetch, Clock()), clock_s=Clock())
        found = await gate.caller(f"Bearer {signer.token()}")
        with pytest.raises(Unauthorized, match="not known"):
            await gate.caller("Bearer pl_wrong")

        assert (found.name, found.face) == ("u-7 (oidc)", "http")


PACED = SETTINGS.but(oidc_requests_per_s=2.0, oidc_requests_claim="pace.push")


async def taken(gate: Gate, token: str) -> int:
    """How often a bearer is let in before they are told to wait."""
    for number in range(100):
        try:
            await gate.caller(f"Bearer {token}")
        except TooMany:
            return number
    return 100


async def test_a_bearer_has_a_pace_whatever_tokens_they_show(
    settings: Settings, signer: Signer
) -> None:
    async with connect(settings) as backend:
        gate = Gate(backend.documents, Issuer(PACED, signer.fetch, Clock()), clock_s=Clock())

        assert await taken(gate, signer.token()) == 2
        with pytest.raises(TooMany, match=r"u-7 \(oidc\) sends more than 2 requests a second"):
            await gate.caller(f"Bearer {signer.token(jti='another')}")
        assert await taken(gate, signer.token(sub="u-8")) == 2
        assert await taken(gate, signer.token(sub="robot", pace={"push": 7})) == 7


async def test_without_a_pace_a_bearer_asks_as_they_like(
    settings: Settings, signer: Signer
) -> None:
    async with connect(settings) as backend:
        gate = Gate(backend.documents, Issuer(SETTINGS, signer.fetch, Clock()), clock_s=Clock())

        assert await taken(gate, signer.token(pace={"push": 7})) == 100


@pytest.mark.parametrize("claim", [0, -1, True, "7", [7], 1e-9, 1e300, {"a": 1}])
async def test_a_pace_that_is_none_is_refused(signer: Signer, claim: Any) -> None:
    issuer = Issuer(PACED, signer.fetch, Clock())

    with pytest.raises(Unauthorized, match=r"its claim pace\.push is not a number from 0\.001"):
        await issuer.bearer(signer.token(pace={"push": claim}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"oidc_audience": ""}, "it needs oidc_audience"),
        ({"oidc_roles": ""}, "it needs oidc_roles"),
        ({"oidc_issuer": "http://id.example.com"}, "give its https:// URL"),
        ({"oidc_requests_per_s": 0.0}, "oidc_requests_per_s"),
        ({"oidc_issuer": ""}, "it does nothing without oidc_issuer"),
        ({"oidc_client_id": "c", "oidc_scope": "profile"}, "it needs openid"),
        ({"console_url": "ops.example.com"}, "give its URL as browsers see it"),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(
    own_environment: None, monkeypatch: pytest.MonkeyPatch, changes: Any, told: str, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=told):
        load(OPTIONS | changes)


def test_a_role_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(BadInput, match="oidc_roles has 'ops=root'"):
        Issuer(SETTINGS.but(oidc_roles="ops=root"))
