"""Commands on what a task, an app or a sink may take: limits, quotas, how many may be dead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Annotated, Any

import msgspec
import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, option, switch
from pushlane.cli.parsing import complete_task, parse_pairs
from pushlane.cli.preview import PreviewFlag, show_preview
from pushlane.cli.render import Column, print_json, print_rows
from pushlane.cli.task_texts import stop_text
from pushlane.core.errors import BadInput
from pushlane.core.turns import EVERY_APP
from pushlane.model.limits import Limit, Subject, parse_rate
from pushlane.operations.operation import Operation
from pushlane.operations.shares import (
    AppQuota,
    ClearAppQuota,
    ClearLimit,
    GetAppQuota,
    GetLimit,
    LimitView,
    ListLimits,
    SetAppQuota,
    SetLimit,
)
from pushlane.operations.tasks import GetTask, SetQuota, SetStopIfDead
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.texts import rate_text

_FLAGS = {
    "rate_per_s": "--rate",
    "in_flight": "--in-flight",
    "total": "--total",
    "total_cost": "--total-cost",
    "a_day": "--a-day",
    "cost_a_day": "--cost-a-day",
    "recipient_a_day": "--recipient-a-day",
}


def limit(
    flags: Flags,
    subject: Annotated[
        str,
        argument(
            "SUBJECT",
            "A task's id, key or name, or task/ID, app/NAME, app/* or sink/NAME.",
            autocompletion=complete_task,
        ),
    ],
    rate: Annotated[str | None, option("N/s|N/min|N/h|N/day", "So much cost in this time.")] = None,
    in_flight: Annotated[str | None, option("N", "So many deliveries at once.")] = None,
    total: Annotated[str | None, option("N", "So many pushes in all.")] = None,
    total_cost: Annotated[str | None, option("X", "So much cost in all.")] = None,
    a_day: Annotated[str | None, option("N", "So many pushes a day, in UTC.")] = None,
    cost_a_day: Annotated[str | None, option("X", "So much cost a day, in UTC.")] = None,
    recipient_a_day: Annotated[
        str | None, option("LEVEL=N,...", "So many to one recipient: low=2,all=5.")
    ] = None,
    none: Annotated[bool, switch("--none", "Take all of its limits away.")] = False,
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Limit what a task, an app or a sink may take, from now on, over all processes.

    Without a limit it shows those that are set. Other limits stay as they are; `none`
    removes one, as in `--rate none`.
    """
    given = {
        "rate_per_s": _read(rate, "--rate", _rate),
        "in_flight": _read(in_flight, "--in-flight", _whole),
        "total": _read(total, "--total", _whole),
        "total_cost": _read(total_cost, "--total-cost", _number),
        "a_day": _read(a_day, "--a-day", _whole),
        "cost_a_day": _read(cost_a_day, "--cost-a-day", _number),
        "recipient_a_day": _read(recipient_a_day, "--recipient-a-day", _by_level),
    }
    changes = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    if changes and none:
        raise BadInput(f"{subject}: give a limit, like --rate 100/s, or --none alone")
    if not changes and not none:
        _refuse_preview(preview)
        _show_limit(flags.settings(), subject, as_json)
        return
    _set_limit(flags.settings(), subject, changes, preview, as_json)


def _refuse_preview(preview: bool) -> None:
    """Raise BadInput for a preview of nothing."""
    if preview:
        raise BadInput("--preview shows a change; say which, like --rate 100/s")


def _set_limit(
    settings: Settings, subject: str, changes: dict[str, Any], preview: bool, as_json: bool
) -> None:
    """Change these limits, or take all of them away if there are none, and say so."""
    wanted: Operation[LimitView] = ClearLimit(subject=subject)
    with _flags_named():
        if changes:
            wanted = SetLimit.made(subject=subject, **changes)
        if show_preview(settings, wanted, preview=preview, as_json=as_json):
            return
        now = done(settings, wanted, create=bool(changes))
    if as_json:
        print_json(plain(now))
    note(f"{now.subject} from now on: {limit_text(now.limit)}")
    if not changes and (now.limit.quota is not None or now.limit.high_part is not None):
        way = f"pushlane quota --app {quote(Subject.parse(now.subject).name)} --none"
        note(f"its quota and part stay; to end them: {way}")
    if now.remark:
        note(now.remark)


