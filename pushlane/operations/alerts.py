"""Operations on alerts, which tell a webhook what becomes of pushes while `alerts run` runs.

An alert is of the apps that its conditions name; one that names none is of all apps together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.operations.alert_meanings import command_of, condition, meaning_of
from pushlane.operations.operation import LONGEST_S, ETag, Of, Operation, Role, read_by
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session, tag_of
from pushlane.operations.views import Removed
from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric, Threshold
from pushlane.pipeline.alerts.alert_store import (
    NOTHING_KNOWN,
    Acknowledgement,
    Acknowledgements,
    AlertGroup,
    AlertLook,
    AlertState,
    AlertStore,
)
from pushlane.pipeline.reports.query import parse_where
from pushlane.util.conversion import seconds
from pushlane.util.errors import Overtaken
from pushlane.util.extras import needs_extra

_DAY_S = 86_400
_MOST_RECEIPTS = 10**12


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: which figure of which receipts, and when it is alarming. Durations are seconds.

    `to` is the host of the webhook alone: the rest of its URL may be a secret.
    """

    name: str
    metric: Metric
    when: str
    by: str
    where: tuple[str, ...]
    window_s: int
    for_s: int
    at_least: int
    remind_s: int
    to: str


class AlertListed(AlertView, frozen=True, kw_only=True):
    """An alert, and how many of its groups fire, the first since then (Unix ms).

    They are as the last look of `alerts run` has left them, at `looked_at_ms` (Unix ms; None if it
    has never looked). The next one is `overdue` when it should have come by now. `problem` says
    what went wrong: the alert could not be measured, or its webhook was not told. `acknowledged`
    counts those of them that somebody knows of, `alarming` those over the threshold that do not
    fire yet.
    """

    firing: int
    acknowledged: int
    alarming: int
    firing_since_ms: int | None
    looked_at_ms: int | None
    overdue: bool
    problem: str


class AlertGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group that is alarming since then (Unix ms), or was until that is told.

    `of` has the value of each dimension, `command` looks for the cause.
    `pending` is what the webhook is still to be told: firing, reminder or recovered. Where somebody
    has acknowledged it, the webhook gets no reminders.
    """

    of: Mapping[str, str]
    command: str
    since_ms: int
    told: bool
    told_at_ms: int | None
    pending: str | None
    acknowledged_by: str | None
    acknowledged_at_ms: int | None
    acknowledged_reason: str | None


class AlertNow(AlertView, frozen=True, kw_only=True):
    """An alert with the groups that are alarming, by the JSON of their values; 100 at most.

    `means` says when it fires, and why that may be.
    """

    means: str
    groups: Mapping[str, AlertGroupView]


class AlertFigure(msgspec.Struct, frozen=True):
    """The figure of a group over so many receipts now, and `before` in the window before that."""

    group: str
    value: float
    before: float | None
    receipts: int
    alarming: bool


AlertName = Annotated[str, Meta(description="Its name.")]


def _of_window(what: str, given: object) -> int:
    return int(seconds(what, given, 60, _DAY_S))


def _of_time(what: str, given: object) -> int:
    return int(seconds(what, given, 0, LONGEST_S))


class PutAlert(Operation[AlertView], frozen=True, kw_only=True):
    """Save an alert. It is looked after while `pushlane alerts run` runs.

    For a caller of some apps it has to be of one or more of them, by `app` or by `where`.
    """

    method, path, role, of = "PUT", "/alerts/{name}", Role.OPERATOR, Of.APP
    commands = ("alerts add",)
    changes = True
    etag = ETag.TAKEN

    name: Annotated[str, Meta(max_length=64, description="Its name, of all apps' alerts.")]
    metric: Annotated[Metric, Meta(description="The figure.")]
    when: Annotated[
        str, Meta(max_length=40, description="`> 5%`, `< 100`, or `> 2x` the window before.")
    ]
    to: Annotated[str, Meta(max_length=2_000, description="URL of the webhook to call.")]
    app: Annotated[
        str, Meta(description="Only pushes of this app; the token's only app unless given.")
    ] = ""
    by: Annotated[str, Meta(description="One alert for each value, as in reports.")] = ""
    where: Annotated[
        tuple[str, ...], Meta(description="Only these, like `sink=fcm`, as in reports.")
    ] = ()
    window_s: Annotated[
        int,
        read_by(_of_window),
        Meta(ge=60, le=_DAY_S, description="Length of the period that is measured."),
    ] = 300
    for_s: Annotated[
        int,
        read_by(_of_time),
        Meta(ge=0, le=int(LONGEST_S), description="It fires once it held so long."),
    ] = 0
    at_least: Annotated[
        int, Meta(ge=1, le=_MOST_RECEIPTS, description="Fewer receipts are not judged.")
    ] = 1
    remind_s: Annotated[
        int,
        read_by(_of_time),
        Meta(ge=0, le=int(LONGEST_S), description="Seconds between reminders; 0 for none."),
    ] = 0
    replace: Annotated[bool, Meta(description="Change the alert of this name.")] = False

    async def run(self, at: Session) -> AlertView:
        rule = self._rule(at)

        def check(there: AlertRule | None) -> None:
            tag, seen = _tag(self.name, there), at.beside.seen
            if seen is not None and tag not in seen:
                raise Overtaken(_subject(self.name), _set_of(there) if there else {}, tag)

        before = await _store(at).add(rule, replace=self.replace, check=check)
        at.changed(
            _subject(self.name), _set_of(before) if before else {}, _set_of(rule), _app_of(rule)
        )
        at.beside.tag = _tag(self.name, rule)
        return AlertView(**_fields(rule))

    def _rule(self, at: Session) -> AlertRule:
        """Return the alert. Raises BadInput for what cannot be, or is of others' apps too."""
        rule = self._of_app(self.app)
        if not _sees(at, rule) and at.apps is not None and len(at.apps) == 1:
            [own] = at.apps
            rule = self._of_app(own)
        if not _sees(at, rule):
            yours = ", ".join(sorted(at.apps or ()))
            raise BadInput(f"this alert is about all apps; name one of yours with `app`: {yours}")
        return rule

    def _of_app(self, app: str) -> AlertRule:
        """Return the alert, of an app alone if one is named."""
        rule = AlertRule(
            name=self.name,
            metric=self.metric,
            when=Threshold.parse(self.when),
            url=self.to,
            by=self.by,
            where=(*self.where, *([condition("app", app)] if app else ())),
            window_s=self.window_s,
            for_s=self.for_s,
            at_least=self.at_least,
            remind_s=self.remind_s,
        )
        parse_where(rule.where)
        if app and (app,) not in _named(rule):
            raise BadInput(f"no alert can be about the app {app[:60]!r} alone: `|` means several")
        return rule


