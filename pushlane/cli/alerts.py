"""Commands on alerts: rules on what becomes of pushes, and the process that tells of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.backends.contact import BROKER, REGISTRY, Contact, in_contact
from pushlane.cli.doing import done
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, on_backend, option, switch
from pushlane.cli.health import HealthFlags, loop_patience_s
from pushlane.cli.render import Column, print_fields, print_json, print_rows, time_text
from pushlane.cli.signals import ended_if_hung, stop_on_signals
from pushlane.core.errors import BadInput
from pushlane.model.times import parse_age
from pushlane.operations.alerts import (
    AcknowledgeAlert,
    AlertFigure,
    AlertGroupView,
    AlertListed,
    GetAlert,
    ListAlerts,
    MeasureAlert,
    PutAlert,
    RemoveAlert,
)
from pushlane.operations.views import plain

if TYPE_CHECKING:
    from pushlane.pipeline.alerts.watch import AlertCheck

_LEAST_EVERY_S = 1.0
_COLUMNS: tuple[Column[AlertListed], ...] = (
    Column("NAME", lambda one: one.name, elastic=True),
    Column("METRIC", lambda one: one.metric),
    Column("WHEN", lambda one: one.when),
    Column("BY", lambda one: one.by, elastic=True),
    Column("WHERE", lambda one: " ".join(one.where), elastic=True),
    Column("WINDOW", lambda one: f"{one.window_s // 60} min", number=True),
    Column("FIRING", lambda one: str(one.firing) if one.firing else "-", number=True),
    Column("KNOWN", lambda one: str(one.acknowledged) if one.firing else "-", number=True),
    Column("TO", lambda one: one.to, elastic=True),
)
_FOUND_COLUMNS: tuple[Column[AlertFigure], ...] = (
    Column("GROUP", lambda one: one.group, elastic=True),
    Column("VALUE", lambda one: str(one.value), number=True),
    Column("BEFORE", lambda one: "-" if one.before is None else str(one.before), number=True),
    Column("RECEIPTS", lambda one: str(one.receipts), number=True),
    Column("ALARMING", lambda one: "yes" if one.alarming else "no"),
)
Name = Annotated[str, argument("NAME", "The alert's name.")]


def add(
    flags: Flags,
    name: Name,
    metric: Annotated[
        str,
        typer.Option(
            help="failure_rate, retry_rate, dead, expired, dropped, rate (tried a second), "
            "p99_wait_ms, p99_delivery_ms, share_error, lag_s."
        ),
    ],
    when: Annotated[str, option("'> 5%'", "'> 0.05', '< 100', or '> 2x' the window before.")],
    to: Annotated[str, option("URL", "The webhook to call.")],
    by: Annotated[str, option("DIMENSIONS", "One alert for each value, as in `report`.")] = "",
    where: Annotated[list[str] | None, option("CONDITIONS", "Only these, as in `report`.")] = None,
    app: Annotated[str, option("NAME", "Only pushes of this app.")] = "",
    window: Annotated[str, option("5m", "Length of the period that is measured.")] = "5m",
    for_: Annotated[str, option("10m", "How long it must hold before it fires.", "--for")] = "0s",
    at_least: Annotated[int, option("N", "Fewer receipts in a window are not judged.", min=1)] = 1,
    remind: Annotated[
        str, option("4h", "Call the webhook again this often while it fires; once unless given.")
    ] = "0s",
    replace: Annotated[bool, switch("--replace", "Change the alert so named.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Save an alert. It is looked after while `pushlane alerts run` runs."""
    wanted = PutAlert.made(
        name=name,
        metric=metric,
        when=when,
        to=to,
        app=app,
        by=by,
        where=where or (),
        window_s=window,
        for_s=for_,
        at_least=at_least,
        remind_s=remind,
        replace=replace,
    )
    saved = done(flags.settings(), wanted, create=True)
    if as_json:
        print_json(plain(saved))
    note(f"alert {name} is saved; `pushlane alerts test {name}` says what it finds now")


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """List all alerts, and how many groups of each fire."""
    found = done(flags.settings(), ListAlerts())
    nothing = "no alerts; `pushlane alerts add --help` says how to make one"
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)
    if found:
        note(_look_text(found[0]))
    for one in found:
        if one.problem:
            note(f"alert {one.name}: {one.problem}")


def _look_text(one: AlertListed) -> str:
    """Return when all alerts were looked at last."""
    if one.looked_at_ms is None:
        return "nobody has looked at them yet; start: pushlane alerts run"
    late = ", and the next look is overdue: does `pushlane alerts run` run?" if one.overdue else ""
    return f"looked at last {time_text(one.looked_at_ms)}{late}"


