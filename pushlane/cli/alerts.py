"""Commands on alerts: rules on what becomes of pushes, and the process that tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pushlane.backends.backend import Backend
from pushlane.backends.contact import BROKER, REGISTRY, Contact, in_contact
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, on_backend, option, switch
from pushlane.cli.health import HealthFlags, loop_patience_s
from pushlane.cli.render import Column, picked, print_fields, print_json, print_rows, time_text
from pushlane.cli.signals import ended_if_hung, stop_on_signals
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.model.times import parse_age

if TYPE_CHECKING:
    from pushlane.pipeline.alerts.alert_rule import AlertRule
    from pushlane.pipeline.alerts.measure import AlertGroup, AlertState, Measured
    from pushlane.pipeline.alerts.watch import AlertCheck, AlertStore

_LEAST_EVERY_S = 1.0
_COLUMNS: tuple[Column[AlertRule], ...] = (
    Column("NAME", lambda rule: rule.name, elastic=True),
    Column("METRIC", lambda rule: rule.metric.value),
    Column("WHEN", lambda rule: str(rule.when)),
    Column("BY", lambda rule: rule.by, elastic=True),
    Column("WHERE", lambda rule: " ".join(rule.where), elastic=True),
    Column("WINDOW", lambda rule: f"{rule.window_s // 60} min", number=True),
    Column("TO", lambda rule: rule.host, elastic=True),
)
_FOUND_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("GROUP", lambda row: row["group"], elastic=True),
    Column("VALUE", lambda row: str(row["value"]), number=True),
    Column("BEFORE", lambda row: str(row["before"]), number=True),
    Column("RECEIPTS", lambda row: str(row["receipts"]), number=True),
    Column("ALARMING", lambda row: row["alarming"]),
)
T = TypeVar("T")
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
    to: Annotated[str, option("URL", "The webhook that is told.")],
    by: Annotated[str, option("DIMENSIONS", "One alert for each value, as in `report`.")] = "",
    where: Annotated[list[str] | None, option("CONDITIONS", "Only these, as in `report`.")] = None,
    window: Annotated[str, option("5m", "What is judged at a time.")] = "5m",
    for_: Annotated[str, option("10m", "How long it must hold before it fires.", "--for")] = "0s",
    at_least: Annotated[int, option("N", "Fewer receipts in a window are not judged.", min=1)] = 1,
    remind: Annotated[str, option("4h", "Tell again while it fires; never unless given.")] = "0s",
    replace: Annotated[bool, switch("--replace", "Change the alert so named.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Save an alert. It is looked after while `pushlane alerts run` runs."""
    with pipeline_extra():
        from pushlane.pipeline.alerts.alert_rule import AlertRule, Threshold, parse_metric
    rule = AlertRule(
        name=name,
        metric=parse_metric(metric),
        when=Threshold.parse(when),
        url=to,
        by=by,
        where=tuple(where or ()),
        window_s=parse_age(window) // 1000,
        for_s=parse_age(for_) // 1000,
        at_least=at_least,
        remind_s=parse_age(remind) // 1000,
    )
    _in_store(flags, lambda store: store.add(rule, replace=replace), create=True)
    if as_json:
        print_json(_rule_json(rule))
    note(f"alert {name} is saved; `pushlane alerts test {name}` says what it finds now")


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """List all alerts."""
    rules = _in_store(flags, lambda store: store.rules())
    nothing = "no alerts; `pushlane alerts add --help` says how to make one"
    print_rows(_COLUMNS, rules, _rule_json, as_json=as_json, nothing=nothing)


def show(flags: Flags, name: Name, as_json: JsonFlag = False) -> None:
    """Show an alert, and what is known of it: which groups fire, since when."""

    async def load(store: AlertStore) -> tuple[AlertRule, AlertState]:
        return await store.rule(name), (await store.load_state(name)).state

    rule, groups = _in_store(flags, load)
    if as_json:
        print_json({**_rule_json(rule), "groups": groups})
    else:
        fields = ((key, str(value)) for key, value in _rule_json(rule).items())
        alarming = [(f"group {name}", _group_text(one)) for name, one in sorted(groups.items())]
        print_fields([*fields, *alarming])