class ListAlerts(Operation[list[AlertListed]], frozen=True, kw_only=True):
    """List all alerts, and how many groups of each fire."""

    method, path, role, of = "GET", "/alerts", Role.VIEWER, Of.APPS
    commands = ("alerts list",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[AlertListed]:
        store = _store(at)
        found = sorted(await store.rules(), key=lambda one: one.name)
        shown = page(at, self, found, lambda one: one.name)
        states, known = await store.states(), await store.all_known()
        look = await store.last_look()
        return [
            _listed(one, states.get(one.name, {}), known.get(one.name, NOTHING_KNOWN), look)
            for one in shown
        ]


class GetAlert(Operation[AlertNow], frozen=True, kw_only=True):
    """Show an alert, and what is known of it: which groups fire, since when."""

    method, path, role, of = "GET", "/alerts/{name}", Role.VIEWER, Of.APP
    commands = ("alerts show",)
    etag = ETag.SHOWN

    name: AlertName

    async def run(self, at: Session) -> AlertNow:
        store = _store(at)
        rule = await store.rule(self.name)
        at.beside.tag = _tag(self.name, rule)
        return await _now(store, rule)


class AcknowledgeAlert(Operation[AlertNow], frozen=True, kw_only=True):
    """Say that you know of what fires: its webhook is not reminded of it, until it has recovered.

    What fires later is told as ever. Everybody sees who knows of it, and why. Without a group it is
    of all that fires and that nobody has acknowledged yet.
    """

    method, path, role, of = "POST", "/alerts/{name}/acknowledge", Role.OPERATOR, Of.APP
    commands = ("alerts acknowledge",)
    changes = True

    name: AlertName
    group: Annotated[
        str,
        Meta(max_length=2_000, description="This group alone, as `alerts show` names it: `[...]`."),
    ] = ""
    reason: Annotated[
        str, Meta(max_length=200, description="A note: what is being done about it.")
    ] = ""
    undo: Annotated[bool, Meta(description="Take that back: the webhook is reminded again.")] = (
        False
    )

    async def run(self, at: Session) -> AlertNow:
        store = _store(at)
        rule = await store.rule(self.name)
        state = (await store.load_state(self.name)).state
        firing = {name: one for name, one in state.items() if one.fires}
        wanted = [name for name in firing if self.group in ("", name)]
        if not wanted:
            what = f"group {self.group[:80]!r} of alert" if self.group else "alert"
            raise BadInput(f"{what} {self.name!r} does not fire; `pushlane alerts show` has those")
        mine = Acknowledgement(0, at.caller.name, now_ms(), self.reason)
        new = {one: replace(mine, since_ms=firing[one].since_ms) for one in wanted}
        before: Acknowledgements = NOTHING_KNOWN

        def edit(known: Acknowledgements) -> Acknowledgements:
            nonlocal before
            before = {name: one for name, one in known.items() if _is_known(firing.get(name), one)}
            if self.undo:
                return {name: one for name, one in before.items() if name not in wanted}
            return {**before, **new} if self.group else {**new, **before}

        after = await store.change_known(self.name, edit)
        was, now = ({"acknowledged": len(one)} for one in (before, after))
        at.changed(_subject(self.name), was, now, _app_of(rule))
        return await _now(store, rule)


class MeasureAlert(Operation[list[AlertFigure]], frozen=True, kw_only=True):
    """Measure an alert now, by the receipts that are read, without telling anybody of it."""

    method, path, role, of = "GET", "/alerts/{name}/figures", Role.VIEWER, Of.APP
    commands = ("alerts test",)

    name: AlertName
    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[AlertFigure]:
        rule = await _store(at).rule(self.name)
        with needs_extra("pipeline", "measuring an alert"):
            from pushlane.pipeline.alerts.measure import group_name, is_alarming, lag_of, measure
        root = at.settings.reports_root
        async with at.reads.one():
            lag = await lag_of(at.backend.receipts, root)
            work = partial(measure, root, rule, now_ms(), lag, at.reads.bounds)
            found = await at.reads.in_thread(work)
        by_name = {group_name(key): (key, one) for key, one in found.items()}
        return [
            AlertFigure(
                group=", ".join(map(str, key)) or "all",
                value=round(one.value, 4),
                before=None if one.before is None else round(one.before, 4),
                receipts=one.n,
                alarming=is_alarming(rule, one),
            )
            for _, (key, one) in page(at, self, sorted(by_name.items()), lambda named: named[0])
        ]


class RemoveAlert(Operation[Removed], frozen=True, kw_only=True):
    """Remove an alert; its webhook gets no more messages."""

    method, path, role, of = "DELETE", "/alerts/{name}", Role.OPERATOR, Of.APP
    commands = ("alerts remove",)
    changes = destroys = True

    name: AlertName

    async def run(self, at: Session) -> Removed:
        store = _store(at)
        rule = await store.rule(self.name)
        await store.remove(self.name)
        at.changed(_subject(self.name), _set_of(rule), {}, _app_of(rule))
        return Removed(self.name)


def _store(at: Session) -> AlertStore:
    return AlertStore(at.backend.documents, lambda rule: _sees(at, rule))


def _sees(at: Session, rule: AlertRule) -> bool:
    """Tell whether an alert is about pushes of the caller's apps alone."""
    apps = at.apps
    return apps is None or any(apps.issuperset(named) for named in _named(rule))


def _named(rule: AlertRule) -> list[tuple[str, ...]]:
    """Return the apps that each condition on apps allows; none of one that cannot be read."""
    try:
        conditions = rule.conditions
    except BadInput:
        return []
    return [one.values for one in conditions if one.dimension.word == "app" and not one.negated]


def _app_of(rule: AlertRule) -> str:
    """Return the app that an alert is of, empty where that may be several."""
    return next((app for app, *others in _named(rule) if not others), "")


def _subject(name: str) -> str:
    return f"alert/{name}"


def _fields(rule: AlertRule) -> dict[str, Any]:
    names = ("name", "metric", "by", "where", "window_s", "for_s", "at_least", "remind_s")
    own = {name: getattr(rule, name) for name in names}
    return {**own, "when": str(rule.when), "to": rule.host}


def _set_of(rule: AlertRule) -> dict[str, Any]:
    """Return what is set of an alert, but for what of its URL may be a secret."""
    shown: dict[str, Any] = msgspec.to_builtins(_fields(rule))
    return shown


def _tag(name: str, rule: AlertRule | None) -> str:
    """Return the tag of an alert, None for none: of its whole URL too, which is not shown."""
    return tag_of(_subject(name), {**_set_of(rule), "url": rule.url} if rule else {})


async def _now(store: AlertStore, rule: AlertRule) -> AlertNow:
    """Return an alert with its groups as they are."""
    groups, known = (await store.load_state(rule.name)).state, await store.known(rule.name)
    shown = {name: _group_view(rule, name, one, known.get(name)) for name, one in groups.items()}
    return AlertNow(**_fields(rule), means=meaning_of(rule), groups=shown)


def _listed(
    rule: AlertRule, state: AlertState, known: Acknowledgements, look: AlertLook | None
) -> AlertListed:
    firing = {name: one for name, one in state.items() if one.fires}
    return AlertListed(
        **_fields(rule),
        firing=len(firing),
        acknowledged=sum(_is_known(one, known.get(name)) for name, one in firing.items()),
        alarming=sum(not one.told for one in state.values()),
        firing_since_ms=min((one.since_ms for one in firing.values()), default=None),
        looked_at_ms=look.at_ms if look else None,
        overdue=look is not None and look.is_overdue(now_ms()),
        problem=look.problems.get(rule.name, "") if look else "",
    )


def _is_known(group: AlertGroup | None, known: Acknowledgement | None) -> bool:
    """Tell whether somebody knows of a group as it is alarming now, not of an earlier time."""
    return group is not None and known is not None and known.is_of(group)


def _group_view(
    rule: AlertRule, name: str, group: AlertGroup, known: Acknowledgement | None
) -> AlertGroupView:
    own = known if known and known.is_of(group) else None
    of = dict(
        zip(
            (one.heading for one in rule.dimensions),
            msgspec.json.decode(name, type=list[str]),
            strict=False,
        )
    )
    return AlertGroupView(
        of=of,
        command=command_of(rule, of),
        since_ms=group.since_ms,
        told=group.told,
        told_at_ms=group.told_at_ms or None,
        pending=group.pending.status if group.pending else None,
        acknowledged_by=own.by if own else None,
        acknowledged_at_ms=own.at_ms if own else None,
        acknowledged_reason=own.reason or None if own else None,
    )
