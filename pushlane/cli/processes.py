"""`processes` and `formats` show who dispatches, what each reads, and what may be written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, option
from pushlane.cli.render import Column, age_text, print_fields, print_json, print_table, time_text
from pushlane.client.connection import Connection
from pushlane.core.task import now_ms
from pushlane.model.presence import Process, Resting, split_sinks
from pushlane.operations.processes import GetFormats, ListProcesses, SetFormats
from pushlane.operations.task_views import TaskNow
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.errors import NotAllowed

_COLUMNS: tuple[Column[Process], ...] = (
    Column("PROCESS", lambda process: process.id),
    Column("KIND", lambda process: process.kind),
    Column("PID", lambda process: str(process.pid), number=True),
    Column("VERSION", lambda process: process.version),
    Column("FORMAT", lambda process: str(process.format), number=True, spare=1),
    Column("SINKS", lambda process: ", ".join(_sinks_text(process)), elastic=True),
    Column("LANES", lambda process: f"{process.lanes:,}", number=True, spare=2),
    Column("UP", lambda process: age_text(process.started_at_ms, now_ms()), number=True),
    Column(
        "RESTING",
        lambda process: "; ".join(map(_resting_text, process.resting)) or "-",
        elastic=True,
        least=20,
    ),
)


def processes(flags: Flags, as_json: JsonFlag = False) -> None:
    """List the processes that dispatch now."""
    settings = flags.settings()
    found = done(settings, ListProcesses())
    if as_json:
        print_json(plain(found))
    elif found:
        print_table(_COLUMNS, found)
        for text in split_sinks(found).values():
            note(f"warning: {text}")
    else:
        note(f"no process dispatches {settings.place}")


def formats(
    flags: Flags,
    lowest: Annotated[
        int | None, option("N", "Let producers write up to this format.", "--min")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show which formats of messages are read and may be written, or raise what may be."""

    wanted = GetFormats() if lowest is None else SetFormats(min_format=lowest)
    shown = done(flags.settings(), wanted, create=lowest is not None)
    if as_json:
        print_json(plain(shown))
    else:
        fields = msgspec.structs.asdict(shown).items()
        print_fields((name, "-" if value is None else str(value)) for name, value in fields)


async def seen_processes(client: Connection) -> list[Process]:
    """Return the processes that dispatch now; none for a token that may not see them."""
    try:
        return await client.do(ListProcesses())
    except NotAllowed:
        return []


def resting_text(processes: Iterable[Process]) -> list[str]:
    """Return a line for each thing that rests, as told by the process that noticed it first."""
    earliest: dict[str, Resting] = {}
    for one in sorted((one for p in processes for one in p.resting), key=lambda o: o.since_ms):
        earliest.setdefault(one.what, one)
    return [_resting_text(one) for one in earliest.values()]


def slow_text(view: TaskNow) -> list[str]:
    """Return a line for each process in which the task's lane is counted as slow."""
    return [
        f"counted as slow by {one.process} since {time_text(one.since_ms)}: its deliveries hold a "
        f"slot {one.times:g} times as long as others', so its turns come less often"
        for one in view.slow
    ]


def unserved_text(views: Iterable[TaskNow], settings: Settings) -> list[str]:
    """Return a line for each sink that tasks go to and nobody serves.

    It names one of the tasks, and says how many more there are.
    """
    from pushlane.diagnosis.causes import unserved_advice

    waiting: dict[str, list[TaskNow]] = {}
    for view in views:
        for sink in view.unserved:
            waiting.setdefault(sink, []).append(view)
    lines = []
    for sink, of in waiting.items():
        why, do = unserved_advice(sink, settings)
        goes = f" and {len(of) - 1:,} more go" if len(of) > 1 else " goes"
        lines.append(f"task {of[0].id}{goes} to sink {sink}{why}: {do}")
    return lines


def _sinks_text(process: Process) -> list[str]:
    """Return the names of its sinks, with what they deliver to where it says so."""
    targets = {one.name: one.target for one in process.served}
    return [
        f"{name} ({target})" if (target := targets.get(name)) else shown
        for name, shown in zip(process.serves, process.sinks, strict=False)
    ]


def _resting_text(one: Resting) -> str:
    from pushlane.diagnosis.situation import resting_since

    return f"{one.stands}: {resting_since(one)}"
