"""Operations on alerts: whose one is, what is seen of it, and what it measures."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pushlane import BadInput, Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.task import now_ms
from pushlane.model.access import Access, Role
from pushlane.operations.alerts import (
    AcknowledgeAlert,
    GetAlert,
    ListAlerts,
    MeasureAlert,
    PutAlert,
    RemoveAlert,
)
from pushlane.operations.doing import do
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Beside, Caller
from pushlane.pipeline.alerts.alert_rule import Metric
from pushlane.pipeline.alerts.alert_store import AlertGroup, AlertMessage, AlertStore
from pushlane.pipeline.reports.query import parse_where
from pushlane.util.errors import NotFound
from tests.command import run_here
from tests.receipt_stores import store_of

ADMIN = Caller("ada", "cli")
URL = "https://hooks.example.com/alerts?token=s3cret"


def alert(name: str = "failing", **given: Any) -> PutAlert:
    return PutAlert.made(**{"name": name, "metric": "dead", "when": "> 5", "to": URL, **given})


def of(*apps: str) -> Caller:
    return Caller("bob", "http", Access(Role.OPERATOR, frozenset(apps)))


async def test_an_alert_is_saved_and_removed_and_the_audit_says_so(settings: Settings) -> None:
    async with connect(settings) as backend:
        saved = await do(backend, settings, ADMIN, alert(app="shop", window_s="10m", for_s="1h"))
        shown = await do(backend, settings, ADMIN, GetAlert(name="failing"))
        await do(backend, settings, ADMIN, RemoveAlert(name="failing"))
        entries = await do(backend, settings, ADMIN, ListAudit())

    assert (saved.where, saved.window_s, saved.for_s) == (("app=shop",), 600, 3600)
    assert (saved.to, shown.groups) == ("hooks.example.com", {})
    assert [(one.operation, one.app) for one in entries] == [
        ("remove-alert", "shop"),
        ("put-alert", "shop"),
    ]
    assert "s3cret" not in repr((saved, shown, entries))


@pytest.mark.parametrize(
    ("given", "seen_by"),
    [
        ({"app": "shop"}, {"shop"}),
        ({"where": ("app=shop",)}, {"shop"}),
        ({"where": ("app=shop|news", "sink=fcm")}, set()),
        ({"where": ("app=shop|news", "app=news|paper")}, set()),
        ({"where": ("app!=news",)}, set()),
        ({"where": ("app=shop|",)}, set()),
        ({"where": ("sink=shop",)}, set()),
        ({"by": "app"}, set()),
        ({"metric": "lag_s"}, set()),
        ({"app": 'a,"b'}, {'a,"b'}),
    ],
)
async def test_it_is_of_the_apps_that_its_conditions_name(
    settings: Settings, given: Any, seen_by: set[str]
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(**given))
        for app in ("shop", "news", "paper", 'a,"b'):
            found = await do(backend, settings, of(app), ListAlerts())
            assert bool(found) == (app in seen_by)
            if not found:
                for asked in (GetAlert, MeasureAlert, AcknowledgeAlert, RemoveAlert):
                    with pytest.raises(NotFound, match="there is no alert 'failing' "):
                        await do(backend, settings, of(app), asked(name="failing"))


async def test_one_of_two_apps_is_seen_by_who_sees_both(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(where=("app=shop|news",)))

        assert await do(backend, settings, of("shop", "news"), ListAlerts())
        assert not await do(backend, settings, of("shop", "paper"), ListAlerts())


async def test_one_of_a_caller_of_an_app_is_of_that_app(settings: Settings) -> None:
    async with connect(settings) as backend:
        own = await do(backend, settings, of("shop"), alert())
        by_where = await do(backend, settings, of("shop"), alert("b", where=("app=shop",)))
        for given in ({}, {"where": ("app=paper",)}, {"where": ("app=shop|paper",)}):
            with pytest.raises(BadInput, match="name one of yours with `app`: news, shop"):
                await do(backend, settings, of("shop", "news"), alert("c", **given))
        with pytest.raises(NotFound, match="no app 'news' that you may see"):
            await do(backend, settings, of("shop"), alert("c", app="news"))
        with pytest.raises(BadInput, match="lag_s measures the whole pipeline"):
            await do(backend, settings, of("shop"), alert("c", metric="lag_s"))

    assert (own.where, by_where.where) == (("app=shop",), ("app=shop",))


async def test_anothers_alert_is_never_replaced_and_nothing_of_it_is_told(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(app="news"))
        for replace in (False, True):
            with pytest.raises(BadInput) as caught:
                await do(backend, settings, of("shop"), alert(replace=replace))
            assert str(caught.value) == ("there is an alert 'failing' already; choose another name")
        [left] = await do(backend, settings, ADMIN, ListAlerts())

    assert left.where == ("app=news",)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"metric": "failure-rate"}, "did you mean 'failure_rate'"),
        ({"when": "much"}, "not of a form"),
        ({"where": ("appp=shop",)}, "did you mean 'app'"),
        ({"to": "hooks.example.com"}, "not one like https://example.com/alerts"),
        ({"name": "two words"}, "alert name 'two words' cannot be used"),
        ({"window_s": "30s"}, "window_s"),
        ({"app": "shop|news"}, "no alert can be about the app 'shop|news' alone"),
    ],
)
async def test_what_cannot_be_is_refused(settings: Settings, given: Any, told: str) -> None:
    async with connect(settings) as backend:
        with pytest.raises(BadInput) as caught:
            await do(backend, settings, ADMIN, alert(**given))

        assert told in str(caught.value)
        assert await do(backend, settings, ADMIN, ListAlerts()) == []


async def test_it_measures_its_groups_page_by_page(settings: Settings) -> None:
    at_ms = now_ms() - 120_000
    sinks = ("apns", "fcm", "webpush")
    rows = [{"outcome": "dead", "responded_at_ms": at_ms, "sink": sink} for sink in sinks]
    store_of(Path(settings.reports_root), rows * 10)
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(by="sink", app="shop"))
        whole = await do(backend, settings, of("shop"), MeasureAlert(name="failing"))
        beside = Beside()
        asked = MeasureAlert(name="failing", limit=2)
        first = await do(backend, settings, of("shop"), asked, beside=beside)
        rest = MeasureAlert(name="failing", limit=2, cursor=beside.next)
        second = await do(backend, settings, of("shop"), rest)

    assert [(one.group, one.receipts, one.alarming) for one in whole] == [
        (sink, 10, True) for sink in sinks
    ]
    assert [*first, *second] == whole


async def test_a_list_says_how_many_groups_of_each_fire(settings: Settings) -> None:
    async with connect(settings) as backend:
        for name in ("failing", "quiet"):
            await do(backend, settings, ADMIN, alert(name))
        store = AlertStore(backend.documents)
        over = AlertGroup(5, told=True, pending=recovered())
        groups = {"a": AlertGroup(9, told=True), "b": AlertGroup(7, told=True)}
        waits = {"waits": AlertGroup(3), "over": over}
        await store.save_state("failing", {**groups, **waits}, await store.load_state("failing"))
        found = await do(backend, settings, ADMIN, ListAlerts())

    assert [(one.name, one.firing, one.firing_since_ms) for one in found] == [
        ("failing", 2, 7),
        ("quiet", 0, None),
    ]


def recovered() -> AlertMessage:
    return AlertMessage(
        id="1",
        alert="failing",
        status="recovered",
        metric="dead",
        when="> 5",
        value=1.0,
        n=1,
        group={},
        window_s=300,
        since_ms=5,
        at_ms=8,
        text="it is over",
    )


FIRES = AlertGroup(1_000, told=True, told_at_ms=2_000)
PENDING = AlertGroup(3_000)


async def fire(backend: Backend, **groups: AlertGroup) -> None:
    """The last look has left these groups of the alert `failing`."""
    store = AlertStore(backend.documents)
    state = {f'["{name}"]': one for name, one in groups.items()}
    await store.save_state("failing", state, await store.load_state("failing"))


@pytest.mark.parametrize("metric", list(Metric))
async def test_what_fires_says_what_it_means_and_how_to_look(
    settings: Settings, metric: Metric
) -> None:
    by = {Metric.LAG_S: "", Metric.SHARE_ERROR: "level"}.get(metric, "app")
    group = '["a,b"]' if by else "[]"
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(metric=metric, when="> 0.5", by=by))
        store = AlertStore(backend.documents)
        state = {group: AlertGroup(1_000, told=True)}
        await store.save_state("failing", state, await store.load_state("failing"))
        found = await do(backend, settings, ADMIN, GetAlert(name="failing"))
    one = found.groups[group]

    assert re.match(r"It fires when the .* is over (0\.5|50 %).*\. [^.]*\.$", found.means)
    assert one.of == ({by: "a,b"} if by else {})
    words = shlex.split(one.command)
    assert words[0] == "pushlane"
    assert "--help" not in words
    assert "Usage" in run_here(*words[1:], "--help").stdout
    where = [text for flag, text in pairwise(words) if flag == "--where"]
    assert parse_where(where)[1:] == (parse_where(['"app=a,b"']) if where else ())


async def test_what_fires_is_acknowledged_by_somebody_and_taken_back(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(by="sink", app="shop"))
        await fire(backend, fcm=FIRES, apns=FIRES, sms=PENDING)
        known = AcknowledgeAlert(name="failing", reason="we know")
        shown = await do(backend, settings, of("shop"), known)
        [listed] = await do(backend, settings, ADMIN, ListAlerts())
        one = AcknowledgeAlert(name="failing", group='["fcm"]', undo=True)
        left = await do(backend, settings, ADMIN, one)
        [back, done, _] = await do(backend, settings, ADMIN, ListAudit())

    by = {
        name: (one.acknowledged_by, one.acknowledged_reason) for name, one in shown.groups.items()
    }
    assert by == {
        '["fcm"]': ("bob", "we know"),
        '["apns"]': ("bob", "we know"),
        '["sms"]': (None, None),
    }
    assert (listed.firing, listed.acknowledged, listed.alarming) == (2, 2, 1)
    assert [name for name, one in left.groups.items() if one.acknowledged_by] == ['["apns"]']
    assert (done.operation, done.app) == ("acknowledge-alert", "shop")
    assert (done.before, done.after) == ({"acknowledged": 0}, {"acknowledged": 2})
    assert (back.before, back.after) == ({"acknowledged": 2}, {"acknowledged": 1})


async def test_who_acknowledges_all_leaves_what_others_have_said(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(by="sink"))
        store, fires = AlertStore(backend.documents), AlertGroup(1_000, told=True)
        groups = {'["a"]': fires, '["b"]': fires}
        await store.save_state("failing", groups, await store.load_state("failing"))
        one = AcknowledgeAlert(name="failing", group='["a"]', reason="first")
        await do(backend, settings, ADMIN, one)
        rest = AcknowledgeAlert(name="failing", reason="rest")
        found = await do(backend, settings, ADMIN, rest)
        again = AcknowledgeAlert(name="failing", group='["a"]', reason="anew")
        anew = await do(backend, settings, ADMIN, again)

    assert [one.acknowledged_reason for one in found.groups.values()] == ["first", "rest"]
    assert [one.acknowledged_reason for one in anew.groups.values()] == ["anew", "rest"]


@pytest.mark.parametrize(("when", "why"), [("> 5", "More is sent"), ("< 5", "Nothing is")])
async def test_too_much_and_too_little_have_causes_of_their_own(
    settings: Settings, when: str, why: str
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(metric="rate", when=when))
        found = await do(backend, settings, ADMIN, GetAlert(name="failing"))

    assert f". {why}" in found.means


async def test_what_fires_anew_is_known_to_nobody(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(by="sink"))
        await fire(backend, fcm=FIRES)
        await do(backend, settings, ADMIN, AcknowledgeAlert(name="failing"))
        await fire(backend, fcm=AlertGroup(9_000, told=True))
        [anew] = await do(backend, settings, ADMIN, ListAlerts())
        await fire(backend, fcm=FIRES)
        await do(backend, settings, ADMIN, alert(by="sink", replace=True))
        await fire(backend, fcm=FIRES)
        [replaced] = await do(backend, settings, ADMIN, ListAlerts())

    assert (anew.firing, anew.acknowledged) == (1, 0)
    assert (replaced.firing, replaced.acknowledged) == (1, 0)


@pytest.mark.parametrize(
    ("groups", "group"), [({}, ""), ({"sms": PENDING}, ""), ({"fcm": FIRES}, '["sms"]')]
)
async def test_what_does_not_fire_is_not_acknowledged(
    settings: Settings, groups: dict[str, AlertGroup], group: str
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, alert(by="sink"))
        await fire(backend, **groups)
        with pytest.raises(BadInput, match="does not fire"):
            await do(backend, settings, ADMIN, AcknowledgeAlert(name="failing", group=group))
