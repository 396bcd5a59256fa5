"""`fanout` makes a task of an audience that Spark reads, and prints its id."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pushlane.cli.errors import INTERRUPTED, note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, option, switch
from pushlane.cli.parsing import parse_key, parse_pairs, pushes_text
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import print_json
from pushlane.cli.spark import DEFAULT_SPARK, SparkFlags
from pushlane.cli.task_texts import already_text
from pushlane.operations.task_views import view_of
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util import trace_context

if TYPE_CHECKING:
    from pushlane.pipeline.fanout.request import FanoutRequest, FanoutResult


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What to fan out, and how: the fields of a `FanoutRequest` as flags."""

    audience: Annotated[str, option("PATH|TABLE", "The recipients: anything that Spark reads.")]
    task_spec: Annotated[Path, option("TOML", "The task, by the names of submit.")]
    where: Annotated[str, option("SQL", "Rule over its columns; all without one.")] = ""
    exclude: Annotated[
        list[str] | None, option("PATH|TABLE[:COLUMN]", "Leave out these recipients (repeatable).")
    ] = None
    format: Annotated[str, option("FORMAT", "parquet, csv, json, jdbc, …; by name.")] = ""
    options: Annotated[
        list[str] | None, option("NAME=VALUE", "For Spark's reader (repeatable).", "--option")
    ] = None
    key: Annotated[
        str | None,
        typer.Option(help="The same key makes one task; made of this command unless given."),
    ] = None
    most: Annotated[int | None, option("N", "Refuse more pushes than this.")] = None
    dry_run: Annotated[bool, switch("--dry-run", "Only count, and write nothing.")] = False
    frozen: Annotated[
        bool,
        switch("--frozen", "Go on with what an earlier run froze, whatever the audience is now."),
    ] = False


def fanout(
    flags: Flags, asked: _Asked, spark: SparkFlags = DEFAULT_SPARK, as_json: JsonFlag = False
) -> None:
    """Put the rows of an audience on a lane, each once, with Spark; print the task's id.

    Run again after whatever stopped it, it goes on, or does nothing more.
    """
    with pipeline_extra():
        from pushlane.pipeline.fanout.request import MEMORY, FanoutRequest
        from pushlane.pipeline.session import MASTER
        from pushlane.pipeline.spec import load_spec

    request = FanoutRequest(
        spec=load_spec(asked.task_spec),
        exclude=tuple(asked.exclude or ()),
        options=parse_pairs(asked.options or (), "--option"),
        key=parse_key(asked.key),
        master=spark.master or MASTER,
        memory=spark.memory or MEMORY,
        spark_options=spark.spark_options(),
        audience=asked.audience,
        where=asked.where,
        format=asked.format,
        most=asked.most,
        dry_run=asked.dry_run,
        frozen=asked.frozen,
        traceparent=os.environ.get(trace_context.VARIABLE, ""),
    )
    result = _run(flags.settings(), request)
    _remark(result)
    if as_json:
        task = plain(view_of(result.task)) if result.task else None
        counts = msgspec.structs.asdict(result.counts) if result.counts else None
        task_id = result.task.id if result.task else None
        print_json({"task_id": task_id, **asdict(result), "counts": counts, "task": task})
    elif result.task:
        typer.echo(result.task.id)


def _run(settings: Settings, request: FanoutRequest) -> FanoutResult:
    with pipeline_extra():
        from pushlane.pipeline.fanout.fan_out import fan_out
    try:
        with SubmitBar() as bar:
            return asyncio.run(fan_out(settings, request, bar))
    except KeyboardInterrupt as stop:
        note("interrupted; the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED) from stop


def _remark(result: FanoutResult) -> None:
    if result.already_done and result.task:
        note(f"{already_text(view_of(result.task), result.progress)}: nothing published now")
    elif result.task:
        went_on = " (went on with an earlier run)" if result.resumed else ""
        note(
            f"{pushes_text(result.task.total or 0)} on the lane, level {result.task.level}{went_on}"
        )
    if result.already_done or not result.counts:
        return
    counts = result.counts
    parts = {
        "without recipient": counts.without_recipient,
        "excluded": counts.excluded,
        "duplicates": counts.duplicates,
        "not usable": counts.bad,
    }
    left_out = ", ".join(f"{number:,} {what}" for what, number in parts.items() if number)
    rest = f"; left out: {left_out}" if left_out else ""
    note(f"{counts.matched:,} rows match, {pushes_text(counts.total)}{rest}")
