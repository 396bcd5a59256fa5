"""The page of access by its HTML: the text of a token is in the answer that made it alone."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from pushlane import Settings
from pushlane.core.task import now_ms
from pushlane.operations.access import CreateToken, GetMode, ListTokens, TokenView
from pushlane.operations.doing import do
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import Operation, Result
from tests.console.browsing import Browser, browsing, form_of, led_to
from tests.door.asking import ADMIN

SCRIPT = "<script>alert(1)</script>"
DO = "/console/do/"
_TOKEN = re.compile(r"pl_[0-9a-f]{10}_[\w-]{43}")


async def told(browser: Browser, operation: Operation[Result]) -> Result:
    return await do(browser.backend, Settings(), ADMIN, operation)


async def page(browser: Browser, query: str = "") -> str:
    answer = await browser.get(f"/console/access{query}")
    assert answer.status == 200, answer.body.decode()
    return answer.body.decode()


async def named(browser: Browser, name: str) -> TokenView:
    [found] = [one for one in await told(browser, ListTokens()) if one.name == name]
    return found


def row(html: str, token: str) -> str:
    """The text of the row of a token."""
    [found] = re.findall(rf'<tr id="token-{token}">(.*?)</tr>', html, re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", found)))


async def make(browser: Browser, **fields: str) -> Any:
    """Somebody makes a token by the form of the page."""
    form = form_of(await page(browser), "create-token")
    return await browser.post(f"{DO}create-token", {**form, "grants": "viewer", **fields})


async def test_tokens_are_shown_with_all_but_their_text(settings: Settings) -> None:
    wanted = CreateToken.made(
        name="checkout",
        grants="submitter",
        apps=["shop", "bank"],
        levels=["low"],
        sinks=["fcm"],
        most_quota=1_000,
        most_per_s=2.5,
        requests_per_s=50,
        lasts_s="1h",
    )
    async with browsing(settings) as browser:
        made = await told(browser, wanted)
        await browser.log_in()
        html = await page(browser)
        me = await named(browser, "me")
    shown = row(html, made.id)

    assert f" checkout {made.id} submitter shop bank " in shown
    assert " low fcm quota 1,000 2.5 pushes/s 50 requests/s " in shown
    assert " by root " in shown
    assert " not yet " in shown
    assert "expired" not in shown
    assert f" me {me.id} this session admin all none " in row(html, me.id)
    assert " never " in row(html, me.id)
    assert "not yet" not in row(html, me.id)
    assert not _TOKEN.search(html)


async def test_a_token_that_has_expired_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(settings) as browser:
        made = await told(browser, CreateToken.made(name="old", grants="viewer", lasts_s=60))
        await browser.log_in()
        monkeypatch.setattr("pushlane.console.access.now_ms", lambda: now_ms() + 61_000)
        shown = row(await page(browser), made.id)

    assert " expired 20" in shown


async def test_a_new_token_is_shown_once(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        answer = await make(browser, name=SCRIPT, apps=" shop, bank,", lasts_s="86400")
        html = answer.body.decode()
        [text] = {*_TOKEN.findall(html)}
        made = await named(browser, SCRIPT)
        after = [await page(browser), (await browser.get("/console/audit")).body.decode()]
        other = browser.other()
        taken = await other.log_in(text)

    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    assert "<script>" not in html
    assert "Its role is viewer, of shop, bank, until" in html
    assert (made.role, made.apps) == ("viewer", ("shop", "bank"))
    assert made.expires_at_ms is not None
    assert made.expires_at_ms - made.created_at_ms == 86_400_000
    assert not any(text in one for one in after)
    assert taken.status == 303


@pytest.mark.parametrize("apps", [",", " , ,"])
async def test_commas_alone_are_not_all_apps(settings: Settings, apps: str) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        refused = await make(browser, name="x", apps=apps, lasts_s="0")
        there = await told(browser, ListTokens())

    assert refused.status == 400
    assert "apps has only commas" in refused.body.decode()
    assert [one.name for one in there] == ["me"]


async def test_a_token_without_a_name_is_refused_and_what_was_typed_stays(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        refused = await make(browser, name=" ", apps="shop", lasts_s="0")

    assert refused.status == 400
    assert form_of(refused.body.decode(), "create-token")["apps"] == "shop"


async def test_a_token_is_rotated_after_a_question(settings: Settings) -> None:
    async with browsing(settings) as browser:
        before = await told(browser, CreateToken.made(name="ci", grants="viewer"))
        await browser.log_in()
        asked = await page(browser, f"?rotate={before.id}")
        fields = {**form_of(asked, "rotate-token"), "keep_s": "0"}
        answer = await browser.post(f"{DO}rotate-token", fields)
        [text] = {*_TOKEN.findall(answer.body.decode())}
        old, new = browser.other(), browser.other()

        assert (await old.log_in(before.token)).status == 401
        assert (await new.log_in(text)).status == 303


async def test_a_token_is_revoked_after_a_question(settings: Settings) -> None:
    async with browsing(settings) as browser:
        made = await told(browser, CreateToken.made(name="ci", grants="viewer"))
        await browser.log_in()
        asked = await page(browser, f"?revoke={made.id}")
        done = await browser.post(f"{DO}revoke-token", form_of(asked, "revoke-token"))
        there = led_to(done, f"{DO}revoke-token")
        shown = (await browser.get(there)).body.decode()

    assert f"Revoke token {made.id} of ci" in asked
    assert "of this session: you" not in asked
    assert there == "/console/access"
    assert "revoke-token is done." in shown
    assert f'id="token-{made.id}"' not in shown


async def test_the_token_of_a_session_is_said_to_be_it(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        me = await named(browser, "me")
        asked = await page(browser, f"?revoke={me.id}")
        none = await page(browser, "?revoke=nobody%22%3E")

    assert "It is the token of this session: you are logged out." in asked
    assert 'action="./do/revoke-token"' not in none


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"oidc_apps_claim": "apps", "oidc_requests_per_s": 50.0, "oidc_client_id": "console"},
            "those of the claim apps , none without it .* 50 of each bearer .* as console",
        ),
        (
            {"oidc_requests_claim": "pace"},
            "Apps all .* no bound, or the number of the claim pace .* oidc_client_id is not set",
        ),
    ],
)
async def test_it_says_whose_tokens_are_taken_beside_ours(
    settings: Settings, more: dict[str, Any], said: str
) -> None:
    issued = settings.but(
        oidc_issuer="https://id.example.com",
        oidc_audience="push",
        oidc_roles=f"{SCRIPT}=operator,devs=viewer",
        **more,
    )
    async with browsing(issued) as browser:
        await browser.log_in()
        html = await page(browser)
    shown = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html.replace(SCRIPT, "?"))))

    assert "<script>" not in html
    assert "Issuer https://id.example.com for push " in shown
    assert "devs: viewer by the claim roles " in shown
    assert re.search(said, shown)


async def test_without_an_issuer_it_says_so(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        html = await page(browser)

    assert "This server takes none: <code>oidc_issuer</code> is not set." in html


async def test_changes_are_forbidden_and_allowed_again(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = form_of(await page(browser), "set-mode")
        await browser.post(f"{DO}set-mode", {**fields, "reason": SCRIPT})
        during = await page(browser)
        refused = await make(browser, name="x", lasts_s="0")
        overtaken = await browser.post(f"{DO}set-mode", {**fields, "reason": "mine"})
        await browser.post(f"{DO}set-mode", form_of(during, "set-mode"))
        after = await page(browser)
        mode = await told(browser, GetMode())

    assert re.search(r"Nothing may be changed, as me \(\w+\) said at .*: &lt;script&gt;", during)
    assert refused.status == 503
    assert overtaken.status == 412
    assert "Changes are allowed." in after
    assert not mode.read_only


async def test_every_operation_is_there_with_the_role_that_it_needs(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        html = await page(browser)
    by_role = dict(re.findall(r'aria-label="What (\w+) may do">(.*?)</table>', html, re.DOTALL))

    for kind in OPERATIONS:
        assert f'<th scope="row">{kind.word()}</th>' in by_role[kind.role]
        assert f"<code>{kind.method} /v1{kind.path}</code>" in by_role[kind.role]
    assert "Give a token another text." in by_role["admin"]


@pytest.mark.parametrize("role", ["viewer", "submitter", "operator"])
async def test_who_is_no_admin_is_not_led_here_and_refused(settings: Settings, role: str) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made(role))
        other = await browser.get("/console/now")
        refused = await browser.get("/console/access")

    assert 'href="./access"' not in other.body.decode()
    assert (refused.status, "needs admin" in refused.body.decode()) == (403, True)


async def test_an_admin_of_some_apps_is_refused(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made("admin", "shop"))
        refused = await browser.get("/console/access")

    assert refused.status == 403


async def test_many_tokens_go_on(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for number in range(100):
            await told(browser, CreateToken.made(name=f"n{number}", grants="viewer"))
        await browser.log_in()
        first = await page(browser)
        [newer] = re.findall(r'href="\./access(\?[^"]*)">Newer', first)
        second = await page(browser, unescape(newer))

    assert first.count('<tr id="token-') == 100
    assert second.count('<tr id="token-') == 1
    assert ">Oldest</a>" in second
