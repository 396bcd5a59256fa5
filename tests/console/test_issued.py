"""Login at an issuer: only who began it ends it, and the session is that of the token."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from pushlane import Settings
from pushlane.core.errors import Unreachable
from tests.console.browsing import Browser, browsing, form_of, led_to
from tests.door.asking import Answer
from tests.door.test_issuer import OPTIONS, URL, Signer

CLIENT = "console of pushlane"
SECRET = "s3:cret/"


class LoginPage(Signer):
    """An issuer at which somebody has just logged in: it gives one code, for one verifier."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, str] = {}
        self.changes: dict[str, Any] = {}
        self.access: str | None = None
        self.authorization = ""

    async def fetch(self, url: str) -> bytes:
        found = await super().fetch(url)
        if not url.endswith("/openid-configuration"):
            return found
        places = {"authorization_endpoint": f"{URL}/login?a=b", "token_endpoint": f"{URL}/tokens"}
        return msgspec.json.encode({**msgspec.json.decode(found), **places})

    async def post(self, url: str, form: Mapping[str, str], authorization: str) -> bytes:
        assert url == f"{URL}/tokens"
        self.authorization = authorization
        digest = sha256(form["code_verifier"].encode()).digest()
        is_right = (
            form["grant_type"] == "authorization_code"
            and form["code"] == "the-code"
            and form["redirect_uri"] == self.asked["redirect_uri"]
            and urlsafe_b64encode(digest).decode().rstrip("=") == self.asked["code_challenge"]
        )
        if not is_right:
            raise Unreachable("400")
        claims = {"aud": CLIENT, "nonce": self.asked["nonce"], **self.changes}
        tokens = {"id_token": self.token(**claims), "access_token": self.access or "opaque"}
        return msgspec.json.encode(tokens)


@pytest.fixture
def provider() -> LoginPage:
    return LoginPage()


@pytest.fixture
def issued(settings: Settings, tmp_path: Path) -> Settings:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    more = {"oidc_client_id": CLIENT, "oidc_client_secret_file": secret, "oidc_audience": CLIENT}
    return settings.but(**{**OPTIONS, **more})


async def led(browser: Browser, provider: LoginPage, path: str = "next=audit") -> str:
    """Go to the issuer; return what it sends back."""
    sent = await browser.get(f"/console/oidc/login?{path}")
    there = urlsplit(sent.headers["location"])
    assert f"{there.scheme}://{there.netloc}{there.path}" == f"{URL}/login"
    provider.asked = {name: one[0] for name, one in parse_qs(there.query).items()}
    return urlencode({"code": "the-code", "state": provider.asked["state"], "iss": URL})


async def back(browser: Browser, query: str) -> Answer:
    return await browser.get(f"/console/oidc/done?{query}")


async def test_who_logs_in_at_the_issuer_has_a_session(
    issued: Settings, provider: LoginPage
) -> None:
    async with browsing(issued, provider=provider) as browser:
        login = (await browser.get("/console/login?next=audit")).body.decode()
        query = await led(browser, provider)
        came = await back(browser, query)
        shown = await browser.get("/console/audit")

    assert 'href="./oidc/login?next=audit"' in login
    assert led_to(came, "/console/oidc/done") == "/console/audit"
    assert shown.status == 200
    assert b"u-7 (oidc)" in shown.body
    assert provider.asked["redirect_uri"] == "http://push.test/console/oidc/done"
    assert (provider.asked["scope"], provider.asked["a"]) == ("openid", "b")
    assert provider.asked["code_challenge_method"] == "S256"
    assert b64decode(provider.authorization.removeprefix("Basic ")) == (
        b"console%20of%20pushlane:s3%3Acret%2F"
    )


async def test_over_tls_the_cookies_of_a_login_are_of_this_host_alone(
    issued: Settings, provider: LoginPage
) -> None:
    async with browsing(issued, provider=provider) as browser:
        browser.scheme = "https"
        query = await led(browser, provider)
        begun, under_way = browser.set_cookie, {*browser.cookies}
        await back(browser, query)

    assert under_way == {"__Host-pushlane-login"}
    assert "__Host-pushlane" in browser.cookies
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Secure"} <= {*begun.split("; ")}
    assert "Domain" not in begun


