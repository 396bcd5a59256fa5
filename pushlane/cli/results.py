"""`results` says how a task went, by its receipts: it needs no Spark and no store of reports."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, on_backend, switch
from pushlane.cli.parsing import complete_task
from pushlane.cli.render import Column, print_fields, print_json, print_table, time_text
from pushlane.core.errors import BadInput
from pushlane.core.push import Kind
from pushlane.core.task import Task
from pushlane.diagnosis.results import (
    ENDS,
    ReceiptRow,
    Results,
    Times,
    read_batches,
    results_of,
)
from pushlane.settings import Settings

_REASONS: tuple[Column[tuple[Kind, str, int]], ...] = (
    Column("OUTCOME", lambda one: one[0].value),
    Column("PUSHES", lambda one: f"{one[2]:,}", number=True),
    Column("REASON", lambda one: one[1] or "-", elastic=True),
)
_TIMES = ("submitted_at_ms", "dispatched_at_ms", "responded_at_ms")
_HEADINGS = [name.removesuffix("_ms") for name in ReceiptRow._fields]


def results(
    flags: Flags,
    task: Annotated[str, argument("TASK", "Its id, key or name.", autocompletion=complete_task)],
    as_csv: Annotated[bool, switch("--csv", "One row for each push that has ended.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say how a task went: what was delivered, what died of what, how long it took.

    Read from the log of receipts, from which nothing is taken. Recipients are masked.
    """
    if as_csv and as_json:
        raise BadInput("--csv and --json are two forms of one answer; give one of them")
    settings = flags.settings()

    async def show(backend: Backend) -> None:
        found = await backend.registry.get(task)
        [progress] = await backend.registry.progress([found.id])
        said, receipts = await results_of(backend.receipts, found, progress)
        if as_csv:
            out = csv.writer(sys.stdout, lineterminator="\n")
            out.writerow(_HEADINGS)
            async for batch in read_batches(backend.receipts, found):
                if batch is not None:
                    out.writerows(map(_csv_row, receipts.take(batch)))
        elif as_json:
            print_json(_document(found, said))
        else:
            _print(found, said)
        for remark in _remarks(found, said, settings):
            note(remark)

    on_backend(settings, show)


def _print(task: Task, said: Results) -> None:
    total = "more may come" if task.total is None else f"{task.total:,}"
    fields = [("task", f"{task.id} {task.name}".rstrip()), ("pushes", total)]
    fields += [(kind.value, f"{said.counts[kind]:,}") for kind in ENDS]
    if said.first_at_ms:
        fields += [("first", time_text(said.first_at_ms)), ("last", time_text(said.last_at_ms))]
    if said.per_s is not None:
        fields.append(("rate", f"{said.per_s:,.0f} delivered/s"))
    for name, times in (("wait", said.wait), ("delivery", said.delivery)):
        if times is not None:
            fields.append((name, _times_text(times)))
    print_fields(fields)
    if said.reasons:
        typer.echo("")
        print_table(_REASONS, said.reasons)
    if said.others:
        typer.echo(f"and {said.others:,} of other reasons")


def _times_text(times: Times) -> str:
    return (
        f"p50 {times.p50_ms:,} ms, p99 {times.p99_ms:,} ms "
        f"({times.min_ms:,} to {times.max_ms:,} ms)"
    )


def _remarks(task: Task, said: Results, settings: Settings) -> Iterator[str]:
    lacking = {kind: count for kind, count in said.lacking.items() if count}
    if lacking:
        counts = ", ".join(f"{count:,} {kind.value}" for kind, count in lacking.items())
        why = (
            "receipts are off (receipts=off)"
            if settings.receipts == "off"
            else "they are not in the log yet, were lost while it was away, or it has dropped them"
        )
        yield (
            f"the task counts {counts} more than there are receipts of: {why}. "
            "`pushlane tasks` has all counts"
        )
    if not any(said.counts.values()) and not lacking:
        yield f"nothing of it has ended yet; what it waits for: pushlane why {task.id}"
    if said.unread:
        yield f"{said.unread:,} bodies of the log were left out: this version cannot read them"


def _document(task: Task, said: Results) -> dict[str, Any]:
    document = asdict(said)
    document["counts"] = {kind.value: count for kind, count in said.counts.items()}
    document["lacking"] = {kind.value: count for kind, count in said.lacking.items()}
    document["reasons"] = [
        {"outcome": kind.value, "reason": reason, "pushes": count}
        for kind, reason, count in said.reasons
    ]
    return {"task_id": task.id, "name": task.name, **document}


def _csv_row(row: ReceiptRow) -> list[Any]:
    times = [_iso(getattr(row, name)) for name in _TIMES]
    return [*row[: -len(_TIMES)], *times]


def _iso(at_ms: int) -> str:
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
