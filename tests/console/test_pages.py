"""Pages of the console by their HTML: who sees what, what is escaped, what protects a form."""

from __future__ import annotations

import asyncio
import gzip
import re
from contextlib import AsyncExitStack
from urllib.parse import urljoin

import pytest

from pushlane import Settings
from pushlane.console.app import PAGES
from pushlane.core.errors import Unreachable
from pushlane.operations.access import CreateToken, RevokeToken
from pushlane.operations.doing import do
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.processes import GetFormats
from pushlane.operations.shares import GetLevels, SetLevels
from tests.console.browsing import Browser, browsing, form_of, get, led_to
from tests.door.asking import ADMIN

SCRIPT = "<script>alert(1)</script>"
MOST_WEIGHT = 200 * 1024
PATHS = [page.path for page in PAGES]


async def weights(browser: Browser, weights: str) -> None:
    """Somebody sets other weights."""
    await do(browser.backend, Settings(), ADMIN, SetLevels.made(weights=weights))


async def test_who_has_no_session_logs_in_and_comes_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        first = await browser.get("/console/audit?find=a%20b")
        there = led_to(first, "/console/audit")
        page = (await browser.get(there)).body.decode()
        fields = form_of(page, "login")
        back = await browser.post("/console/login", {**fields, "token": browser.token})
        shown = await browser.get(led_to(back, "/console/login"))

    assert there.startswith("/console/login?next=audit")
    assert led_to(back, "/console/login").startswith("/console/audit?find=a")
    assert shown.status == 200
    assert b"<h1>Audit</h1>" in shown.body


@pytest.mark.parametrize(
    ("scheme", "name", "is_secure"),
    [("https", "__Host-pushlane=", True), ("http", "pushlane=", False)],
)
async def test_a_session_is_in_a_cookie_of_this_host(
    settings: Settings, scheme: str, name: str, is_secure: bool
) -> None:
    async with browsing(settings) as browser:
        browser.scheme = scheme
        await browser.log_in()
        cookie = browser.set_cookie
        shown = await browser.get("/console/processes")

    assert cookie.startswith(name)
    assert ("; Secure" in cookie) == is_secure
    assert "; HttpOnly" in cookie
    assert "; Path=/; SameSite=lax" in cookie
    assert "Domain" not in cookie
    assert browser.token not in cookie
    assert shown.status == 200


async def test_a_wrong_token_is_refused_and_not_shown(settings: Settings) -> None:
    async with browsing(settings) as browser:
        refused = await browser.log_in("pl_wrong<b>", next="audit")

    assert refused.status == 401
    assert b"pl_wrong" not in refused.body
    assert form_of(refused.body.decode(), "login")["next"] == "audit"
    assert browser.cookies == {}