async def test_an_access_token_for_us_is_the_session(issued: Settings, provider: LoginPage) -> None:
    ours = issued.but(oidc_audience="pushlane")
    async with browsing(ours, provider=provider) as browser:
        query = await led(browser, provider)
        refused = await back(browser, query)  # an ID token alone is not for the API
        query = await led(browser, provider)
        provider.access = provider.token(realm={"roles": ["devs"]})
        await back(browser, query)
        shown = await browser.get("/console/processes")
        query = await led(browser, provider)
        provider.access = provider.token(sub="somebody-else")
        other = await back(browser, query)

    assert (refused.status, other.status) == (401, 401)
    assert b"u-7 (oidc) \xc2\xb7 viewer" in shown.body


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"azp": "another"},
        {"exp": 1_000},
        {"iss": "https://other.example.com"},
        {"realm": None},
    ],
)
async def test_a_token_of_another_login_begins_no_session(
    issued: Settings, provider: LoginPage, changes: dict[str, Any]
) -> None:
    async with browsing(issued, provider=provider) as browser:
        query = await led(browser, provider)
        provider.changes = changes
        refused = await back(browser, query)

    assert refused.status == 401
    assert browser.cookies == {}


async def test_only_the_browser_that_began_a_login_ends_it(
    issued: Settings, provider: LoginPage
) -> None:
    async with browsing(issued, provider=provider) as browser:
        query = await led(browser, provider)
        other = browser.other()
        nothing_begun = await back(other, query)
        await led(other, provider)
        other_state = await back(other, query)
        query = await led(browser, provider)
        another_issuer = await back(
            browser, f"{query}&iss=https://evil.test".replace(urlencode({"iss": URL}), "x=y")
        )
        query = await led(browser, provider)
        no_code = await back(browser, query.replace("code=the-code", "error=%3Cb%3E"))

    for refused in (nothing_begun, other_state, another_issuer, no_code):
        assert refused.status == 401
        assert b"<b>" not in refused.body
    assert browser.cookies == other.cookies == {}


async def test_an_issuer_that_is_away_is_told(issued: Settings, provider: LoginPage) -> None:
    async with browsing(issued, provider=provider) as browser:
        query = await led(browser, provider)
        wrong = await back(browser, query.replace("the-code", "another"))
        provider.is_away = True
        away = await browser.get("/console/oidc/login")

    assert (wrong.status, away.status) == (503, 503)


async def test_the_issuer_leads_back_to_the_url_that_browsers_see(
    issued: Settings, provider: LoginPage
) -> None:
    seen = issued.but(console_url="https://ops.test/push/console/")
    async with browsing(seen, provider=provider) as browser:
        query = await led(browser, provider, "next=//evil.test/")
        came = await back(browser, query)

    assert provider.asked["redirect_uri"] == "https://ops.test/push/console/oidc/done"
    assert led_to(came, "https://ops.test/push/console/oidc/done") == (
        "https://ops.test/push/console/evil.test/"
    )


async def test_what_was_typed_is_shown_again_after_a_login_at_the_issuer(
    issued: Settings, provider: LoginPage
) -> None:
    async with browsing(issued, provider=provider) as browser:
        await browser.log_in()
        fields = await browser.fields("/console/processes", "logout")
        browser.cookies.clear()
        asked = await browser.post("/console/do/set-levels", {**fields, "weights": "7:2:1"})
        kept = form_of(asked.body.decode(), "login")["kept"]
        await back(browser, await led(browser, provider))
        fields = await browser.fields("/console/audit", "logout")
        forged = await browser.post("/console/again", {"kept": kept})
        again = await browser.post("/console/again", {**fields, "kept": kept})

    assert forged.status == 403
    assert form_of(again.body.decode(), "do/set-levels")["weights"] == "7:2:1"


async def test_without_an_issuer_nobody_is_led_to_one(settings: Settings) -> None:
    async with browsing(settings) as browser:
        login = await browser.get("/console/login")
        refused = await browser.get("/console/oidc/login")

    assert b"oidc" not in login.body
    assert refused.status == 404