def _show_limit(settings: Settings, subject: str, as_json: bool) -> None:
    found = done(settings, GetLimit(subject=subject))
    if as_json:
        print_json(plain(found))
    else:
        typer.echo(f"{found.subject}: {limit_text(found.limit)}")
    if found.remark:
        note(found.remark)


def limits(flags: Flags, as_json: JsonFlag = False) -> None:
    """Show all limits that are set, and what is used of them."""
    settings = flags.settings()
    found = done(settings, ListLimits())
    nothing = f"no limits {settings.place}; set one: pushlane limit app/NAME --rate 100/s"
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


@contextmanager
def _flags_named() -> Iterator[None]:
    """Name the flag in a refusal, where the layer below has named the limit."""
    try:
        yield
    except BadInput as error:
        name, space, told = str(error).partition(" ")
        raise BadInput(f"{_FLAGS.get(name, name)}{space}{told}") from error


def _read(given: str | None, flag: str, read: Callable[[str], Any]) -> Any:
    """Return the value of an option, None for `none`, UNSET when it was not given."""
    if given is None:
        return msgspec.UNSET
    if given.strip().lower() == "none":
        return None
    try:
        return read(given.strip())
    except ValueError as error:
        raise BadInput(f"{flag} {given[:40]!r} is {error}") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number; use one like 12.5, or none") from None


def _whole(text: str) -> int:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        raise ValueError("not a whole number; use one like 100, or none") from None


def _rate(text: str) -> float:
    if text == "0":
        raise ValueError("not a limit: nothing would be sent; pause the tasks instead")
    try:
        return parse_rate(text)
    except ValueError as error:
        raise ValueError(f"{error}, or none") from None


def _by_level(text: str) -> dict[str, int]:
    parts = text.split(",")
    pairs = parse_pairs(parts, "--recipient-a-day")
    counts = {level.strip(): _whole(count) for level, count in pairs.items()}
    if len(counts) < len(parts):
        raise ValueError("not a cap: it has a level twice; give each once, like low=2,all=5")
    return counts


def _rate_text(limit: Limit) -> str:
    return "-" if limit.rate_per_s is None else rate_text(limit.rate_per_s)


def _recipient_text(limit: Limit) -> str:
    return ",".join(f"{level}={count}" for level, count in limit.recipient_a_day.items()) or "-"


def limit_text(limit: Limit) -> str:
    """Return what is limited, for people."""
    texts = {"rate": _rate_text(limit)}
    for name in ("in_flight", "total", "total_cost", "a_day", "cost_a_day"):
        value = getattr(limit, name)
        texts[name.replace("_", " ")] = "-" if value is None else f"{value:,.10g}"
    texts["a recipient a day"] = _recipient_text(limit)
    return ", ".join(f"{name} {text}" for name, text in texts.items() if text != "-") or "no limits"


def _used(name: str) -> Callable[[LimitView], str]:
    """Return how a column shows a total: what is spent of how much."""

    def text(one: LimitView) -> str:
        most = getattr(one.limit, name)
        if most is None:
            return "-"
        if one.subject == f"app/{EVERY_APP}":
            return f"{most:,.10g} each"
        spent = one.used.get(name, 0)
        return f"{spent:,.10g} of {most:,.10g}"

    return text


_COLUMNS: tuple[Column[LimitView], ...] = (
    Column("SUBJECT", lambda one: one.subject, elastic=True),
    Column("RATE", lambda one: _rate_text(one.limit), number=True),
    Column("IN FLIGHT", _used("in_flight"), number=True),
    Column("TOTAL", _used("total"), number=True),
    Column("COST", _used("total_cost"), number=True),
    Column("A DAY", _used("a_day"), number=True),
    Column("COST A DAY", _used("cost_a_day"), number=True),
    Column("A RECIPIENT A DAY", lambda one: _recipient_text(one.limit), spare=4),
)


