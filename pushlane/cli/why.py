"""`why` says what a task waits for now, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pushlane.cli.completion import complete_task
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, WideFlag, add_commands, on_backend
from pushlane.cli.parsing import pushes_text, shown_state
from pushlane.cli.render import print_json, seconds_text
from pushlane.cli.why_all import print_overview
from pushlane.core.task import now_ms
from pushlane.diagnosis.cause import Cause, due_text
from pushlane.diagnosis.look import Diagnosis
from pushlane.diagnosis.look import why as why_of
from pushlane.diagnosis.overview import overview
from pushlane.diagnosis.task_status import STALLED
from pushlane.model.due import Waiting


def register(app: typer.Typer) -> None:
    add_commands(app, why)


def why(
    flags: Flags,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            help="Its id, key or name; without it, all are looked at.",
            autocompletion=complete_task,
        ),
    ] = None,
    wide: WideFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what a task waits for now, most important first, and what to do about each.

    Without a task, say so of all: how sinks and levels stand, and which tasks to look at first.
    """
    settings = flags.settings()
    if task is None:
        found_all = on_backend(settings, overview)
        print_overview(found_all, as_json=as_json, wide=wide)
        if found_all.unread_limits and not as_json:
            note(unread_text(found_all.unread_limits))
        return
    found = on_backend(settings, lambda backend: why_of(backend, task, settings))
    if as_json:
        print_json(_as_json(found))
        return
    for cause in found.causes:
        typer.echo(f"{cause.name}: {cause.detail}")
        if cause.do:
            typer.echo(f"  do: {cause.do}")
    if not found.task.state.is_terminal:
        note(pace_text(found, now_ms()))
    if found.unread_limits:
        note(unread_text(found.unread_limits))


def _as_json(found: Diagnosis) -> dict[str, Any]:
    return {
        "task_id": found.task.id,
        "state": STALLED if found.is_stalled else shown_state(found.task, now_ms()),
        "shown_state": found.status.state,
        "shown_reason": found.status.reason,
        "causes": [cause_as_json(cause) for cause in found.causes],
        "entitled_share": _rounded(found.entitled_share, 4),
        "observed_per_s": _rounded(found.observed_per_s, 2),
        "backlog": found.backlog,
        "eta_s": _rounded(found.eta_s, 1),
        "eta_note": found.eta_note,
        "later": found.later,
        "waits": [waits_as_json(one) for one in found.waits],
        "unread_limits": found.unread_limits,
    }


def unread_text(names: Sequence[str]) -> str:
    """Return a line that names the limits that are left out."""
    return f"left out, as they cannot be read (pushlane doctor): the limits of {', '.join(names)}"


def cause_as_json(cause: Cause) -> dict[str, Any]:
    """Return a cause for programs; `since` is a Unix time in ms, None where it is not known."""
    return {
        "cause": cause.name,
        "detail": cause.detail,
        "since": cause.since_ms or None,
        "do": cause.do,
    }


def waits_as_json(one: Waiting) -> dict[str, Any]:
    """Return pushes that wait for their time, for programs; times are Unix ms."""
    return {
        "reason": one.reason,
        "pushes": one.pushes,
        "first_due_ms": one.first_ms,
        "last_due_ms": one.last_ms,
    }


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)


def pace_text(found: Diagnosis, now_ms: int) -> str:
    """Return how much of a task is left, how fast it goes, and when it is through."""
    left = (
        "still being submitted" if found.backlog is None else f"{pushes_text(found.backlog)} left"
    )
    later = f", {found.later:,} of them wait for their time" if found.later else ""
    share = found.entitled_share
    entitled = "" if share is None else f", entitled to {100 * share:.3g} % of its sink"
    observed = "" if found.observed_per_s is None else f", {found.observed_per_s:,.4g} pushes/s now"
    return f"{left}{later}{entitled}{observed}; {_end_text(found, now_ms)}"


def _end_text(found: Diagnosis, now_ms: int) -> str:
    if found.eta_s is None:
        return f"ETA unknown{found.eta_note and ': '}{found.eta_note}"
    at = due_text(now_ms + round(found.eta_s) * 1000, now_ms)
    return f"ends in {seconds_text(found.eta_s)}" + (f", at {at}" if found.later else "")
