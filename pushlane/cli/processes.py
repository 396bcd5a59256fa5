"""`processes` and `formats` show who dispatches, what each reads, and what may be written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from pushlane.backends.backend import Backend
from pushlane.backends.formats import min_format, set_min_format
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, on_backend, option
from pushlane.cli.render import Column, age_text, print_fields, print_json, print_table, time_text
from pushlane.core.push import FORMAT
from pushlane.core.task import Task, now_ms
from pushlane.diagnosis.causes import unserved_advice
from pushlane.diagnosis.situation import resting_since, unserved_sinks
from pushlane.model.presence import Process, Resting, split_sinks
from pushlane.settings import Settings

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
    found = on_backend(settings, lambda backend: backend.presence.list())
    if as_json:
        print_json(msgspec.to_builtins(found))
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

    async def apply(backend: Backend) -> dict[str, Any]:
        if lowest is not None:
            await set_min_format(backend.documents, backend.presence, lowest)
        live = [process.format for process in await backend.presence.list()]
        return {
            "min_format": await min_format(backend.documents),
            "this_reads": FORMAT,
            "all_read": min(live, default=None),
        }

    shown = on_backend(flags.settings(), apply, create=lowest is not None)
    if as_json:
        print_json(shown)
    else:
        print_fields((name, "-" if value is None else str(value)) for name, value in shown.items())


def resting_text(processes: Iterable[Process]) -> list[str]:
    """Return a line for each thing that rests, as told by the process that noticed it first."""
    earliest: dict[str, Resting] = {}
    for one in sorted((one for p in processes for one in p.resting), key=lambda o: o.since_ms):
        earliest.setdefault(one.what, one)
    return [_resting_text(one) for one in earliest.values()]


def slow_text(processes: Iterable[Process], lane: str) -> list[str]:
    """Return a line for each process in which the lane is counted as slow."""
    return [
        f"counted as slow by {process.id} since {time_text(one.since_ms)}: its deliveries hold a "
        f"slot {one.times:g} times as long as others', so its turns come less often"
        for process in processes
        for one in process.slow
        if one.lane == lane
    ]


def unserved_text(
    tasks: Iterable[Task], processes: Sequence[Process], settings: Settings
) -> list[str]:
    """Return a line for each sink that tasks go to and nobody serves; none while nobody dispatches.

    It names one of the tasks, and says how many more there are.
    """
    waiting: dict[str, list[Task]] = {}
    for task in tasks if processes else ():
        for sink in unserved_sinks(task, processes):
            waiting.setdefault(sink, []).append(task)
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
    return f"{one.what}: {resting_since(one)}"
