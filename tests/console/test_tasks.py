"""The pages of tasks by their HTML: searched, steered with a preview, undone, and by whom."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

import pushlane.diagnosis.look
from pushlane import Settings
from pushlane.backends.queries import receipt_hasher
from pushlane.core.names import dead_lane, own_lane
from pushlane.core.push import DeadPush, Kind, Push, encode, encode_dead
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.receipt import decode_receipts, encode_receipts
from pushlane.operations.doing import do
from pushlane.operations.shares import GetLimit
from pushlane.operations.tasks import CancelTask, GetTask, PauseTask, RescheduleTask, SetQuota
from tests.console.browsing import Browser, browsing, form_of, led_to
from tests.door.asking import ADMIN
from tests.receipt_bodies import body

SCRIPT = "<script>alert(1)</script>"
PARTS = ("why", "life", "results", "dead", "report")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the two looks at a task follow each other without a second between."""
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


async def add(browser: Browser, task_id: str, **fields: Any) -> None:
    made = Task(
        id=task_id,
        level=Level.MEDIUM,
        lane=own_lane(task_id),
        state=State.RUNNING,
        total=100,
        created_at_ms=now_ms(),
    )
    await browser.backend.registry.add(replace(made, **fields))


async def get(browser: Browser, path: str) -> str:
    answer = await browser.get(f"/console/{path}".partition("#")[0])
    assert answer.status == 200, answer.body.decode()
    return answer.body.decode()


def rows(html: str) -> list[str]:
    """The ids of the tasks that are shown, in their order."""
    return re.findall(r'<tr id="task-([^"]+)"', html)


def links(html: str, text: str) -> list[str]:
    """The addresses behind links with a text, or a label."""
    found = re.findall(r'<a [^>]*?href="\.?/?([^"]*)"([^>]*)>([^<]*)</a>', html)
    return [unescape(there) for there, more, shown in found if text in shown or text in more]


async def now(browser: Browser, task: str) -> Any:
    return await do(browser.backend, Settings(), ADMIN, GetTask(task=task))


async def press(browser: Browser, page: str, action: str, **more: str) -> str:
    """Press a button of a page, and return where it leads."""
    fields = form_of(page, action)
    return led_to(
        await browser.post(f"/console/{action}", {**fields, **more}), f"/console/{action}"
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["c", "b", "a"]),
        ("?find=&state=&app=&level=&sink=", ["c", "b", "a"]),
        ("?find=SALE&state=any", ["d", "a"]),
        ("?app=bank", ["c"]),
        ("?state=paused", ["b"]),
        ("?level=high", ["b"]),
        ("?sort=name", ["c", "b", "a"]),
        ("?sort=-quota", ["a", "c", "b"]),
    ],
)
async def test_a_view_of_tasks_is_an_address(
    settings: Settings, query: str, found: list[str]
) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale", quota=9, created_at_ms=1)
        await add(browser, "b", name="C", state=State.PAUSED, level=Level.HIGH, created_at_ms=2)
        await add(browser, "c", name="bills", app="bank", quota=3, created_at_ms=3)
        await add(browser, "d", key="old-sale", state=State.DONE, created_at_ms=4)
        await browser.log_in()
        html = await get(browser, f"tasks{query}")

    assert rows(html) == found
    assert f"{len(found)} task" in html