def show(flags: Flags, name: Name, as_json: JsonFlag = False) -> None:
    """Show an alert, and what is known of it: which groups fire, since when."""
    found = done(flags.settings(), GetAlert(name=name))
    if as_json:
        print_json(plain(found))
        return
    fields = {key: value for key, value in plain(found).items() if key != "groups"}
    groups = [(f"group {name}", _group_text(one)) for name, one in sorted(found.groups.items())]
    if commands := {one.command for one in found.groups.values()}:
        groups.append(("look with", "; ".join(sorted(commands))))
    print_fields([*((key, str(value)) for key, value in fields.items()), *groups])


def acknowledge(
    flags: Flags,
    name: Name,
    group: Annotated[str, option("GROUP", "This one alone, as `alerts show` names it.")] = "",
    reason: Annotated[str, option("TEXT", "Your note: what is being done about it.")] = "",
    undo: Annotated[bool, switch("--undo", "Undo it: remind again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say that you know of what fires: its webhook is not reminded of it, until it has recovered.

    Later alarms call it as usual.
    """
    wanted = AcknowledgeAlert(name=name, group=group, reason=reason, undo=undo)
    found = done(flags.settings(), wanted)
    if as_json:
        print_json(plain(found))
    groups = [one for one in found.groups.values() if one.acknowledged_by]
    note(f"{len(groups)} of {len(found.groups)} groups of alert {name} are acknowledged")


def remove(flags: Flags, name: Name, as_json: JsonFlag = False) -> None:
    """Remove an alert; its webhook gets no more messages."""
    removed = done(flags.settings(), RemoveAlert(name=name))
    if as_json:
        print_json(plain(removed))
    note(f"alert {name} is removed")


def test(flags: Flags, name: Name, as_json: JsonFlag = False) -> None:  # noqa: PT028 - no test
    """Measure an alert now, without telling anybody or remembering it."""
    found = done(flags.settings(), MeasureAlert(name=name))
    if not as_json:
        found = sorted(found, key=lambda one: not one.alarming)
    nothing = "there are no receipts of this kind in the last two windows"
    print_rows(_FOUND_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


def run(
    flags: Flags,
    every: Annotated[str, option("30s", "How often to look.")] = "30s",
    once: Annotated[bool, switch("--once", "Look once and end.")] = False,
    allow: Annotated[
        list[str] | None,
        option("HOST", "Webhooks in your own network, or without https: a host, *.host or CIDR."),
    ] = None,
    *,
    metrics: HealthFlags,
) -> None:
    """Check all alerts until Ctrl-C or SIGTERM, and call their webhooks.

    You may kill it at any moment: the next one calls each webhook that this one has not.
    """
    every_s = parse_age(every) / 1000
    if every_s < _LEAST_EVERY_S:
        raise BadInput(f"every {every!r} is too short: give 1s or longer")
    settings = flags.settings()
    with pipeline_extra():
        from pushlane.pipeline.alerts.watch import ALERT_METRICS, AlertStats, serve
        from pushlane.util.url_guard import UrlGuard

    guard, root = UrlGuard(allow or ()), settings.reports_root
    contact, stats = Contact(BROKER, REGISTRY), AlertStats()
    wait_s = None if once else every_s

    def on_looks(looks: list[AlertCheck]) -> None:
        contact.started()
        stats.looked(looks)
        _say(looks)

    async def work(backend: Backend) -> int:
        async with health.beating(), in_contact(contact, backend):
            return await serve(backend, root, guard, wait_s, _stop(contact), on_looks, note)

    with metrics.serving() as health, ended_if_hung(health, loop_patience_s(settings)):
        health.missing = contact.missing
        health.show(ALERT_METRICS, stats, settings)
        problems = on_backend(settings, work, create=True)
    if once and problems:
        raise typer.Exit(1)


def _stop(contact: Contact) -> asyncio.Event:
    stop = asyncio.Event()

    def end() -> None:
        contact.stopping()
        stop.set()

    left = "the next check calls the webhooks that this one has not"
    stop_on_signals(end, stopping="stopping after this check", left=left)
    return stop


def _say(looks: list[AlertCheck]) -> None:
    """Say what was told, and what went wrong. Of a webhook only its host is shown."""
    for look in looks:
        for message in look.told:
            note(f"called {look.rule.host}: {message.text}")
        if look.problem:
            note(f"alert {look.rule.name}: {look.problem}")


def _group_text(group: AlertGroupView) -> str:
    since = f"alarming since {time_text(group.since_ms)}"
    if group.pending:
        return f"{since}; its webhook has not been called yet ({group.pending})"
    told = f"webhook called {time_text(group.told_at_ms or 0)}" if group.told else "no call yet"
    if not group.acknowledged_by:
        return f"{since}; {told}"
    why = f": {group.acknowledged_reason}" if group.acknowledged_reason else ""
    return f"{since}; {told}; acknowledged by {group.acknowledged_by}{why}"


alerts = Group(
    "Watch failures, lag, rates and shares, and call a webhook.",
    (add, list_, test, show, acknowledge, remove, run),
)
