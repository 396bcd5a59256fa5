"""Freezes the rows of a rule as numbered Parquet: filtered, deduplicated, packed and sorted.

No rows are collected on the driver, so memory does not grow with the audience. The functions block,
as Spark's calls do, and are to be run in a thread.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_SEQ
from pushlane.core.task import Task, now_ms
from pushlane.pipeline.errors import spark_errors
from pushlane.pipeline.fanout import AudienceTooLarge, EmptyAudience
from pushlane.pipeline.fanout.audience import (
    EXCLUDED,
    Audience,
    mark_excluded,
    read_audience,
    recipient_text,
)
from pushlane.pipeline.fanout.pack import (
    RECIPIENT,
    SCHEMA,
    from_rendered,
    packing,
    row_encoder,
    templates,
)
from pushlane.pipeline.fanout.render import rendered
from pushlane.pipeline.fanout.request import AudienceCounts, FanoutRequest
from pushlane.pipeline.fanout.signature import Signature, difference, signature
from pushlane.pipeline.fanout.stage import FORMAT, FanoutStage, FrozenRows, StageManifest
from pushlane.producers.meant import unmeant
from pushlane.producers.request import SubmitRequest
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits, payload_limits

_NOTHING: dict[str, Any] = {"nameless": 0, "excluded": 0, "duplicates": 0, "bad": 0, "reason": None}


def count(
    spark: SparkSession,
    settings: Settings,
    request: FanoutRequest,
    submit: SubmitRequest,
    task: Task,
) -> AudienceCounts:
    """Count what a fan-out would publish, without writing anything.

    Raises:
        BadInput: the audience, the rule or a row cannot be used.
    """
    with spark_errors(f"fan-out of {request.audience!r}"):
        limits = payload_limits(settings, task.chain)
        _, packed, observed = _plan_freeze(spark, request, submit, task, limits)
        total = packed.select(F.sum("pushes")).collect()[0][0] or 0
        return _checked_counts(request, observed, total)


def freeze(
    spark: SparkSession,
    settings: Settings,
    stage: FanoutStage,
    request: FanoutRequest,
    submit: SubmitRequest,
    task: Task,
) -> StageManifest:
    """Write the rows into the stage, and return the manifest that the caller has to publish.

    Raises:
        BadInput: the audience, the rule or a row cannot be used; nothing is left in the stage.
    """
    frozen = stage.begin(task.id)
    try:
        return _manifest(spark, settings, frozen, request, submit, task)
    except BaseException:
        stage.drop(task.id)
        raise


def changed(spark: SparkSession, request: FanoutRequest, manifest: StageManifest) -> str:
    """Return how the audience differs from what was frozen; empty if it does not."""
    audience = read_audience(spark, request.audience, request.format, request.options)
    with spark_errors(f"audience {request.audience!r}"):
        return difference(manifest.signature, signature(audience.rows))


def _manifest(
    spark: SparkSession,
    settings: Settings,
    frozen: FrozenRows,
    request: FanoutRequest,
    submit: SubmitRequest,
    task: Task,
) -> StageManifest:
    with spark_errors(f"fan-out of {request.audience!r}"):
        limits = payload_limits(settings, task.chain)
        audience, packed, observed = _plan_freeze(spark, request, submit, task, limits)
        before = signature(audience.rows)
        rows = packed.withColumn("part", F.spark_partition_id())
        writer = rows.write.option("compression", "snappy").option("maxRecordsPerFile", 0)
        writer.parquet(frozen.rows.as_uri())  # a part is one file, whatever the session's defaults
        _refuse_moving(request, before, signature(audience.rows))
        parts = frozen.files()
        counts = _checked_counts(request, observed, sum(part.rows for part in parts))
    return StageManifest(
        task=task,
        parts=parts,
        counts=counts,
        signature=before,
        audience=request.audience,
        where=request.where,
        created_at_ms=now_ms(),
        collapses=bool(submit.collapse),
        format=FORMAT,
    )


def _plan_freeze(
    spark: SparkSession,
    request: FanoutRequest,
    submit: SubmitRequest,
    task: Task,
    limits: PayloadLimits,
) -> tuple[Audience, DataFrame, list[Observation]]:
    """Return the audience, its bundles, and what counts the rows while Spark computes those.

    Rows that are left out are counted in the stage that writes, because Spark counts an earlier
    stage again if it reruns it for a lost worker. Only rows without recipient are counted before.
    """
    audience = read_audience(spark, request.audience, request.format, request.options)
    row_encoder(submit, audience.columns, request.audience)  # refuses columns that are not there
    if request.advise is not None:
        for text in unmeant(submit, request.audience, audience.columns):
            request.advise(text)
    nameless, left_out, made = (Observation() for _ in range(3))
    rows = _render_columns(audience.matching(request.where, request.zone), submit, request.audience)
    has_none = F.coalesce(F.col(RECIPIENT), F.lit("")) == ""
    rows = rows.observe(nameless, F.count_if(has_none).alias("nameless")).where(~has_none)
    rows = mark_excluded(rows, RECIPIENT, spark, request.exclude, submit.recipient)
    rows = _grouped_by_zone(_one_per_recipient(rows, left_out), submit)
    step = packing(from_rendered(submit), task, limits, rows.columns)
    packed = rows.mapInArrow(step, SCHEMA)
    bad = F.col("reason").isNotNull()
    packed = packed.observe(made, F.count_if(bad).alias("bad"), F.min("reason").alias("reason"))
    good = packed.where(~bad).select("packed", "place", "pushes")
    return audience, good, [nameless, left_out, made]


def _render_columns(rows: DataFrame, submit: SubmitRequest, name: str) -> DataFrame:
    """Select the columns that pushes are made of, with recipients and templates as texts."""
    recipient = recipient_text(rows, submit.recipient, name).alias(RECIPIENT)
    texts = [rendered(text, rows, name).alias(c) for c, text in templates(submit).items()]
    made = {RECIPIENT, *templates(submit)}
    needed = row_encoder(from_rendered(submit), (*rows.columns, *made)).wanted.names
    plain = [F.col(f"`{column}`") for column in needed if column not in made]
    return rows.select(recipient, *texts, *plain)


def _one_per_recipient(rows: DataFrame, left_out: Observation) -> DataFrame:
    """Keep one row for each recipient who is not excluded.

    That is the first in the order of all columns, so that it is the same row in each run.
    """
    order = [_sortable(rows, name) for name in rows.columns if name not in (RECIPIENT, EXCLUDED)]
    window = Window.partitionBy(RECIPIENT).orderBy(*order or [F.col(RECIPIENT)])
    numbered = rows.withColumn("__place", F.row_number().over(window))
    is_excluded, is_first = F.col(EXCLUDED), F.col("__place") == 1
    counted = numbered.observe(
        left_out,
        F.count_if(is_excluded).alias("excluded"),
        F.count_if(~is_excluded & ~is_first).alias("duplicates"),
    )
    return counted.where(~is_excluded & is_first).drop("__place", EXCLUDED)


def _grouped_by_zone(rows: DataFrame, submit: SubmitRequest) -> DataFrame:
    """Sort each part by time zone, so that quiet hours hold back whole bundles.

    Without zones, the search for duplicates has sorted the rows by recipient already.
    """
    if not submit.zone_column:
        return rows
    zone = F.col(f"`{submit.zone_column}`")
    return rows.sortWithinPartitions(zone, RECIPIENT)


def _sortable(rows: DataFrame, name: str) -> Column:
    column = F.col(f"`{name}`")
    is_nested = isinstance(rows.schema[name].dataType, (StructType, MapType, ArrayType))
    return F.to_json(column) if is_nested else column


def _refuse_moving(request: FanoutRequest, before: Signature, after: Signature) -> None:
    """Raise if the audience's files changed during the freeze.

    Other audiences are not checked, since reading them once more would take as long again.
    """
    if before.files and (found := difference(before, after)):
        raise BadInput(
            f"audience {request.audience!r} changed while it was read: {found}; run this again "
            "when nobody writes to it"
        )


def _checked_counts(
    request: FanoutRequest, observed: list[Observation], total: int
) -> AudienceCounts:
    found: dict[str, Any] = dict(_NOTHING)
    for observation in observed:
        found |= _observed(observation, may_be_nothing=not total)
    nameless, bad = found["nameless"], found["bad"]
    counts = AudienceCounts(
        matched=nameless + found["excluded"] + found["duplicates"] + bad + total,
        without_recipient=nameless,
        excluded=found["excluded"],
        duplicates=found["duplicates"],
        bad=bad,
        total=total,
    )
    _refuse_unusable(request, counts, found["reason"])
    return counts


def _observed(observation: Observation, *, may_be_nothing: bool) -> dict[str, Any]:
    """Return what was counted; nothing if Spark knows that there are no rows, as for `1 = 0`."""
    try:
        return observation.get
    except Py4JJavaError:
        if may_be_nothing:
            return {}
        raise


def _refuse_unusable(request: FanoutRequest, counts: AudienceCounts, reason: str | None) -> None:
    if counts.bad and request.spec.bad_rows == "stop":
        raise BadInput(
            f"{counts.bad:,} rows of {request.audience!r} cannot be used; one {reason}; nothing "
            'was published. Correct them, or leave them out with bad_rows = "skip" in the task spec'
        )
    if not counts.total:
        raise _empty_audience(request, counts)
    if counts.total > MAX_SEQ:
        raise BadInput(f"{counts.total:,} pushes are more than a task takes ({MAX_SEQ:,})")
    if request.most is not None and counts.total > request.most:
        raise AudienceTooLarge(
            f"{counts.total:,} pushes are more than the {request.most:,} that are allowed; nothing "
            "was published. Narrow the rule, or allow more"
        )


def _empty_audience(request: FanoutRequest, counts: AudienceCounts) -> BadInput:
    if not counts.matched:
        rule = f"for which {request.where!r} holds" if request.where else "at all"
        return EmptyAudience(
            f"audience {request.audience!r} has no rows {rule}: nothing to publish"
        )
    if counts.without_recipient == counts.matched:
        return BadInput(
            f"none of the {counts.matched:,} rows of {request.audience!r} has a recipient in "
            f"{request.spec.recipient!r}; name the column in the task spec"
        )
    what = BadInput if counts.bad else EmptyAudience
    return what(
        f"nobody is left of {counts.matched:,} rows of {request.audience!r}: "
        f"{counts.without_recipient:,} without recipient, {counts.excluded:,} excluded, "
        f"{counts.bad:,} that cannot be used"
    )