async def test_a_view_keeps_its_filters_where_it_leads(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for number in range(51):
            await add(browser, f"t{number:02}", app="shop", created_at_ms=number + 1)
        await add(browser, "other", app="bank")
        await browser.log_in()
        first = await get(browser, "tasks?app=shop&sort=created")
        [there] = links(first, "Next")
        second = await get(browser, there)
        [by_name] = [one for one in links(first, "Task") if "sort" in one]
        [turned] = links(first, "Created")
        [edit] = links(first, "Quota of t00")

    assert len(rows(first)) == 50
    assert rows(second) == ["t50"]
    assert "51 tasks" in second
    assert by_name == "tasks?app=shop&sort=name"
    assert turned == "tasks?app=shop&sort=-created"
    assert edit == "tasks?app=shop&sort=created&quota=t00#quota"
    assert 'value="shop"' in first
    assert 'aria-sort="ascending"><a href="./tasks?app=shop&amp;sort=-created"' in first


async def test_what_cannot_be_asked_is_told(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        refused = await browser.get("/console/tasks?sort=colour")
        empty = await get(browser, "tasks")
        none = await get(browser, "tasks?find=nothing")
        gone = await browser.get("/console/tasks/no-such-task")

    assert (refused.status, gone.status) == (400, 404)
    assert "pushlane submit" in empty
    assert "No task fits." in none


async def test_a_quota_counts_once_it_is_pressed_and_is_undone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in()
        [edit] = links(await get(browser, "tasks?find=sale"), "Quota of sale")
        panel = form_of(await get(browser, edit), "preview")
        there = f"preview?operation=set-quota&task=a&quota=7&back={panel['back']}"
        preview = await get(browser, there)
        before = (await now(browser, "a")).quota
        back = await press(browser, preview, "do/apply")
        after = (await now(browser, "a")).quota
        page = await get(browser, back.removeprefix("/console/"))
        [undo] = links(page, "Undo set-quota")
        undone = await get(browser, undo)
        await press(browser, undone, "do/apply")

        assert (await now(browser, "a")).quota == 1

    assert panel["quota"] == "1"
    assert panel["operation"] == "set-quota"
    assert "Set the quota of sale to 7" in preview
    assert "pushlane quota a 7 --preview" in preview
    assert (
        'curl -sX PUT "$URL/v1/tasks/a/quota" -H "$AUTH" -H "If-Match: *" -d \'{"quota":7}\''
        in unescape(preview)
    )
    assert (before, after) == (1, 7)
    assert back == "/console/tasks?find=sale"
    assert "set-quota is done." in page
    assert "quota 1 → quota 7" in page
    assert "Set the quota of sale to 1" in undone


async def test_what_is_over_ten_minutes_old_is_not_undone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await do(browser.backend, settings, ADMIN, SetQuota(task="a", quota=3))
        await browser.log_in()
        assert links(await get(browser, "tasks"), "Undo")
        later_ms = now_ms() + 600_001
        monkeypatch.setattr("pushlane.console.steering.now_ms", lambda: later_ms)
        assert not links(await get(browser, "tasks"), "Undo")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (PauseTask(task="a", reason="late"), "Resume sale"),
        (SetQuota(task="a", quota=5), "Set the quota of sale to 1"),
        (CancelTask(task="a"), ""),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, str) else "",
)
async def test_an_undo_is_what_was_before_as_a_preview(
    settings: Settings, change: Any, text: str
) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await do(browser.backend, settings, ADMIN, change)
        await browser.log_in()
        found = links(await get(browser, "tasks/a"), "Undo")
        shown = [await get(browser, one.removeprefix("./")) for one in found]

    assert [f"<h1>{text}</h1>" in one for one in shown] == ([True] if text else [])


