"""Every form of every page: script stays text, a session that ends loses nothing, roles hold."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode, urljoin, urlsplit

import pytest

import pushlane.diagnosis.look
from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.console.app import PAGES
from pushlane.core.names import dead_lane, own_lane
from pushlane.core.push import DeadPush, Kind, Push, encode, encode_dead
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.operations.access import CreateToken
from pushlane.operations.alerts import PutAlert
from pushlane.operations.doing import do
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.rules import PutRule
from pushlane.operations.shares import SetLimit
from pushlane.operations.tasks import SetQuota
from pushlane.pipeline.alerts.alert_store import AlertGroup, AlertStore
from tests.console.browsing import Browser, browsing, led_to
from tests.door.asking import ADMIN, Answer

SCRIPT = "<img src=x onerror=alert(1)><script>alert(1)</script>"
STARTS = ("<img src=x", "<script>alert")
TYPED = "what-was-typed-{}"
PRESSED = ("checkbox", "radio", "hidden", "submit", "file")
MOST_PAGES = 400
_BY_WORD = {kind.word(): kind for kind in OPERATIONS}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the two looks at a task follow each other without a second between."""
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


class Field(NamedTuple):
    """A field of a form; what `is_typed` takes any text."""

    name: str
    value: str
    is_typed: bool


class Form(NamedTuple):
    """A form, where it is, and where it is sent to."""

    page: str
    method: str
    there: str
    fields: tuple[Field, ...]

    def filled(self, text: str) -> dict[str, str]:
        """What is sent with a text in each field that takes one; `{}` in it is the field's name."""
        return {
            one.name: text.replace("{}", one.name) if one.is_typed else one.value
            for one in self.fields
        }

    @property
    def typed(self) -> list[str]:
        return [one.name for one in self.fields if one.is_typed]

    @property
    def kind(self) -> tuple[str, ...]:
        """Forms of one kind are one, on however many pages and rows they are."""
        hidden = [one.value for one in self.fields if one.name in ("operation", "action")]
        return self.method, urlsplit(self.there).path, *hidden, *(one.name for one in self.fields)