def remove(flags: Flags, name: Name, as_json: JsonFlag = False) -> None:
    """Remove an alert; nothing more is told of it."""
    _in_store(flags, lambda store: store.remove(name))
    if as_json:
        print_json({"name": name, "removed": True})
    note(f"alert {name} is removed")


def test(flags: Flags, name: Name, as_json: JsonFlag = False) -> None:  # noqa: PT028 - no test
    """Measure an alert now, without telling anybody or remembering it."""
    settings = flags.settings()
    with pipeline_extra():
        from pushlane.pipeline.alerts.measure import lag_of, measure
        from pushlane.pipeline.alerts.watch import AlertStore

    root = settings.reports_root

    async def look(backend: Backend) -> tuple[AlertRule, int | None]:
        return await AlertStore(backend.documents).rule(name), await lag_of(backend.receipts, root)

    rule, lag = on_backend(settings, look)
    found = measure(root, rule, now_ms(), lag)
    nothing = "there are no receipts of this kind in the last two windows"
    rows = _found_rows(rule, found)
    print_rows(_FOUND_COLUMNS, rows, dict, as_json=as_json, nothing=nothing)


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
    """Look after all alerts until Ctrl-C or SIGTERM, and tell their webhooks.

    It may be killed at any moment: what was told is not told again, what was not is told then.
    """
    every_s = parse_age(every) / 1000
    if every_s < _LEAST_EVERY_S:
        raise BadInput(f"every {every!r} is too often: look every second at most")
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

    left = "the next look tells what this one has not"
    stop_on_signals(end, stopping="stopping after this look", left=left)
    return stop


def _say(looks: list[AlertCheck]) -> None:
    """Say what was told, and what went wrong. Of a webhook only its host is shown."""
    for look in looks:
        for message in look.told:
            note(f"told {look.rule.host}: {message.text}")
        if look.problem:
            note(f"alert {look.rule.name}: {look.problem}")


def _in_store(
    flags: Flags, work: Callable[[AlertStore], Awaitable[T]], *, create: bool = False
) -> T:
    with pipeline_extra():
        from pushlane.pipeline.alerts.watch import AlertStore
    return on_backend(
        flags.settings(), lambda backend: work(AlertStore(backend.documents)), create=create
    )


def _rule_json(rule: AlertRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "metric": rule.metric.value,
        "when": str(rule.when),
        "by": rule.by,
        "where": list(rule.where),
        **picked(rule, "window_s", "for_s", "at_least", "remind_s"),
        "to": rule.host,
    }


def _group_text(group: AlertGroup) -> str:
    since = f"alarming since {time_text(group.since_ms)}"
    if group.pending:
        return f"{since}; {group.pending.status} is still to be told"
    told = f"told {time_text(group.told_at_ms)}" if group.told else "not told yet"
    return f"{since}; {told}"


def _found_rows(rule: AlertRule, found: Mapping[tuple[Any, ...], Measured]) -> list[dict[str, Any]]:
    """Return what was measured, the alarming groups first."""
    from pushlane.pipeline.alerts.measure import is_alarming

    rows = [
        {
            "group": ", ".join(map(str, key)) or "all",
            "value": round(each.value, 4),
            "before": "-" if each.before is None else round(each.before, 4),
            "receipts": each.n,
            "alarming": "yes" if is_alarming(rule, each) else "no",
        }
        for key, each in found.items()
    ]
    return sorted(rows, key=lambda row: (row["alarming"] == "no", str(row["group"])))


alerts = Group(
    "Watch failures, lag, rates and shares, and tell a webhook.",
    (add, list_, test, show, remove, run),
)