async def test_login_leads_to_no_other_site(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for there in ("https://evil.test/", "//evil.test/", "/\\evil.test", "\r\nX: y"):
            back = await browser.log_in(next=there)
            led = urljoin("http://push.test/console/login", back.headers["location"])
            assert led.startswith("http://push.test/console/")


async def test_logout_ends_the_session(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = await browser.fields("/console/processes", "logout")
        forged = await browser.post("/console/logout", {})
        left = await browser.post("/console/logout", fields)

    assert forged.status == 403
    assert led_to(left, "/console/logout") == "/console/login"
    assert browser.cookies == {}


@pytest.mark.parametrize("path", ["/login", *PATHS])
async def test_every_page_has_a_strict_policy_and_nothing_inline(
    settings: Settings, path: str
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        shown = await browser.get(f"/console{path}")
    policy = dict(one.split(" ", 1) for one in shown.headers["content-security-policy"].split("; "))
    html = shown.body.decode()

    assert policy.pop("default-src") == policy.pop("frame-ancestors") == "'none'"
    assert policy.pop("base-uri") == "'none'"
    assert {*policy.values()} == {"'self'"}
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|hx-on|javascript:", html)
    assert shown.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/login", *PATHS])
async def test_a_page_works_under_any_prefix(settings: Settings, path: str) -> None:
    async with browsing(settings) as browser:
        if path != "/login":
            await browser.log_in()
        html = (await browser.get(f"/console{path}")).body.decode()

    addresses = re.findall(r'(?:href|src|action|hx-\w+:connect)="([^"]*)"', html)
    assert addresses
    assert [one for one in addresses if one.startswith("/") or "//" in one] == []


async def test_a_page_weighs_little(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        for path in PATHS:
            html = (await browser.get(f"/console{path}")).body
            names = re.findall(r'(?:src|href)="([^"]*/static/[^"]*)"', html.decode())
            there = [urljoin(f"/console{path}", name) for name in names]
            files = [(await browser.get(one)).body for one in there]
            assert len(html) + sum(map(len, files)) <= MOST_WEIGHT


async def test_files_are_kept_by_their_hash(settings: Settings) -> None:
    async with browsing(settings) as browser:
        html = (await browser.get("/console/login")).body.decode()
        [name] = re.findall(r'"\./(static/\w+/console\.css)"', html)
        kept = await browser.get(f"/console/{name}")
        tag = {"if-none-match": kept.headers["etag"]}
        unchanged = await browser.get(f"/console/{name}", tag)
        packed = await browser.get(f"/console/{name}", {"accept-encoding": "gzip, br"})
        older = await browser.get("/console/static/0123/console.css")
        none = await browser.get("/console/static/0123/vendored.json")

    assert "immutable" in kept.headers["cache-control"]
    assert (unchanged.status, unchanged.body) == (304, b"")
    assert gzip.decompress(packed.body) == kept.body == older.body
    assert older.headers["cache-control"] == "no-cache"
    assert none.status == 404


async def test_names_with_script_in_them_are_text(settings: Settings) -> None:
    async with browsing(settings) as browser:
        wanted = CreateToken.made(name=SCRIPT, grants="admin")
        made = await do(browser.backend, settings, ADMIN, wanted)
        await browser.log_in(made.token)
        for path in (*PATHS, "/audit?find=%22%3E%3Cscript%3E", "/login?next=%22%3E%3Cscript%3E"):
            html = (await browser.get(f"/console{path}")).body.decode()
            assert "<script>" not in html
        audit = (await browser.get("/console/audit")).body.decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in audit


async def test_a_viewer_sees_no_way_to_what_is_not_theirs(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made("viewer"))
        shown = (await browser.get("/console/processes")).body.decode()
        refused = await browser.get("/console/audit")

    assert "audit" not in shown
    assert "do/set-formats" not in shown
    assert (refused.status, "needs operator" in refused.body.decode()) == (403, True)


async def test_a_caller_of_some_apps_is_told_when_there_is_nothing_for_them(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made("viewer", "shop"))
        refused = await browser.get("/console/processes")
    assert refused.status == 403
    assert b"is about all apps" in refused.body


async def test_the_server_refuses_a_viewer_every_change(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made("viewer"))
        fields = await browser.fields("/console/processes", "logout")
        for kind in OPERATIONS:
            if kind.changes:
                refused = await browser.post(f"/console/do/{kind.word()}", fields)
                assert refused.status == 403, kind


async def test_a_form_does_an_operation_and_leads_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = await browser.fields("/console/processes", "logout")
        wanted = {**fields, "weights": "5:4:1", "_seen": "*", "_back": "audit?find=set"}
        done = await browser.post("/console/do/set-levels", wanted)
        shown = (await browser.get(led_to(done, "/console/do/set-levels"))).body.decode()
        after = await do(browser.backend, settings, ADMIN, GetLevels())

    assert led_to(done, "/console/do/set-levels") == "/console/audit?find=set"
    assert "set-levels is done." in shown
    assert "weights 5:4:1" in shown
    assert after.high.weight == 5


@pytest.mark.parametrize(
    ("headers", "has_token"),
    [
        ({}, False),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site"}, True),
        ({"origin": "https://evil.test"}, True),
        ({"origin": "null"}, True),
    ],
)
async def test_a_form_of_another_site_changes_nothing(
    settings: Settings, headers: dict[str, str], has_token: bool
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = await browser.fields("/console/processes", "logout") if has_token else {}
        sent = {**fields, "weights": "1:1:1", "_seen": "*"}
        refused = await browser.post("/console/do/set-levels", sent, headers)
        after = await do(browser.backend, settings, ADMIN, GetLevels())
        login = await browser.other().post("/console/login", {"token": browser.token}, headers)

    assert refused.status == 403
    assert after.high.weight != 1
    assert login.status == (403 if headers else 303)


async def test_a_session_that_ends_within_a_form_loses_nothing_typed(settings: Settings) -> None:
    typed = {"weights": "7:2:1", "_seen": "*", "_back": "processes"}
    async with browsing(settings) as browser:
        await browser.log_in()
        old = await browser.fields("/console/processes", "logout")
        browser.cookies.clear()

        asked = await browser.post("/console/do/set-levels", {**old, **typed})
        kept = form_of(asked.body.decode(), "login")
        again = await browser.log_in(**{**kept, "token": browser.token})
        before = await do(browser.backend, settings, ADMIN, GetLevels())
        fields = form_of(again.body.decode(), "do/set-levels")
        done = await browser.post("/console/do/set-levels", fields)
        after = await do(browser.backend, settings, ADMIN, GetLevels())

    assert (asked.status, again.status) == (401, 200)
    assert fields["weights"] == "7:2:1"
    assert before.high.weight != 7
    assert led_to(done, "/console/do/set-levels") == "/console/processes"
    assert after.high.weight == 7


async def test_after_a_login_it_is_told_what_a_preview_was_of(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        preview = await get(browser, "preview?operation=set-levels&weights=7:2:1&back=now")
        form = form_of(preview, "do/apply")
        browser.cookies.clear()
        kept = form_of((await browser.post("/console/do/apply", form)).body.decode(), "login")
        again = (await browser.log_in(**{**kept, "token": browser.token})).body.decode()
        fields = form_of(again, "do/apply")
        lost = await browser.post("/console/do/apply", {**fields, "token": "pv_other"})
        done = await browser.post("/console/do/apply", fields)
        old = {name: text for name, text in form.items() if name != "_title"}
        browser.cookies.clear()
        kept = form_of((await browser.post("/console/do/apply", old)).body.decode(), "login")
        untold = (await browser.log_in(**{**kept, "token": browser.token})).body.decode()

    assert "Share by 7:2:1" in again
    assert f'<input type="hidden" name="token" value="{fields["token"]}">' in again
    assert "<label" not in again
    for html in (lost.body.decode(), untold):
        assert "Send again" not in html
        assert 'weights=7%3A2%3A1&amp;back=now">Preview the change again' in html
    assert "Share by 7:2:1" in lost.body.decode()
    assert "The preview is gone" in untold
    assert led_to(done, "/console/do/apply") == "/console/now"


async def test_what_somebody_else_has_changed_is_shown_beside_what_was_typed(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = await browser.fields("/console/processes", "logout")
        seen = (await browser("GET", "/v1/levels")).headers["etag"]
        await weights(browser, "5:4:1")
        wanted = {**fields, "weights": "9:1:1", "_seen": seen}
        refused = await browser.post("/console/do/set-levels", wanted)

    html = refused.body.decode()
    assert refused.status == 412
    assert "It is now: weights 5:4:1" in html
    assert form_of(html, "do/set-levels")["weights"] == "9:1:1"


async def test_a_wrong_value_is_told_and_stays_in_the_form(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = await browser.fields("/console/processes", "do/set-formats")
        wrong = await browser.post(
            "/console/do/set-formats", {**fields, "min_format": f"2{SCRIPT}"}
        )

    html = wrong.body.decode()
    assert wrong.status == 400
    assert "min_format: expected `int`" in html.replace("&#39;", "'")
    assert form_of(html, "do/set-formats")["min_format"] == f"2{SCRIPT}"


async def test_a_page_tells_how_else_it_is_asked_for(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        html = (await browser.get("/console/audit?find=a%20b")).body.decode()

    assert "pushlane audit --find &#39;a b&#39;" in html
    assert "/v1/audit?find=a+b&#34; -H &#34;$AUTH&#34;" in html


async def test_long_lists_go_on(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for one in range(101):
            await weights(browser, f"{one + 2}:1:1")
        await browser.log_in()
        first = (await browser.get("/console/audit?find=set-levels")).body.decode()
        [older] = re.findall(r'href="\./(audit\?[^"]*)">Older', first)
        second = (await browser.get(f"/console/{older.replace('&amp;', '&')}")).body.decode()

    assert first.count("<td>set-levels</td>") == 100
    assert second.count("<td>set-levels</td>") == 1
    assert ">Newest</a>" in second


async def test_htmx_is_sent_the_changing_part_under_a_nonce_of_its_own(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        whole = (await browser.get("/console/audit")).body.decode()
        part = await browser.get("/console/audit", {"hx-request": "true"})

    [nonce] = re.findall(r"'nonce-([^']+)'", part.headers["content-security-policy"])
    assert b"<html" not in part.body
    assert part.body.decode().strip().splitlines()[0] in whole
    assert nonce not in whole


async def test_an_open_page_is_sent_what_changes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        async with browser.stream("/console/live/audit?find=set-levels") as stream:
            before = await stream.html()
            await weights(browser, "5:4:1")
            after = await stream.html()

    assert "No change has" in before
    assert "weights 5:4:1" in after
    assert stream.headers["cache-control"] == "no-store"


async def test_who_sees_the_same_is_rendered_for_once(settings: Settings) -> None:
    async with browsing(settings) as browser:
        other = browser.other()
        await browser.log_in()
        await other.log_in()
        live = browser.console.live
        async with (
            browser.stream("/console/live/processes") as mine,
            other.stream("/console/live/processes") as theirs,
            other.stream("/console/live/audit") as apart,
        ):
            assert await mine.html() == await theirs.html()
            await apart.html()
            assert (len(live), live.looked_at) == (3, 2)
        assert (len(live), live.looked_at) == (0, 0)


async def test_a_stream_ends_with_its_token(settings: Settings) -> None:
    async with browsing(settings) as browser:
        wanted = CreateToken.made(name="gone", grants="viewer")
        made = await do(browser.backend, settings, ADMIN, wanted)
        await browser.log_in(made.token)
        async with browser.stream("/console/live/processes") as stream:
            await stream.html()
            revoke = RevokeToken.made(token=made.id)
            await do(browser.backend, settings, ADMIN, revoke)
            await stream.named("ended")
            assert await stream.sent() is None
        led = await browser.get("/console/processes")
        async with browser.stream("/console/live/processes") as stream:
            assert await stream.sent() is None

    assert led_to(led, "/console/processes").startswith("/console/login")
    assert stream.status == 401


async def test_a_page_without_a_stream_asks_whether_its_token_holds(settings: Settings) -> None:
    async with browsing(settings) as browser:
        nobody = await browser.get("/console/session")
        made = await do(
            browser.backend, settings, ADMIN, CreateToken.made(name="gone", grants="viewer")
        )
        await browser.log_in(made.token)
        held = await browser.get("/console/session")
        await do(browser.backend, settings, ADMIN, RevokeToken.made(token=made.id))
        revoked = await browser.get("/console/session")

    assert [one.status for one in (nobody, held, revoked)] == [401, 204, 401]
    assert (held.body, revoked.body) == (b"", b"")


async def test_a_stream_ends_with_its_token_while_a_look_is_not_answered(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def never(self: GetFormats, at: object) -> None:
        looked.set()
        await asyncio.Event().wait()

    async with browsing(settings) as browser:
        wanted = CreateToken.made(name="gone", grants="viewer")
        made = await do(browser.backend, settings, ADMIN, wanted)
        await browser.log_in(made.token)
        async with browser.stream("/console/live/processes") as stream:
            await stream.html()
            monkeypatch.setattr(GetFormats, "run", never)
            await looked.wait()
            await do(browser.backend, settings, ADMIN, RevokeToken.made(token=made.id))
            await stream.named("ended")


async def test_pages_that_cost_much_are_looked_at_rarely_and_end_with_their_token_all_the_same(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent_s = [0.0]
    looked = asyncio.Event()

    def spend() -> float:
        spent_s.append(spent_s[-1] + 1_000.0)
        if len(spent_s) > 2:  # at its begin, and at its end
            looked.set()
        return spent_s[-1]

    monkeypatch.setattr("pushlane.console.live.thread_time", spend)
    async with browsing(settings) as browser:
        wanted = CreateToken.made(name="gone", grants="admin")
        made = await do(browser.backend, settings, ADMIN, wanted)
        await browser.log_in(made.token)
        async with AsyncExitStack() as stack:
            for number in range(4):
                other = browser.stream(f"/console/live/audit?find={number}")
                await (await stack.enter_async_context(other)).html()
            here = browser.stream("/console/live/audit?find=set-levels")
            stream = await stack.enter_async_context(here)
            await stream.html()
            await looked.wait()
            await weights(browser, "5:4:1")
            turns = asyncio.Semaphore(0)
            is_valid = browser.console.live._is_valid

            async def asked(authorization: str) -> bool:
                turns.release()
                return await is_valid(authorization)

            browser.console.live._is_valid = asked
            for _ in range(3):  # in which it would have been looked at
                await turns.acquire()
            revoke = RevokeToken.made(token=made.id)
            await do(browser.backend, settings, ADMIN, revoke)
            events = []
            while (sent := await stream.sent()) is not None:
                events.append(sent.name)

    assert [one for one in events if one != "beat"] == ["ended"]


async def test_what_is_away_is_told_and_the_page_comes_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        async with browser.stream("/console/live/processes") as stream:
            before = await stream.html()
            with monkeypatch.context() as patch:

                async def fail(self: GetFormats, at: object) -> None:
                    raise Unreachable(f"the registry is away {SCRIPT}")

                patch.setattr(GetFormats, "run", fail)
                told = await stream.named("away")
            assert await stream.named("away") == ""
    assert "Formats of messages" in before
    assert told == f"the registry is away {SCRIPT}"