class _Reading(HTMLParser):
    """Reads the links and forms of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._form: tuple[str, str] | None = None
        self._fields: list[Field] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.links += [
            urljoin(self.page, has[one])
            for one in ("href", "hx-get")
            if tag != "form" and one in has
        ]
        if tag == "form":
            there = urljoin(self.page, has["action"])
            self._form, self._fields = (has.get("method", "get"), there), []
        elif tag in ("input", "textarea", "select") and has.get("name"):
            is_typed = tag != "select" and has.get("type", "text") not in PRESSED
            self._fields.append(Field(has["name"], has.get("value", ""), is_typed))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._form is not None:
            self.forms.append(Form(self.page, *self._form, tuple(self._fields)))
            self._form = None


class Read(NamedTuple):
    """What was found by who followed all links: pages by their address, and a form of each kind."""

    pages: dict[str, Answer]
    forms: list[Form]


async def read(browser: Browser) -> Read:
    """Follow all links, from the pages that everybody begins with."""
    to_read = [f"/console{page.path}" for page in PAGES]
    pages: dict[str, Answer] = {}
    forms: dict[tuple[str, ...], Form] = {}
    while to_read:
        path = to_read.pop().partition("#")[0]
        if path in pages or not path.startswith("/console/") or "/static/" in path:
            continue
        assert len(pages) < MOST_PAGES
        shown = pages[path] = await browser.get(path)
        reading = _Reading(path)
        reading.feed(shown.body.decode())
        to_read += reading.links
        forms |= {one.kind: one for one in reading.forms if not one.there.endswith("/logout")}
    return Read(pages, [*forms.values()])


async def sent(browser: Browser, form: Form, text: str) -> Answer:
    """Fill a form with a text and send it; the answer is the page that it leads to."""
    fields = form.filled(text)
    if form.method == "get":
        return await browser.get(f"{form.there}?{urlencode(fields)}")
    answer = await browser.post(form.there, fields)
    if answer.status == 303:
        return await browser.get(led_to(answer, form.there).partition("#")[0])
    return answer


def tasks() -> Iterator[Task]:
    for task_id, app, state in (
        ("sale", "shop", State.RUNNING),
        ("odd", SCRIPT, State.PAUSED),
        ("late", "shop", State.DONE),
    ):
        yield Task(
            id=task_id,
            name=SCRIPT,
            key=SCRIPT,
            app=app,
            level=Level.MEDIUM,
            lane=own_lane(task_id),
            state=state,
            reason=SCRIPT,
            total=1_000,
            created_at_ms=now_ms(),
        )


async def fill(backend: Backend, settings: Settings) -> None:
    """Have something of everything, with script in whatever text there is."""
    rests = Resting("sink push (open)", 1_000, f"answers {SCRIPT}", 61_000, is_unproven=True)
    sinks = (
        ServedSink(name="default", slots=10, in_flight=10, delivery_s=0.1),
        ServedSink(name="push", target=SinkTarget("webhook", SCRIPT, "5d1f"), resting=rests),
    )
    process = Process(
        id="d1", kind="dispatcher", pid=7, version="1", serves=("default", "push"), served=sinks
    )
    await backend.presence.announce(process, 600.0)
    for one in tasks():
        await backend.registry.add(one)
    await backend.registry.record([Finished("sale", Kind.DEAD, [1], SCRIPT)])
    await backend.broker.open_lane(dead_lane("sale"))
    dead = DeadPush("sale", 1, 5, SCRIPT, now_ms(), encode(Push("sale", 1, "ada", title=SCRIPT)))
    await backend.broker.publish(dead_lane("sale"), [encode_dead(dead)])
    alert = PutAlert.made(name="odd", to="https://hooks.example.com/", metric="rate", when="< 10")
    weekly = {"audience": SCRIPT, "cron": "0 9 * * MON", "task": {"level": "low", "title": SCRIPT}}
    for operation in (
        SetLimit.made(subject=f"app/{SCRIPT}", rate_per_s=20),
        SetQuota(task="sale", quota=3),
        alert,
        PutRule.made(name="weekly", **weekly),
        CreateToken.made(name=SCRIPT, grants="viewer", apps=(SCRIPT,)),
    ):
        await do(backend, settings, ADMIN, operation)
    store = AlertStore(backend.documents)
    groups = {f'["{SCRIPT}"]': AlertGroup(now_ms() - 5_000, told=True)}
    await store.save_state("odd", groups, await store.load_state("odd"))


async def typed_rows(browser: Browser) -> None:
    """Have rows that wait for their options."""
    fields = await browser.fields("/console/submit", "submit/rows")
    rows = f"recipient,{SCRIPT}\n{SCRIPT},{SCRIPT}\n"
    await browser.post("/console/submit/rows", {**fields, "rows": rows, "format": "csv"})


async def test_script_in_every_text_field_stays_text(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await fill(browser.backend, settings)
        await browser.log_in()
        await typed_rows(browser)
        found = await read(browser)
        shown = {path: one.body.decode() for path, one in found.pages.items()}
        for form in found.forms:
            if form.typed:
                shown[str(form.kind)] = (await sent(browser, form, SCRIPT)).body.decode()
        after = {path: one.body.decode() for path, one in (await read(browser)).pages.items()}

    assert [at for at, html in (shown | after).items() if any(one in html for one in STARTS)] == []
    assert sum("&lt;script&gt;" in html for html in shown.values()) > len(PAGES)


async def test_nothing_that_is_typed_into_any_form_is_lost_with_its_session(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await fill(browser.backend, settings)
        await browser.log_in()
        await typed_rows(browser)
        forms = [one for one in (await read(browser)).forms if one.typed]
        for form in forms:
            browser.cookies.clear()
            there, fields = form.there, form.filled(TYPED)
            if form.method == "get":
                asked = await browser.get(f"{there}?{urlencode(fields)}")
                login = parse_qs(urlsplit(led_to(asked, there)).query)
                back = await browser.log_in(next=login["next"][0])
                query = urlsplit(back.headers["location"]).query
                assert dict(parse_qsl(query, keep_blank_values=True)) == fields, form
                continue
            asked = await browser.post(there, fields)
            reading = _Reading("/console/login")
            reading.feed(asked.body.decode())
            assert asked.status == 401, form
            [kept] = [one.value for one in reading.forms[-1].fields if one.name == "kept"]
            again = await browser.log_in(kept=kept)
            assert again.status == 200, form
            text = again.body.decode()
            assert [one for one in form.typed if TYPED.format(one) not in text] == [], form

    assert len(forms) > len(PAGES)


@pytest.mark.parametrize("apps", [(), ("shop",)])
@pytest.mark.parametrize("role", ["viewer", "submitter", "operator", "admin"])
async def test_nobody_is_shown_a_button_or_a_link_that_they_may_not_press(
    settings: Settings, role: str, apps: tuple[str, ...]
) -> None:
    async with browsing(settings) as browser:
        await fill(browser.backend, settings)
        await browser.log_in(await browser.made(role, *apps))
        home = await browser.get("/console/")
        found = await read(browser)
        pages = {
            path: one.status
            for path, one in found.pages.items()
            if path not in [f"/console{page.path}" for page in PAGES]
        }
        words = [form.there.rpartition("/do/")[2] for form in found.forms if "/do/" in form.there]

    assert home.status == 303
    assert [path for path, status in pages.items() if status in (401, 403)] == []
    kinds = [_BY_WORD[word] for word in words if word != "apply"]
    rank = ["viewer", "submitter", "operator", "admin"]
    assert [kind for kind in kinds if rank.index(kind.role) > rank.index(role)] == []
