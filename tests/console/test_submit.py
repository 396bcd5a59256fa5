"""The pages of a submit by their HTML: a file is kept, checked and sent, and for whom."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gzip
import os
import re
import shutil
import threading
from html import unescape
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane import Settings
from pushlane.console.app import Console
from pushlane.console.submit import MAIN, MORE, START, TEST, WRITTEN
from pushlane.core.task import Level, State
from pushlane.door import drafts as keeping
from pushlane.door.app import build
from pushlane.door.drafts import Draft, Drafts
from pushlane.door.gate import Gate
from pushlane.door.upload_folder import UploadFolder, remove_left
from pushlane.door.uploads import BESIDE_BYTES
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.operations.access import CreateToken, RevokeToken
from pushlane.operations.doing import do
from pushlane.operations.drafts import MOST_COLUMNS, MOST_REJECTS, NAMES, Columns, columns_of
from pushlane.operations.listing import ListTasks
from pushlane.producers.text_file import MAX_LINE
from tests.console.browsing import Browser, browsing, form_of, led_to, log_in_as, text_of
from tests.console.test_tasks import SCRIPT, add, get
from tests.door.asking import ADMIN, Answer

ROWS = "recipient,city\ndevice-1111,Berlin\ndevice-2222,Lagos\ndevice-3333,Tokyo\n"
BOUNDARY = "----pushlane"
DELIVERS = ServedSink(
    name="default", slots=10, in_flight=10, delivery_s=0.1, delivered_per_s={"high": 100.0}
)
SERVING = Process(
    id="d", kind="dispatcher", pid=7, version="1", serves=("default",), served=(DELIVERS,)
)


def form_with_file(token: str, name: str, body: bytes) -> bytes:
    """A form as a browser sends it."""
    parts = [("_form", None, token.encode()), ("file", name, body)]
    found = b""
    for field, called, content in parts:
        head = f'Content-Disposition: form-data; name="{field}"'
        if called is not None:
            head += f'; filename="{called}"\r\nContent-Type: text/csv'
        found += f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    return found + f"--{BOUNDARY}--\r\n".encode()


async def sent(
    browser: Browser,
    name: str = "sale.csv",
    body: bytes | str = ROWS,
    token: str | None = None,
    **headers: str,
) -> Answer:
    """Send a file as a browser does, in parts."""
    if token is None:
        token = form_of(await get(browser, "submit"), "submit")["_form"]
    content = body.encode() if isinstance(body, str) else body
    form = form_with_file(token, name, content)
    given = {
        "content-type": f"multipart/form-data; boundary={BOUNDARY}",
        "content-length": str(len(form)),
    }
    parts = [form[start : start + 50_000] for start in range(0, len(form), 50_000)]
    asked = {**given, **{name.replace("_", "-"): one for name, one in headers.items()}}
    return await browser("POST", "/console/submit", headers=asked, parts=parts, token="")


async def kept(browser: Browser, name: str = "sale.csv", body: bytes | str = ROWS) -> str:
    """Send a file; return the address of its page."""
    answer = await sent(browser, name, body)
    return led_to(answer, "/console/submit").removeprefix("/console/")


def draft_at(browser: Browser, address: str) -> Draft:
    return browser.console.drafts._kept[address.removeprefix("submit/")]


async def press(browser: Browser, address: str, word: str, **typed: str) -> Answer:
    """Press a button of the page of a draft."""
    own = form_of(await get(browser, address), "check")
    own = {name: one for name, one in own.items() if one and name in ("_form", "key")}
    return await browser.post(f"/console/{address}/{word}", {**own, **typed})


async def through(browser: Browser, address: str) -> str:
    """The page, once nothing goes on any more."""
    job = draft_at(browser, address).job
    assert job is not None
    assert job.running is not None
    await asyncio.wait([job.running])
    return await get(browser, address)


async def checked(browser: Browser, address: str, **typed: str) -> str:
    answer = await press(browser, address, "check", **{"level": "high", **typed})
    assert led_to(answer, f"/console/{address}/check") == f"/console/{address}#live"
    return await through(browser, address)


async def submitted(browser: Browser, address: str) -> str:
    page = await get(browser, address)
    answer = await browser.post(f"/console/{address}/send", form_of(page, "send"))
    assert answer.status == 303, answer.body.decode()
    return await through(browser, address)


async def test_a_file_is_checked_and_submitted(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        path = draft_at(browser, address).rows.path
        mode = path.stat().st_mode & 0o777
        folder_mode = path.parent.stat().st_mode & 0o777
        fresh = await get(browser, address)
        page = await checked(browser, address, title="Hi {city}")
        before = await do(browser.backend, settings, ADMIN, ListTasks())
        done = await submitted(browser, address)
        [task] = await do(browser.backend, settings, ADMIN, ListTasks())
        is_left = path.exists()

    assert (mode, folder_mode) == (0o600, 0o700)
    assert '<span class="chip">city</span>' in fresh
    assert "3 pushes of level high" in page
    assert "Hi Berlin" in page
    assert "device-1111" not in page
    assert "pushlane submit sale.csv --level high --title &#39;Hi {city}&#39;" in page
    assert before == []
    assert "It is submitted: 3 pushes." in done
    assert (task.name, task.total, task.state) == ("sale", 3, State.RUNNING)
    assert not is_left


async def test_rows_are_typed(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = form_of(await get(browser, "submit"), "submit/rows")
        typed = {**fields, "rows": ROWS.replace("\n", "\r\n"), "format": "csv"}
        answer = await browser.post("/console/submit/rows", typed)
        address = led_to(answer, "/console/submit/rows").removeprefix("/console/")
        page = await checked(browser, address, title="Hi {city}")

    assert "3 pushes of level high" in page
    assert "Hi Tokyo" in page


async def test_every_option_of_the_command_line_can_be_typed() -> None:
    fields = [one.name for one in (*MAIN, *START, *MORE, *WRITTEN, TEST)]
    assert sorted(fields) == sorted(NAMES)


async def test_a_viewer_sees_no_way_to_it_and_is_refused(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made("viewer"))
        fields = await browser.fields("/console/processes", "logout")
        shown = await get(browser, "processes")
        refused = [
            await browser.get("/console/submit"),
            await sent(browser, token=fields["_form"]),
            await browser.post("/console/submit/rows", {**fields, "rows": ROWS, "format": "csv"}),
            await browser.post("/console/submit/x/check", {**fields, "level": "high"}),
            await browser.post("/console/submit/x/send", fields),
        ]
        drafts = browser.console.drafts._kept

    assert 'submit"' not in shown
    assert [one.status for one in refused] == [403] * 5
    assert drafts == {}


@pytest.mark.parametrize(("token", "headers"), [("", {}), (None, {"sec_fetch_site": "cross-site"})])
async def test_a_file_of_another_site_is_not_kept(
    settings: Settings, token: str | None, headers: dict[str, str]
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        refused = await sent(browser, token=token, **headers)
        drafts = browser.console.drafts._kept

    assert refused.status == 403
    assert drafts == {}


async def test_a_longer_file_than_may_be_is_refused_by_its_length(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        declared = await sent(browser, content_length=str(2 * 1024**3))
        has_begun = browser.console.drafts._folder is not None

    html = unescape(declared.body.decode())
    assert declared.status == 413
    assert declared.headers["connection"] == "close"
    assert "larger than the 1 GiB that the console takes (upload_max)" in html
    assert "pushlane submit FILE" in html
    assert not has_begun


async def test_a_form_that_is_no_whole_one_is_refused_and_nothing_kept(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        token = form_of(await get(browser, "submit"), "submit")["_form"]
        whole = form_with_file(token, "sale.csv", ROWS.encode())
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        told = []
        for body, given, length in (
            (whole[:-30], kind, "1000"),
            (whole, "multipart/form-data", "1000"),
            (whole, "text/csv", "1000"),
            (b"no form", kind, "1000"),
            (form_with_file(token, "", b""), kind, "1000"),
            (whole, kind, ""),
        ):
            headers = {"content-type": given, "content-length": length}
            answer = await browser(
                "POST", "/console/submit", headers=headers, parts=[body], token=""
            )
            assert answer.status == 400
            told.append(unescape(answer.body.decode()))
        left = os.listdir(browser.console.drafts._folder.path)  # type: ignore[union-attr]

    whys = ("cut off", "as multipart", "as multipart", "cannot be read", "no file", "its length")
    for html, why in zip(told, whys, strict=True):
        assert why in html
    assert left == ["lock"]


async def test_what_a_form_has_beside_its_file_is_bounded(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        token = form_of(await get(browser, "submit"), "submit")["_form"]
        whole = form_with_file(token, "sale.csv", ROWS.encode())
        begun = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="'.encode()
        answers = []
        for more in (
            b"".join(begun + b'%d"\r\n\r\n\r\n' % number for number in range(2_000)),
            begun + b'a"\r\n\r\n' + b"x" * BESIDE_BYTES + b"\r\n",
        ):
            headers = {
                "content-type": f"multipart/form-data; boundary={BOUNDARY}",
                "content-length": str(len(more + whole)),
            }
            answers.append(
                await browser(
                    "POST", "/console/submit", headers=headers, parts=[more + whole], token=""
                )
            )
        drafts = browser.console.drafts._kept

    assert [one.status for one in answers] == [400] * 2
    for one in answers:
        assert "too much beside its file" in one.body.decode()
    assert drafts == {}


async def test_a_full_disk_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, block: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pushlane.door.uploads._write_all", full)
    async with browsing(settings) as browser:
        await browser.log_in()
        refused = await sent(browser)
        drafts = browser.console.drafts._kept

    assert refused.status == 503
    assert "No space left on device" in refused.body.decode()
    assert drafts == {}


async def test_a_file_that_cannot_be_made_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = form_of(await get(browser, "submit"), "submit/rows")
        names = SimpleNamespace(token_hex=lambda _: "x" * 300)
        monkeypatch.setattr(keeping, "secrets", names)
        typed = {**fields, "rows": ROWS, "format": "csv"}
        refused = [await sent(browser), await browser.post("/console/submit/rows", typed)]
        drafts = browser.console.drafts._kept

    assert [one.status for one in refused] == [503] * 2
    for one in refused:
        assert "the file cannot be kept: File name too long" in one.body.decode()
    assert drafts == {}


async def test_the_folder_is_made_again_when_it_was_removed(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        first = draft_at(browser, await kept(browser)).rows.path.parent
        shutil.rmtree(first)
        address = await kept(browser)
        page = await checked(browser, address, title="x")
        second = draft_at(browser, address).rows.path.parent

    assert "3 pushes of level high" in page
    assert first != second
    assert not second.exists()


async def test_errors_name_the_fields_of_the_form(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, body=ROWS.replace("recipient", "device_token"))
        nothing_given = unescape(await checked(browser, address))

    [told] = re.findall(r'role="alert">([^<]+)</p>', nothing_given)
    assert "“Recipient” device_token" in told
    assert "--" not in told


async def test_work_on_the_files_of_one_owner_leaves_a_turn_to_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = list[str](), asyncio.Event()

    async def work(drafts: Drafts, draft: Draft, *rest: Any) -> None:
        begun.append(draft.owner.split()[0])
        await end.wait()

    monkeypatch.setattr(Drafts, "_check", work)
    async with browsing(settings) as browser:
        await browser.log_in()
        first, second = await kept(browser), await kept(browser)
        other = browser.other()
        await log_in_as(other, "submitter")
        third = await kept(other)
        for who, address in ((browser, first), (browser, second), (other, third)):
            await press(who, address, "check", level="low")
        waiting = text_of(await get(browser, second))
        begun_then = [*begun]
        end.set()
        await through(browser, second)

    assert len(begun_then) == 2
    assert len({*begun_then}) == 2, "one of each owner"
    assert "It waits for work on other files" in waiting
    assert len(begun) == 3


async def test_a_longer_file_than_it_said_is_cut(settings: Settings) -> None:
    async with browsing(settings.but(upload_max=1024)) as browser:
        await browser.log_in()
        refused = await sent(browser, body=b"x" * 200_000, content_length="900")
        drafts = browser.console.drafts._kept

    assert refused.status == 413
    assert drafts == {}


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("report.xlsx", b"PK\3\4", "Excel"),
        ("photo.png", b"\x89PNG", "the format of photo.png is not clear"),
        ("sale.csv", b"", "sale.csv is empty"),
        ("sale.csv.gz", b"\x1f\x8bbroken", "packed with gzip, and damaged"),
        ("sale.parquet", b"no parquet", "sale.parquet"),
    ],
)
async def test_a_wrong_file_is_told(settings: Settings, name: str, body: bytes, told: str) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, name, body)
        page = unescape(await get(browser, address))
        path = str(draft_at(browser, address).rows.path)

    assert told in page
    assert path not in page


async def test_the_columns_are_read_once_and_by_another_thread(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def watched(*given: Any) -> Columns:
        threads.append(threading.current_thread())
        return columns_of(*given)

    monkeypatch.setattr(keeping, "columns_of", watched)
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, body=ROWS.replace(",", ";"))
        await get(browser, address)
        await get(browser, address)
        before = len(threads)
        page = await checked(browser, address, title="x", delimiter=";")

    assert before == 1
    assert len(threads) == 2
    assert threading.main_thread() not in threads
    assert '<span class="chip">city</span>' in page


async def test_a_file_that_is_blank_for_long_is_not_read_on(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        packed = gzip.compress(b"\n" * (MAX_LINE + 1) + b'{"recipient": "device-9"}\n')
        address = await kept(browser, "sale.jsonl.gz", packed)
        page = await get(browser, address)

    assert "characters of blank lines before its first row; remove them" in page


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("recipient," + ",".join("a" * MOST_COLUMNS), "and 141 more"),
        ("recipient," + "long" * 1_000, "long</span>"),
    ],
)
async def test_columns_that_are_too_many_or_too_long_are_typed(
    settings: Settings, header: str, told: str
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        page = await get(browser, await kept(browser, body=f"{header}\n"))
        few = await get(browser, await kept(browser))

    assert '<input id="recipient" name="recipient" value="recipient"' in page
    assert told in page
    assert "long" * 51 not in page
    assert '<select id="recipient"' in few


async def test_a_column_that_is_not_there_is_told(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, body="phone,city\n1111,Berlin\n")
        guessed = await get(browser, address)
        page = await checked(browser, address, recipient="recipient", title="x")

    assert '<option value="phone" selected>' in guessed
    assert "sale.csv has no column" in page
    assert "Submit 1" not in page


async def test_a_file_that_gzip_packs_is_read(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(
            browser, "sale.jsonl.gz", gzip.compress(b'{"recipient": "device-9"}\n')
        )
        page = await checked(browser, address, title="x")

    assert "1 push of level high" in page


async def test_every_row_that_cannot_be_used_is_told(settings: Settings) -> None:
    rows = ROWS + ",Nowhere\n,Nowhere else\n"
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, body=rows)
        page = await checked(browser, address, title="Hi {city}")
        sent_anyway = await browser.post(
            f"/console/{address}/send",
            {
                "_form": form_of(page, "check")["_form"],
                "check": draft_at(browser, address).checked.number,  # type: ignore[union-attr]
            },
        )
        skipping = await checked(browser, address, title="Hi {city}", bad_rows="skip")
        done = await submitted(browser, address)

    assert "2 rows cannot be used" in page
    assert "line 5 has no recipient" in page
    assert "line 6 has no recipient" in page
    assert "/send" not in page
    assert sent_anyway.status == 400
    assert "Submit 3 pushes" in skipping
    assert "It is submitted: 3 pushes." in done


@pytest.mark.parametrize("bad_rows", ["stop", "skip"])
async def test_of_many_rows_that_cannot_be_used_the_first_are_listed(
    settings: Settings, bad_rows: str
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, body=ROWS + "a\n" * (MOST_REJECTS + 20))
        page = await checked(browser, address, title="x", bad_rows=bad_rows)
        listed = draft_at(browser, address).rows.rejects.read_bytes()
        if bad_rows == "skip":
            assert "It is submitted: 3 pushes." in await submitted(browser, address)

    assert len(listed.splitlines()) == MOST_REJECTS
    assert f"line {MOST_REJECTS + 4} has 1 column" in page
    assert "and 20 more, which are not listed" in page
    assert f"{MOST_REJECTS + 20} rows" in page


async def test_names_and_rows_with_script_in_them_are_text(settings: Settings) -> None:
    rows = f'recipient,{SCRIPT}\ndevice-1,"{SCRIPT}"\n'
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser, f"{SCRIPT}.csv", rows)
        fresh = await get(browser, address)
        page = await checked(browser, address, title="x", body=f"{{{SCRIPT}}}", name=SCRIPT)
        listed = await get(browser, "submit")
        done = await submitted(browser, address)

    assert "script&gt;" in page
    for html in (fresh, page, listed, done):
        assert SCRIPT not in html


async def test_what_was_checked_is_what_is_submitted(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        first = form_of(await checked(browser, address, title="one"), "send")
        second = await checked(browser, address, level="low", title="two", paused="yes")
        refused = await browser.post(f"/console/{address}/send", first)
        done = await submitted(browser, address)
        [task] = await do(browser.backend, settings, ADMIN, ListTasks())

    assert "Submit 3 pushes, paused" in second
    assert refused.status == 400
    assert "look at the newest check" in refused.body.decode()
    assert "It is submitted" in done
    assert (task.level, task.state) == ("low", State.PAUSED)


async def test_a_test_is_sent_to_testers_alone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        nobody = await press(browser, address, "test", level="high", title="Hi {city}")
        missing = await through(browser, address)
        await press(browser, address, "test", level="high", title="Hi {city}", test_to="me, you")
        page = await through(browser, address)
        [task] = await do(browser.backend, settings, ADMIN, ListTasks())

    assert nobody.status == 303
    assert "no address to test with" in missing
    assert "A test is sent: 2 pushes" in page
    assert (task.name, task.total) == ("test of sale", 2)
    assert 'value="me, you"' in page


async def test_a_session_that_ends_within_the_form_loses_nothing_typed(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        own = form_of(await get(browser, address), "check")
        browser.cookies.clear()
        asked = await browser.post(
            f"/console/{address}/check", {**own, "level": "high", "title": "Hi {city}"}
        )
        again = await browser.log_in(kept=form_of(asked.body.decode(), "login")["kept"])
        fields = form_of(again.body.decode(), f"{address}/check")
        done = await browser.post(f"/console/{address}/check", fields)
        page = await through(browser, address)

    assert asked.status == 401
    assert (fields["level"], fields["title"]) == ("high", "Hi {city}")
    assert done.status == 303
    assert "3 pushes of level high" in page


async def test_after_a_restart_it_is_told_first_that_the_file_is_gone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        own = form_of(await get(browser, address), "check")
        browser.cookies.clear()
        typed = {"_form": own["_form"], "level": "high", "not_before_column": "city", "title": ""}
        asked = await browser.post(f"/console/{address}/check", typed)
        browser.console.drafts._kept.clear()
        again = await browser.log_in(kept=form_of(asked.body.decode(), "login")["kept"])
        html = again.body.decode()
        sent = await browser.post(f"/console/{address}/check", form_of(html, "check"))

    main = html.partition("<main")[2]
    assert main.index("you have no such file here") < main.index("You are logged in again")
    assert "Choose the file again" in main
    assert re.findall("<label[^>]*>(.*?)</label>", main) == ["Level", "Column of starts"]
    assert "Choose the file again" in sent.body.decode()


async def test_a_file_without_a_session_asks_for_a_login_and_leads_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        token = form_of(await get(browser, "submit"), "submit")["_form"]
        browser.cookies.clear()
        asked = await sent(browser, token=token)
        drafts = browser.console.drafts._kept

    assert asked.status == 401
    assert form_of(asked.body.decode(), "login")["next"] == "submit"
    assert drafts == {}


async def test_who_has_one_app_submits_for_it(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in(await browser.made("submitter", "shop"))
        address = await kept(browser)
        own = form_of(await get(browser, address), "check")
        page = await checked(browser, address, title="x", app=own["app"])
        done = await submitted(browser, address)
        [task] = await do(browser.backend, settings, ADMIN, ListTasks())
        other = await checked(browser, await kept(browser), title="x", app="bank")

    assert "3 pushes of level high" in page
    assert "It is submitted: 3 pushes." in done
    assert task.app == "shop"
    assert "there is no app" in other


async def test_where_a_sink_delivers_is_shown_to_who_sees_all_apps_alone(
    settings: Settings,
) -> None:
    rests = Resting("sink default (open)", 1, "no connection", 0)
    target = SinkTarget("webhook", "10.0.0.7:9000", "hash")
    serving = replace(SERVING, served=(replace(DELIVERS, target=target, resting=rests),))
    async with browsing(settings) as browser:
        await browser.backend.presence.announce(serving, 60)
        await browser.log_in()
        whole = await checked(browser, await kept(browser), title="x")
        await browser.log_in(await browser.made("submitter", "shop"))
        own = await checked(browser, await kept(browser), title="x", app="shop")

    assert "sink default (webhook at 10.0.0.7:9000) rests" in whole
    assert "sink default rests" in own
    assert "10.0.0.7" not in own


async def test_the_same_key_submits_nothing_twice(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        for told in ("It is submitted: 3 pushes.", "It was submitted before, under the same key"):
            address = await kept(browser)
            page = await checked(browser, address, title="x", key="sale-1")
            assert told in await submitted(browser, address)
            fields = await browser.fields(f"/console/{address}", "discard")
            late = await browser.post(f"/console/{address}/check", {**fields, "level": "low"})
            assert (late.status, b"submitted already" in late.body) == (400, True)
        other = await kept(browser, body="recipient\nsomebody\n")
        await checked(browser, other, title="x", key="sale-1")
        refused = await submitted(browser, other)
        tasks = await do(browser.backend, settings, ADMIN, ListTasks())

    assert "has this key already" in page
    assert 'role="alert"' in refused
    assert len(tasks) == 1


async def test_what_is_submitted_makes_room(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        for number in range(keeping.MOST_OF_ONE + 1):
            address = await kept(browser)
            await checked(browser, address, title=f"{number}")
            await submitted(browser, address)


async def test_an_open_page_offers_to_forget_a_file_once_it_is_submitted(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        await checked(browser, address, title="x")
        async with browser.stream(f"/console/live/{address}") as stream:
            before = await stream.html()
            await submitted(browser, address)
            while "It is submitted" not in (after := await stream.html()):
                pass

    assert "Discard the file</button>" in before
    assert "Forget it</button>" in after


@pytest.mark.parametrize(("names", "chosen"), [(("push",), "push"), (("push", "sms"), "")])
async def test_the_only_sink_is_chosen(
    settings: Settings, names: tuple[str, ...], chosen: str
) -> None:
    async with browsing(settings) as browser:
        served = tuple(replace(DELIVERS, name=name) for name in names)
        process = replace(SERVING, serves=names, served=served)
        await browser.backend.presence.announce(process, 600.0)
        await browser.log_in()
        form = form_of(await get(browser, await kept(browser)), "check")

    assert form["sink"] == chosen


async def test_a_draft_is_its_owners_alone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        other = browser.other()
        await other.log_in(await browser.made("admin"))
        seen = await other.get(f"/console/{address}")
        listed = await get(other, "submit")
        fields = form_of(listed, "logout")
        changed = [
            await other.post(f"/console/{address}/{word}", {**fields, "level": "high"})
            for word in ("check", "test", "send", "stop", "discard")
        ]
        streamed = await other.get(f"/console/live/{address}")
        still = await get(browser, address)

    assert seen.status == streamed.status == 404
    assert "sale.csv" not in listed
    assert [one.status for one in changed] == [404] * 5
    assert "sale.csv" in still


async def test_a_draft_of_another_process_is_named(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        for kind in ("", "live/"):
            there = await browser.get(f"/console/{kind}submit/host-7-41.abc?hop=14")
            assert (there.status, there.headers["location"]) == (307, "?hop=15")
            assert there.headers["connection"] == "close"
        gone = await browser.get("/console/submit/host-7-41.abc?hop=15")
        for hop in ("9" * 5_000, "x", "-1", "%D9%A3"):
            endless = await browser.get(f"/console/submit/host-7-41.abc?hop={hop}")
            assert endless.status == 404

    assert gone.status == 404
    assert "the process host-7-41 of `serve` has this file" in gone.body.decode()


async def test_a_file_that_is_gone_is_told_with_the_key_of_its_task(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        [key] = draft_at(browser, address).typed["key"]
        await checked(browser, address, title="x")
        await submitted(browser, address)
        browser.console.drafts._kept.clear()
        here = (await browser.get(f"/console/{address}")).body.decode()
        name = address.rpartition(".")[2]
        there = (await browser.get(f"/console/submit/host-7-41.{name}?hop=15")).body.decode()
        task = await get(browser, f"tasks/{key}")

    for html in (here, there):
        assert f"look for its task first: its key is {key}," in html
        assert "Give that key" in html
    assert "sale" in task


async def test_a_balancer_leads_to_the_process_that_has_the_file(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await kept(browser)
        own = form_of(await get(browser, address), "check")
        other = browser.other()
        other.console = Console(browser.door, browser.console._sessions)
        other.app = build(browser.door, other.console.routes())
        other.cookies = browser.cookies
        typed = {**own, "level": "high", "title": "typed here"}
        asked = await other.post(f"/console/{address}/check", typed)
        lost = await other.post(f"/console/{address}/check?hop=15", typed)
        done = await browser.post(f"/console/{address}/check?hop=1", typed)
        page = await through(browser, address)

    assert (asked.status, asked.headers["location"]) == (307, "?hop=1")
    assert lost.status == 404
    assert form_of(lost.body.decode(), f"{address}/check")["title"] == "typed here"
    assert done.status == 303
    assert "3 pushes of level high" in page


def test_a_folder_that_is_being_made_is_not_taken_for_one_that_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, started = fcntl.flock, list[int]()

    def overtaken(file: int, how: int) -> None:
        if not started:
            started.append(file)
            remove_left(tmp_path)  # another process starts just now
        lock(file, how)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", overtaken)
    folder = UploadFolder()
    remove_left(tmp_path)
    is_there = folder.is_there
    folder.close()

    assert started
    assert is_there
    assert not folder.path.exists()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left, held, foreign = (tmp_path / f"pushlane-submit-{name}" for name in ("a", "b", "c"))
    for folder in (left, held, foreign):
        folder.mkdir()
        (folder / "rows").touch()
    (left / "lock").touch()
    with (held / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_left(tmp_path)

    assert sorted(tmp_path.iterdir()) == [held, foreign]


async def test_files_go_with_the_session_or_when_nobody_looks(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        first = draft_at(browser, await kept(browser)).rows.path
        fields = form_of(await get(browser, "submit"), "logout")
        await browser.post("/console/logout", fields)
        after_logout = first.exists()
        await browser.log_in()
        address = await kept(browser)
        second = draft_at(browser, address)
        browser.console.drafts.forget(second.used_s + keeping.IDLE_S - 1)
        before = second.rows.path.exists()
        browser.console.drafts.forget(second.used_s + keeping.IDLE_S + 1)
        after = second.rows.path.exists()
        third = await kept(browser)
        discarded = await browser.post(
            f"/console/{third}/discard", form_of(await get(browser, third), "discard")
        )
        folder = second.rows.path.parent
        left = os.listdir(folder)

    assert (after_logout, before, after, left) == (False, True, False, ["lock"])
    assert led_to(discarded, f"/console/{third}/discard") == "/console/submit"
    assert not folder.exists()


class Upload:
    """A file of which one half has come, and the other comes when it is `finished`."""

    def __init__(self, browser: Browser, token: str) -> None:
        form = form_with_file(token, "sale.csv", ROWS.encode())
        self._halves = [form[: len(form) - 30], form[len(form) - 30 :]]
        self._half = asyncio.Event()
        self._rest = asyncio.Event()
        self._status = 0
        headers = {
            "content-type": f"multipart/form-data; boundary={BOUNDARY}",
            "content-length": str(len(form)),
        }
        scope = browser._scope("POST", "/console/submit", {}, headers)
        self._running = asyncio.ensure_future(browser.app(scope, self._receive, self._send))

    async def half_way(self) -> None:
        await asyncio.wait_for(self._half.wait(), 30)

    async def finished(self) -> int:
        """Send the rest; return the status of the answer."""
        self._rest.set()
        await asyncio.wait_for(self._running, 30)
        return self._status

    async def _receive(self) -> dict[str, Any]:
        if len(self._halves) == 1:
            self._half.set()
            await self._rest.wait()
        part = self._halves.pop(0) if self._halves else b""
        return {"type": "http.request", "body": part, "more_body": bool(self._halves)}

    async def _send(self, message: Any) -> None:
        self._status = message.get("status", self._status)


async def test_a_file_is_there_once_it_has_come(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = form_of(await get(browser, "submit"), "submit/rows")
        upload = Upload(browser, fields["_form"])
        await upload.half_way()
        drafts = browser.console.drafts
        name = next(one for one in os.listdir(drafts._folder.path) if one != "lock")  # type: ignore[union-attr]
        address = f"submit/{drafts.place}.{name}"
        drafts.forget(monotonic() + keeping.IDLE_S + 60)
        refused = [
            (await browser.get(f"/console/{address}")).status,
            (await browser.post(f"/console/{address}/discard", fields)).status,
            (await browser.post(f"/console/{address}/check", fields)).status,
        ]
        before = await get(browser, "submit")
        for _ in range(keeping.MOST_OF_ONE - 1):
            await kept(browser)
        many = (await sent(browser)).status
        status = await upload.finished()
        drafts.forget(drafts._kept[f"{drafts.place}.{name}"].used_s + keeping.IDLE_S - 1)
        page = await checked(browser, address, title="x")

    assert refused == [404] * 3
    assert "Files of yours" not in before
    assert many == 503
    assert status == 303
    assert "3 pushes of level high" in page


async def test_a_file_that_comes_when_its_session_ends_is_not_kept(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        fields = form_of(await get(browser, "submit"), "logout")
        upload = Upload(browser, fields["_form"])
        await upload.half_way()
        await browser.post("/console/logout", fields)
        status = await upload.finished()
        left = os.listdir(browser.console.drafts._folder.path)  # type: ignore[union-attr]
        drafts = browser.console.drafts._kept

    assert status == 403
    assert left == ["lock"]
    assert drafts == {}


async def test_files_are_bounded_in_number_and_bytes(settings: Settings) -> None:
    async with browsing(settings.but(upload_max=100_000)) as browser:
        await browser.log_in()
        for _ in range(2):
            await kept(browser, body=ROWS + "x" * 40_000)
        full = await sent(browser, body=ROWS + "x" * 40_000)
        for _ in range(3):
            await kept(browser)
        many = await sent(browser)
        own = form_of(await get(browser, "submit"), "submit/rows")
        rows = {**own, "format": "csv", "rows": ROWS}
        typed = await browser.post("/console/submit/rows", rows)

    assert full.status == many.status == 503
    assert "too many files" in full.body.decode()
    assert "5 files of yours wait already" in many.body.decode()
    assert '<a href="./submit">To your files that wait</a>' in many.body.decode()
    assert "To your files that wait" in typed.body.decode()


async def test_a_token_that_is_revoked_submits_nothing(settings: Settings) -> None:
    async with browsing(settings) as browser:
        made = await do(
            browser.backend, settings, ADMIN, CreateToken.made(name="w", grants="admin")
        )
        await browser.log_in(made.token)
        address = await kept(browser)
        page = await checked(browser, address, title="x")
        draft = draft_at(browser, address)
        await do(browser.backend, settings, ADMIN, RevokeToken(token=made.id))
        browser.door.gate = Gate(browser.backend.documents)  # which remembers a token for a second
        browser.console.drafts.submit(draft, form_of(page, "send")["check"], f"Bearer {made.token}")
        assert draft.job is not None
        assert draft.job.running is not None
        await asyncio.wait([draft.job.running])
        tasks = await do(browser.backend, settings, ADMIN, ListTasks())

    assert draft.done is None
    assert draft.job.error
    assert tasks == []


async def test_a_check_tells_who_ends_later(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.backend.presence.announce(SERVING, 600.0)
        await add(browser, "slow", name="news", total=90_000, level=Level.HIGH)
        await browser.log_in()
        rows = "".join(f"d{number}\n" for number in range(2_000))
        address = await kept(browser, body=f"recipient\n{rows}")
        page = await checked(browser, address, title="x")

    assert re.search(r"2,000 pushes of level high, through in \d+ s", page)
    assert "1 task ends later." in page
    assert 'sale <span class="chip">new</span>' in page
    assert 'tasks/slow">news</a>' in page