def quota(
    flags: Flags,
    task: Annotated[
        str | None,
        argument(
            "[TASK]", "Its id, key or name; left out with --app.", autocompletion=complete_task
        ),
    ] = None,
    pushes: Annotated[int | None, argument("[N]", "Pushes a turn, from 1.")] = None,
    app: Annotated[str | None, option("NAME", "Of this app; '*' for every other one.")] = None,
    high_part: Annotated[
        float | None, option("PART", "With --app: what it may have of the high level, as 0.5.")
    ] = None,
    none: Annotated[
        bool, switch("--none", "With --app: take its quota and its part away.")
    ] = False,
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Change how many pushes a task or an app sends in its turn, from now on; without N show it.

    A task that shares a pool lane gets a lane of its own, at its level; its backlog follows. With
    --app alone it shows the app's part of the high level, too.
    """
    if app is not None:
        _of_app(flags, app, _quota_number(task, pushes), high_part, none, preview, as_json)
    elif none or high_part is not None:
        given = "--none" if none else "--high-part"
        raise BadInput(f"{given} is for an app; add --app NAME")
    elif task is None:
        raise BadInput(
            "name a task or an app: pushlane quota TASK N, or pushlane quota --app NAME N"
        )
    elif pushes is None:
        _refuse_preview(preview)
        _show_quota(flags, task, as_json)
    else:
        _set_quota(flags, task, pushes, preview, as_json)


def _show_quota(flags: Flags, task: str, as_json: bool) -> None:
    found = done(flags.settings(), GetTask(task=task))
    if as_json:
        print_json(plain(found))
    elif found.pooled:
        typer.echo(
            f"task {found.id} shares a pool lane, and has no quota; one gives it a lane of its "
            f"own: pushlane quota {found.id} N"
        )
    else:
        typer.echo(f"task {found.id} sends {found.quota} in its turn")


def _set_quota(flags: Flags, task: str, pushes: int, preview: bool, as_json: bool) -> None:
    settings, wanted = flags.settings(), SetQuota(task=task, quota=pushes)
    if show_preview(settings, wanted, preview=preview, as_json=as_json):
        return
    changed = done(settings, wanted)
    if as_json:
        print_json(plain(changed))
    has_moved = "pooled" in changed.changed
    moved = "; it has a lane of its own now, and its backlog follows" if has_moved else ""
    note(f"task {changed.id} sends {changed.quota} in its turn{moved}")


def _of_app(
    flags: Flags,
    app: str,
    pushes: int | None,
    high_part: float | None,
    none: bool,
    preview: bool,
    as_json: bool,
) -> None:
    is_shown = pushes is None and high_part is None
    if none and not is_shown:
        raise BadInput("--none takes the quota and the part away; give it alone, or leave it out")
    settings = flags.settings()

    wanted: Operation[AppQuota]
    if none:
        wanted = ClearAppQuota(app=app)
    elif is_shown:
        wanted = GetAppQuota(app=app)
    else:
        wanted = SetAppQuota(app=app, quota=pushes, high_part=high_part)
    if is_shown and not none:
        _refuse_preview(preview)
    elif show_preview(settings, wanted, preview=preview, as_json=as_json):
        return
    found = done(settings, wanted, create=not (is_shown or none))
    if as_json:
        print_json(plain(found))
    elif is_shown and not none:
        typer.echo(_share_text(found))
    if not is_shown or none:
        note(_share_text(found))
    if found.remark:
        note(found.remark)


def _quota_number(first: str | None, second: int | None) -> int | None:
    """Return the number that stands where a task would stand otherwise."""
    if first is None:
        return None
    if second is not None:
        raise BadInput(f"--app and task {first!r} exclude each other; give one of them")
    try:
        return int(first)
    except ValueError:
        raise BadInput(
            f"{first[:40]!r} is not a number of pushes; for an app: pushlane quota --app NAME N"
        ) from None


def _share_text(found: AppQuota) -> str:
    is_every = found.app == EVERY_APP
    who = "every app without its own" if is_every else f"app {found.app}"
    quota = found.quota or (1 if is_every else None)
    turn = "has no quota of its own" if quota is None else f"sends {quota} in its turn"
    if found.high_part is None:
        return f"{who} {turn}"
    return f"{who} {turn}, and has at most {found.high_part:g} of the high level"


def stop_if_dead(
    flags: Flags,
    task: Annotated[str, argument("TASK", "Its id, key or name.", autocompletion=complete_task)],
    rule: Annotated[str, argument("5%|off", "The share of dead pushes that pauses it.")],
    as_json: JsonFlag = False,
) -> None:
    """Pause a task when more of its pushes die than this, counted from now on.

    One that is paused stays so. The limit that it has already changes nothing, unless it paused it.
    """
    changed = done(flags.settings(), SetStopIfDead(task=task, rule=rule))
    if as_json:
        print_json(plain(changed))
    note(f"task {changed.id} stops if: {stop_text(changed)}")