async def test_a_change_that_was_overtaken_is_previewed_again(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await browser.log_in()
        preview = await get(browser, "preview?operation=set-quota&task=a&quota=7")
        await do(browser.backend, settings, ADMIN, SetQuota(task="a", quota=3))
        refused = await browser.post("/console/do/apply", form_of(preview, "do/apply"))
        html = refused.body.decode()
        [again] = re.findall(r'href="\.\./(preview[^"]*)">Preview the change again', html)
        anew = await get(browser, unescape(again))
        await press(browser, anew, "do/apply")

        assert (await now(browser, "a")).quota == 7
    assert refused.status == 412 or refused.status == 409
    assert "somebody has changed the same" in html


@pytest.mark.parametrize("quota", ["0", "x", "10001", SCRIPT])
async def test_a_quota_that_cannot_be_has_no_button(settings: Settings, quota: str) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await browser.log_in()
        html = (
            await browser(
                "GET",
                "/console/preview",
                query={"operation": "set-quota", "task": "a", "quota": quota},
                token="",
            )
        ).body.decode()

    assert 'role="alert"' in html
    assert "do/apply" not in html
    assert SCRIPT not in html


async def test_pause_and_resume_are_pressed_and_cancel_is_confirmed(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in()
        page = await get(browser, "tasks")
        await press(browser, page, "do/pause-task")
        paused = await get(browser, "tasks")
        state = (await now(browser, "a")).state
        await press(browser, paused, "do/resume-task")
        resumed = (await now(browser, "a")).state
        [there] = links(paused, "Cancel sale")
        confirm = await get(browser, there)
        unharmed = (await now(browser, "a")).state
        await press(browser, confirm, "do/apply")

        assert (await now(browser, "a")).state == "cancelled"
        assert rows(await get(browser, "tasks")) == []
    assert (state, resumed, unharmed) == ("paused", "running", "running")
    assert "do/pause-task" not in paused
    assert "are never sent" in confirm
    assert "pushlane pause TASK" in page


async def test_a_level_is_moved_and_moved_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in()
        [there] = links(await get(browser, "tasks"), "Promote sale")
        await press(browser, await get(browser, there), "do/apply")
        promoted = (await now(browser, "a")).level
        [undo] = links(await get(browser, "tasks"), "Undo")
        preview = await get(browser, undo)
        await press(browser, preview, "do/apply")

        assert (promoted, (await now(browser, "a")).level) == ("high", "medium")
    assert "pushlane demote a --to medium" in preview


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("viewer", set()),
        ("submitter", {"Pause sale", "Cancel sale"}),
        ("operator", {"Pause sale", "Cancel sale", "Promote sale", "Demote sale", "Quota of sale"}),
    ],
)
async def test_a_role_sees_what_it_may_press(
    settings: Settings, role: str, words: set[str]
) -> None:
    every = ("Pause sale", "Cancel sale", "Promote sale", "Demote sale", "Quota of sale")
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in(await browser.made(role))
        html = await get(browser, "tasks")
        preview = await get(browser, "preview?operation=set-quota&task=a&quota=7")
        one = await get(browser, "tasks/a?quota=1")
        token = form_of(html, "logout")
        applied = await browser.post(
            "/console/do/set-quota", {**token, "task": "a", "quota": "3", "_seen": "*"}
        )

        assert (await now(browser, "a")).quota == (3 if role == "operator" else 1)
    assert {word for word in every if f'aria-label="{word}' in html} == words
    assert ("do/apply" in preview) == (role == "operator")
    assert ("quota-number" in one) == (role == "operator")
    assert (applied.status == 403) == (role != "operator")


async def test_a_token_of_an_app_sees_its_own_alone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "mine", app="shop")
        await add(browser, "theirs", app="bank", name="secret")
        await browser.log_in(await browser.made("operator", "shop"))
        html = await get(browser, "tasks?state=any")
        refused = [
            (await browser.get(f"/console/{path}")).status
            for path in ("tasks/theirs", *(f"{part}/theirs" for part in PARTS))
        ]
        preview = await get(browser, "preview?operation=cancel-task&task=theirs")

    assert rows(html) == ["mine"]
    assert "1 task<" in html
    assert refused == [404] * (1 + len(PARTS))
    assert "do/apply" not in preview
    assert "secret" not in preview


