"""`reschedule` changes when a task that exists is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pushlane.backends.backend import Backend
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, on_backend, option
from pushlane.cli.parsing import complete_task
from pushlane.cli.render import print_json, seconds_text, time_text
from pushlane.cli.task_view import task_fields
from pushlane.core.task import State, Task, now_ms
from pushlane.producers.new_times import read_new_times


def reschedule(
    flags: Flags,
    task: Annotated[str, argument("TASK", "Its id, key or name.", autocompletion=complete_task)],
    not_before: Annotated[
        str | None,
        option("HH:MM|TIME|now", "Start at the next HH:MM (local), at this ISO time, or at once."),
    ] = None,
    delay: Annotated[str | None, option("10m", "Start after this duration.")] = None,
    expires: Annotated[
        str | None, option("2h|TIME|none", "Send nothing after this duration or ISO time.")
    ] = None,
    quiet: Annotated[
        str | None,
        option("HH:MM-HH:MM|none", "Send nothing in these hours, by the recipient's clock."),
    ] = None,
    zone: Annotated[
        str | None, option("ZONE", "Zone of recipients without one, like Europe/Berlin.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Change start, expiry and quiet hours of a task that is not finished, from now on.

    What is not given stays as it is. A start or an expiry that single pushes have of their own
    stays too.
    """
    now = now_ms()
    times = read_new_times(not_before, delay, expires, quiet, zone, now)

    async def apply(backend: Backend) -> tuple[Task, Task]:
        before = await backend.registry.get(task)
        return before, await backend.reschedule(before.id, times)

    before, changed = on_backend(flags.settings(), apply)
    if as_json:
        print_json(task_fields(changed))
    said = list(_said(before, changed, now))
    note(f"task {changed.id} {', '.join(said)}" if said else f"task {changed.id} has that already")
    for line in _what_follows(before, changed, now):
        note(line)


def _said(before: Task, task: Task, now: int) -> Iterator[str]:
    """Tell what is another time now than before."""
    if task.not_before_ms != before.not_before_ms:
        at_ms = task.not_before_ms
        yield f"starts at {_at(at_ms, now)}" if task.is_scheduled(now) else "starts now"
    if task.expires_at_ms != before.expires_at_ms:
        at_ms = task.expires_at_ms
        yield f"expires at {_at(at_ms, now)}" if at_ms else "does not expire"
    if (task.quiet, task.zone) != (before.quiet, before.zone):
        hours = f"is quiet from {task.quiet.replace('-', ' to ')} ({task.zone or 'UTC'})"
        yield hours if task.quiet else "has no quiet hours"


def _at(at_ms: int, now: int) -> str:
    return f"{time_text(at_ms)} (in {seconds_text((at_ms - now) / 1000)})"


def _what_follows(before: Task, task: Task, now: int) -> Iterator[str]:
    """Tell what becomes of what waits, and what else keeps it."""
    if task.recall_ms != before.recall_ms:
        yield "what waits for its old times is asked anew within a minute, once a dispatcher runs"
    elif task.is_scheduled(now) and not before.is_scheduled(now):
        yield "what it has not sent waits for that; what is on its way to the sink ends"
    if task.state is State.PAUSED:
        yield f"it is paused; go on with: pushlane resume {task.id}"
