"""Says to people what a change would do, as a table of ends and in lines."""

from __future__ import annotations

from collections.abc import Iterator

from pushlane.operations.previewing import EndView, PreviewView
from pushlane.util.columns import Column, plain, soon_text

_NEVER = "-"


def end_columns(at_ms: int) -> tuple[Column[EndView], ...]:
    """Return the columns of ends before and after a change, as seen at a time (Unix ms)."""
    return (
        Column("TASK", lambda one: one.task),
        Column("NAME", lambda one: one.name or "-", elastic=True),
        Column("LEVEL", lambda one: one.level),
        Column("ENDS NOW", lambda one: _end_text(one.before_ms, at_ms), number=True),
        Column("ENDS THEN", lambda one: _end_text(one.after_ms, at_ms), number=True),
        Column("EXPIRY", lambda one: one.expiry or ""),
    )


def _end_text(end_ms: int | None, at_ms: int) -> str:
    return _NEVER if end_ms is None else soon_text(max(0.0, (end_ms - at_ms) / 1000))


def told_lines(view: PreviewView) -> Iterator[str]:
    """Yield what the table does not show."""
    for one in view.counts:
        yield plain(one.told)
    for part in view.parts:
        whose = f"app {part.app} at {part.level}" if part.app else part.level
        yield f"{whose}: {part.before:.1%} of sink {part.sink} now, {part.after:.1%} then"
    counts = {"later": view.later, "sooner": view.sooner}
    moved = " and ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    yield f"tasks that end otherwise: {moved or 'none'}"
    if view.missed or view.kept:
        yield f"expiries: {view.missed:,} missed by it, {view.kept:,} kept by it"
    if view.others is not None and (view.others.later or view.others.sooner):
        yield f"of other apps: {view.others.later:,} later, {view.others.sooner:,} sooner"
    if view.untold:
        whose = "1 task" if view.untold == 1 else f"{view.untold:,} tasks"
        yield (
            f"ETA of {whose} unknown: the total is open, pushes wait for their time, "
            "quiet hours begin first, or nothing is known of the sink"
        )
    if view.resting:
        yield f"{', '.join(view.resting)} rests; these ends do not count that"