async def test_a_task_has_its_counts_its_life_and_its_reasons(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale", not_before_ms=5)
        for kind, seqs, why in (
            (Kind.DELIVERED, range(1, 41), ""),
            (Kind.DEAD, range(41, 51), "HTTP 410"),
        ):
            await browser.backend.registry.record([Finished("a", kind, [*seqs], why)])
        await do(browser.backend, settings, ADMIN, PauseTask(task="a", reason="too late"))
        await browser.log_in()
        page = await get(browser, "tasks/a")
        why, life, results = [await get(browser, f"{part}/a") for part in PARTS[:3]]

    assert "<h1>sale</h1>" in page
    assert "50 of 100" in page
    assert "HTTP 410 10" in page
    assert 'hx-get="../why/a"' in page
    assert "it is paused: too late" in why
    assert "pushlane resume a" in why
    told = life.partition('<ol class="life">')[2]
    assert told.index("may start") < told.index("submitted") < told.index("pause-task")
    assert "by root" in life
    assert "no receipt of 40 of them is kept" in results
    assert "None of it is known yet" not in page


async def test_a_task_is_limited_rescheduled_and_cloned(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in()
        page = await get(browser, "tasks/a")
        limited = await get(
            browser, "preview?operation=set-limit&subject=task%2Fa&rate_per_s=50%2Fs&back=tasks%2Fa"
        )
        back = await press(browser, limited, "do/apply")
        limit = await do(browser.backend, settings, ADMIN, GetLimit(subject="task/a"))
        moved = await press(browser, page, "do/reschedule-task", not_before_ms="2030-01-02T10:00")
        wrong = await browser.post(
            "/console/do/reschedule-task",
            {
                **form_of(await get(browser, "tasks/a"), "do/reschedule-task"),
                "expires_at_ms": "2030-02-30T10:00",
            },
        )
        after = await now(browser, "a")

    assert back == moved == "/console/tasks/a"
    assert "pushlane limit task/a --rate 50/s" in limited
    assert limit.limit.rate_per_s == 50
    assert after.not_before_ms == 1_893_578_400_000
    assert after.expires_at_ms == 0
    assert (wrong.status, "2030-02-30T10:00" in wrong.body.decode()) == (400, True)
    assert form_of(page, "do/clone-task")["task"] == "a"


async def test_times_that_somebody_else_has_set_are_not_set_over(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await browser.log_in()
        fields = form_of(await get(browser, "tasks/a"), "do/reschedule-task")
        other = RescheduleTask(task="a", expires_at_ms=1_900_000_000_000)
        await do(browser.backend, settings, ADMIN, other)
        typed = {**fields, "expires_at_ms": "2031-01-01T00:00"}
        refused = await browser.post("/console/do/reschedule-task", typed)

        assert (await now(browser, "a")).expires_at_ms == 1_900_000_000_000
    assert refused.status == 412
    assert "expires_at_ms 1900000000000" in refused.body.decode()
    assert form_of(refused.body.decode(), "reschedule-task")["expires_at_ms"] == "2031-01-01T00:00"


async def test_one_push_is_looked_up_with_its_recipient_masked(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        said = body("a", [1], at_ms=now_ms() - 60_000, reason=f"HTTP 410 {SCRIPT}")
        await browser.backend.receipts.append([said])
        await browser.log_in()
        found = await get(browser, "push?task=a&seq=1")
        none = await get(browser, "push?task=a&seq=2")
        gone = await browser.get("/console/push?task=a&seq=101")

    assert "HTTP 410 &lt;script&gt;" in found
    assert "There is no receipt of it" in none
    assert gone.status in (400, 404, 409)
    assert "pushlane trace a-1 --reveal" in found


async def test_one_push_shows_where_its_wait_went(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        waits = {"slot": 60_000, "quiet": 540_000, f"a{SCRIPT}": 1}
        told, older = body("a", [1], at_ms=now_ms(), waits=waits), body("a", [2], at_ms=now_ms())
        await browser.backend.receipts.append([told, older])
        await browser.log_in()
        found = await get(browser, "push?task=a&seq=1")
        unknown = await get(browser, "push?task=a&seq=2")
        results = await get(browser, "results/a")

    assert "10 min from when it was submitted" in found
    assert "Its recipient had quiet hours." in found
    assert re.search(r"quiet hours</th><td class=\"number\">9 min</td>.* 90 %", found)
    assert "<script>" not in found + results
    assert "Waited: not known: written by an older version." in unknown
    assert "Where the wait of 1 of 2 delivered pushes went is not known" in results
    assert "The sink rested" not in results


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def traced(browser: Browser) -> None:
    """Two pushes of one trace, of two apps: the first was tried twice, by two clocks."""
    at_ms = now_ms() - 60_000
    for task, app in (("a", "shop"), ("b", "bank")):
        await add(browser, task, name=f"of {app}", app=app)
    first, last = {"quiet": 400}, {"quiet": 400, "tried": 100, "retry": 900}
    told = [
        body("a", [1], "retry", at_ms=at_ms, reason=f"busy {SCRIPT}", waits=first, trace_id=PARENT),
        body("a", [1], at_ms=at_ms - 5_000, attempt=3, waits=last, trace_id=PARENT),
        body("b", [1], at_ms=at_ms, app="bank", trace_id=PARENT),
        body("a", [1], "clicked", at_ms=at_ms + 9_000, attempt=0),
    ]
    await browser.backend.receipts.append(told)


def steps_in(page: str) -> list[str]:
    """What the steps on a page are, in its order."""
    found = re.findall(
        r"<tr><td>.*?</td><td class=.number nowrap.>.*?</td><td>(.*?)</td></tr>", page
    )
    return [" ".join(re.sub("<.*?>", "", one).split()) for one in found]


async def test_one_push_shows_its_steps_in_the_order_of_attempts(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await traced(browser)
        await browser.log_in()
        found = await get(browser, "push?push=a-1")

    assert steps_in(found) == [
        "submitted",
        "waited: quiet hours",
        "attempt 1 at webhook: retry, busy &lt;script&gt;alert(1)&lt;/script&gt;",
        "receipts are missing here: there were attempts up to 2",
        "waited: backoff",
        "attempt 3 at webhook: delivered its clock is behind that of the step before, by 5.1 s"
        " at least",
        "clicked, says the device",
    ]
    assert "Read from the log of receipts" in found
    assert re.search(r"1.4 s from when it was submitted to its last attempt", found)
    assert f'href="./push?push={PARENT}"' in found


@pytest.mark.parametrize("what", [PARENT, PARENT[3:35]])
async def test_a_trace_shows_all_its_pushes_that_one_may_see(settings: Settings, what: str) -> None:
    async with browsing(settings) as browser:
        await traced(browser)
        await browser.log_in()
        all_of_it = await get(browser, f"push?push={what}")
        await browser.log_in(await browser.made("viewer", "shop"))
        mine = await get(browser, f"push?push={what}")

    assert "2 pushes of this trace" in all_of_it
    assert {one for one in ("a-1", "b-1") if f"push?push={one}" in all_of_it} == {"a-1", "b-1"}
    assert "1 push of this trace" in mine
    assert "b-1" not in mine
    assert f"pushlane trace {what}" in mine


@pytest.mark.parametrize("what", ["ada", "nobody-1", "a-999999", "b-1", "x" * 10_240, SCRIPT])
async def test_what_is_no_push_and_no_trace_is_refused(settings: Settings, what: str) -> None:
    async with browsing(settings) as browser:
        await traced(browser)
        await browser.backend.receipts.append([await said_to(browser, "ada")])
        await browser.log_in(await browser.made("viewer", "shop"))
        found = await browser.get(f"/console/push?push={quote(what)}")

    assert found.status in (400, 404)
    assert steps_in(found.body.decode()) == []
    assert "<script>" not in found.body.decode()


async def revealable(browser: Browser) -> None:
    """A task whose one push died, which its lane of the dead still has."""
    await add(browser, "a", name="sale", app="shop")
    push = encode(Push("a", 1, f"anna {SCRIPT}", title="Hi"))
    dead = DeadPush("a", 1, 1, "gone", now_ms(), push)
    await browser.backend.broker.open_lane(dead_lane("a"))
    await browser.backend.broker.publish(dead_lane("a"), [encode_dead(dead)])


async def said_to(browser: Browser, recipient: str) -> bytes:
    """The receipt of a push to somebody."""
    hasher = await receipt_hasher(browser.backend.receipts, Settings())
    batch = decode_receipts(body("a", [1], at_ms=now_ms() - 60_000))
    batch.recipient_hash = hasher.hashes([recipient])
    return encode_receipts(batch)


async def test_a_push_is_revealed_by_a_form_alone_and_the_audit_says_by_whom(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await revealable(browser)
        await browser.log_in()
        masked = await get(browser, "push?push=a-1&reveal=1")
        fields = form_of(masked, "push")
        shown = await browser.post("/console/push", fields)
        forged = await browser.post("/console/push", {**fields, "_form": "x"})
        audit = await get(browser, "audit")

    assert "anna" not in masked
    asked = "{&#34;what&#34;:&#34;a-1&#34;,&#34;reveal&#34;:true}"
    assert (
        f"curl -sX POST &#34;$URL/v1/receipts/trace&#34; -H &#34;$AUTH&#34; -d &#39;{asked}&#39;"
        in masked
    )
    assert shown.status == 200
    assert "anna &lt;script&gt;" in shown.body.decode()
    assert (forged.status, "anna" in forged.body.decode()) == (403, False)
    assert audit.count("push/a-1") == 1
    assert "anna" not in audit


async def test_a_viewer_is_offered_no_reveal_and_refused_it(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await revealable(browser)
        await browser.log_in(await browser.made("viewer"))
        page = await get(browser, "push?push=a-1")
        own = form_of(await get(browser, "push"), "recipient")["_form"]
        asked = {"push": "a-1", "reveal": "1", "_form": own}
        refused = await browser.post("/console/push", asked)

    assert "Reveal recipient" not in page
    assert refused.status == 403
    assert "anna" not in refused.body.decode()


async def test_a_recipient_is_looked_up_in_no_address(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.backend.receipts.append([await said_to(browser, "ada")])
        await browser.log_in()
        fields = form_of(await get(browser, "push"), "recipient")
        found = await browser.post("/console/recipient", {**fields, "recipient": "ada"})
        nobody = await browser.post("/console/recipient", {**fields, "recipient": "bob"})
        again = await browser.get("/console/recipient")

    assert 'href="./push?push=a-1"' in found.body.decode()
    assert "ada" not in found.body.decode()
    assert "--recipient RECIPIENT" in found.body.decode()
    assert "No receipt is for this recipient" in nobody.body.decode()
    assert "Suppressed nowhere" in nobody.body.decode()
    assert led_to(again, "/console/recipient") == "/console/push"


async def test_a_masked_recipient_leads_to_its_other_pushes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for task, name in (("a", SCRIPT), ("b", "bills")):
            await add(browser, task, name=name)
            said = body(task, [1, 2], at_ms=now_ms() - 60_000)
            await browser.backend.receipts.append([said])
        await browser.log_in()
        page = await get(browser, "push?push=b-2")
        fields = form_of(page, "recipient")
        found = (await browser.post("/console/recipient", fields)).body.decode()
        forged = await browser.post("/console/recipient", {**fields, "_form": "x"})
        await browser.log_in(await browser.made("submitter"))
        mine = await get(browser, "push?push=b-2")
        own = form_of(await get(browser, "push"), "recipient")["_form"]
        refused = await browser.post("/console/recipient", {**fields, "_form": own})

    assert "All pushes to d***" in page
    assert fields.keys() == {"_form", "recipient_of"}
    assert re.findall(r'<th scope="row"><a href="./push\?push=([^"]*)"', found) == ["a-2", "b-2"]
    assert "pushlane results --recipient-of b-2" in found
    assert "Suppressed" not in found
    assert "All pushes to" not in mine
    assert (forged.status, refused.status) == (403, 403)


async def test_a_part_whose_session_is_over_is_no_login(settings: Settings) -> None:
    async with browsing(settings) as browser:
        part = await browser.get("/console/why/a", {"hx-request": "true"})

    assert (part.status, part.body) == (401, b"")


async def test_dead_pushes_are_sent_again_by_who_may(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", state=State.DONE)
        await browser.backend.broker.open_lane(dead_lane("a"))
        for seq in (1, 2):
            body = encode(Push("a", seq, "ada"))
            dead = DeadPush("a", seq, 5, f"HTTP 410 {SCRIPT}", now_ms(), body)
            await browser.backend.broker.publish(dead_lane("a"), [encode_dead(dead)])
        viewer = browser.other()
        await viewer.log_in(await browser.made("viewer"))
        seen = await get(viewer, "dead/a")
        await browser.log_in()
        html = await get(browser, "dead/a")
        forms = re.findall(r'name="(pushes|task)" value="([^"]+)"', html)
        await browser.post("/console/do/retry-dead", {**form_of(html, "logout"), "pushes": "a-1"})
        told = await get(browser, "tasks/a")
        left = await get(browser, "dead/a")

    assert "a-1" in seen
    assert "retry-dead" not in seen
    assert forms == [("pushes", "a-1"), ("pushes", "a-2"), ("task", "a")]
    assert "1 dead push is sent again" in told
    assert "a-1<" not in left
    assert "a-2<" in left
    assert SCRIPT not in html
    assert "ada" not in html


async def test_dead_pushes_of_an_expired_task_have_no_button_and_are_refused_with_why(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", state=State.EXPIRED, expires_at_ms=1)
        await browser.backend.broker.open_lane(dead_lane("a"))
        dead = DeadPush("a", 1, 5, "HTTP 410", now_ms(), encode(Push("a", 1, "ada")))
        await browser.backend.broker.publish(dead_lane("a"), [encode_dead(dead)])
        await browser.log_in()
        html = await get(browser, "dead/a")
        sent = {**form_of(html, "logout"), "task": "a"}
        refused = await browser.post("/console/do/retry-dead", sent)

    assert "a-1<" in html
    assert "do/retry-dead" not in html
    assert refused.status == 409
    assert "nothing is sent again: task a has expired" in refused.body.decode()


async def test_script_in_every_name_is_text(settings: Settings) -> None:
    names = {"name": SCRIPT, "key": f"{SCRIPT}-key", "app": SCRIPT, "reason": SCRIPT}
    async with browsing(settings) as browser:
        await add(browser, "a", sinks=(SCRIPT,), quiet=SCRIPT, zone=SCRIPT, **names)
        await browser.backend.registry.record([Finished("a", Kind.DEAD, [1], SCRIPT)])
        await do(browser.backend, settings, ADMIN, PauseTask(task="a", reason=SCRIPT))
        await browser.log_in()
        paths = ["tasks?quota=a", "tasks/a?quota=1", *(f"{part}/a" for part in PARTS)]
        paths += [
            f"tasks?{name}=%22%3E%3Cscript%3E"
            for name in ("find", "app", "sink", "cursor", "quota")
        ]
        paths += [f"preview?operation=resume-task&task=a&back=%22%3E%3Cscript%3E{SCRIPT}"]
        shown = [(await browser.get(f"/console/{path}")).body.decode() for path in paths]

    for path, html in zip(paths, shown, strict=True):
        assert "<script>" not in html, path
    assert "&lt;script&gt;" in shown[0]


async def test_an_open_view_is_sent_what_changes_without_what_is_being_typed(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in()
        async with browser.stream("/console/live/tasks?find=sale&quota=a") as stream:
            before = await stream.html()
            await do(browser.backend, settings, ADMIN, PauseTask(task="a"))
            after = await stream.html()

    assert 'data-state="paused"' not in before
    assert 'data-state="paused"' in after
    assert "quota-number" not in before + after


async def test_a_part_is_rooted_where_it_is_shown(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await browser.log_in()
        there = "/console/preview?operation=set-quota&task=a&quota=7"
        parts = [
            (await browser.get(there, {"hx-request": "true", "hx-current-url": page})).body.decode()
            for page in (
                "https://push.test/x/console/tasks/a?quota=1",
                "https://push.test/console/tasks",
            )
        ]

    assert [re.findall(r'action="([./]*)do/apply"', part) for part in parts] == [["../"], ["./"]]
    assert "<html" not in parts[0]
