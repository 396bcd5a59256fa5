"""`reschedule` changes when a task that exists is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, option
from pushlane.cli.parsing import complete_task
from pushlane.cli.render import print_json, seconds_text, time_text
from pushlane.core.task import State, now_ms
from pushlane.operations.task_views import ChangedTask
from pushlane.operations.tasks import RescheduleTask
from pushlane.operations.views import plain
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

    changed = done(flags.settings(), RescheduleTask.to(task, times))
    if as_json:
        print_json(plain(changed))
    said = list(_said(changed, now))
    note(f"task {changed.id} {', '.join(said)}" if said else f"task {changed.id} has that already")
    for line in _what_follows(changed, now):
        note(line)


def _said(task: ChangedTask, now: int) -> Iterator[str]:
    """Tell what is another time now than before."""
    if "not_before_ms" in task.changed:
        at_ms = task.not_before_ms
        yield f"starts at {_at(at_ms, now)}" if task.waits_for_start(now) else "starts now"
    if "expires_at_ms" in task.changed:
        at_ms = task.expires_at_ms
        yield f"expires at {_at(at_ms, now)}" if at_ms else "does not expire"
    if {"quiet", "zone"} & {*task.changed}:
        hours = f"is quiet from {task.quiet.replace('-', ' to ')} ({task.zone or 'UTC'})"
        yield hours if task.quiet else "has no quiet hours"


def _at(at_ms: int, now: int) -> str:
    return f"{time_text(at_ms)} (in {seconds_text((at_ms - now) / 1000)})"


def _what_follows(task: ChangedTask, now: int) -> Iterator[str]:
    """Tell what becomes of what waits, and what else keeps it."""
    if "recall_ms" in task.changed:
        yield "what waits for its old times is checked within a minute, once a dispatcher runs"
    elif "state" in task.changed and task.waits_for_start(now):
        yield "what it has not sent waits for that; what is on its way to the sink ends"
    if task.state == State.PAUSED:
        yield f"it is paused; go on with: pushlane resume {task.id}"
