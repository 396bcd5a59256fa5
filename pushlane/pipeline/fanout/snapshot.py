"""Freezes the rows of a rule as numbered Parquet: filtered, deduplicated, packed and sorted.

No rows are collected on the driver, so memory does not grow with the audience. The functions block,
as Spark's calls do, and are to be run in a thread.

A rule sees the columns of CSV in the types that Spark infers, but pushes get the text as it stands,
since a number that begins with 0 or + may be a phone number. Templates get the same text as in a
submit of the same rows: values that Spark would spell differently (fractions, times, objects) go
through the submit's own function, and all others are plain expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_SEQ
from pushlane.core.task import Task, now_ms
from pushlane.pipeline.errors import shown, spark_errors
from pushlane.pipeline.fanout import AudienceTooLarge, EmptyAudience
from pushlane.pipeline.fanout.request import AudienceCounts, FanoutRequest
from pushlane.pipeline.fanout.stage import (
    FORMAT,
    FanoutStage,
    Signature,
    StageManifest,
    difference,
    signature,
)
from pushlane.pipeline.fanout.writer import (
    RECIPIENT,
    SCHEMA,
    from_rendered,
    packing,
    row_encoder,
    templates,
)
from pushlane.pipeline.session import spark_conf
from pushlane.producers.request import SubmitRequest
from pushlane.producers.template import Template, text_of
from pushlane.producers.validate import unmeant
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits, payload_limits
from pushlane.util.texts import did_you_mean

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def rendered(text: str, rows: DataFrame, name: str) -> Column:
    """Return a column with the template's text for each row; null becomes an empty text.

    Raises BadInput for a field of a type that has no text.
    """
    parts: list[Column] = []
    for literal, field in Template(text).parts:
        if literal:
            parts.append(F.lit(literal))
        if field is not None:
            parts.append(F.coalesce(_text(rows.schema[field].dataType, field, name), F.lit("")))
    return F.concat(*parts) if parts else F.lit("")


def _text(kind: T.DataType, field: str, name: str) -> Column:
    column = F.col(f"`{field}`")
    if isinstance(kind, T.StringType):
        return column
    if isinstance(kind, (*_WHOLE, T.BooleanType, T.DateType)):
        return column.cast("string")
    if isinstance(kind, T.BinaryType):
        raise BadInput(
            f"{name}: template field {field!r} is binary and has no text; cast it in the audience, "
            "or leave it out"
        )
    udf: Any = arrow_udf  # its stubs do not know that type hints tell the kind
    made: Column = udf(_as_submitted, T.StringType())(column)
    return made


def _as_submitted(values: pa.Array) -> pa.Array:
    return pa.array([text_of(value) for value in values.to_pylist()], pa.string())


_FORMATS = {f".{kind}": kind for kind in ("parquet", "csv", "json", "orc", "avro")}
_FORMATS |= {".jsonl": "json", ".ndjson": "json"}
EXCLUDED = "__excluded"
_TEXT = "__text_"
_ZONE = "spark.sql.session.timeZone"
_CSV = {"header": "true", "escape": '"', "mode": "FAILFAST"}
_BLANKS = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace())


@dataclass(frozen=True)
class Audience:
    """The rows of an audience, its name for messages, and the `columns` that a rule may name."""

    name: str
    rows: DataFrame
    columns: tuple[str, ...]

    def matching(self, where: str, zone: str = "") -> DataFrame:
        """Return the rows for which the rule holds, with their columns as they are sent.

        Days and hours in the rule are those of `zone`, or of the session's zone if it is empty.

        Raises BadInput for SQL that cannot be parsed, or names a column that is not there.
        """
        with spark_errors(f"the rule {where!r}", self.columns):
            # Spark binds the zone when it reads the rule
            with spark_conf(self.rows.sparkSession, {_ZONE: zone} if zone else {}):
                kept = self.rows.where(where) if where.strip() else self.rows
            return kept.select(*(self._as_sent(name) for name in self.columns))

    def _as_sent(self, name: str) -> Column:
        text = _TEXT + name
        if text not in self.rows.columns:
            return F.col(f"`{name}`")
        return F.coalesce(F.col(f"`{text}`"), F.lit("")).alias(name)


def read_audience(
    spark: SparkSession, source: str, format_: str, options: Mapping[str, str]
) -> Audience:
    """Read the audience at a path or in a table; raises BadInput if it cannot be read as that."""
    with spark_errors(f"audience {source!r}"):
        rows = _read(spark, source, format_, options)
        columns = tuple(name for name in rows.columns if not name.startswith(_TEXT))
        return Audience(source, rows, columns)


def mark_excluded(
    rows: DataFrame, recipient: str, spark: SparkSession, excluded: Sequence[str], column: str
) -> DataFrame:
    """Add the column EXCLUDED: True if `recipient` is in one of the excluded paths or tables."""
    found = [_recipients(spark, source, recipient, column) for source in excluded]
    if not found:
        return rows.withColumn(EXCLUDED, F.lit(False))
    named = reduce(DataFrame.union, found).distinct().withColumn(EXCLUDED, F.lit(True))
    joined = rows.join(named, recipient, "left")
    return joined.withColumn(EXCLUDED, F.coalesce(F.col(EXCLUDED), F.lit(False)))


def recipient_text(rows: DataFrame, column: str, name: str) -> Column:
    """Return recipients as they are sent: as texts without surrounding blanks.

    Raises BadInput if the column is neither of texts nor of whole numbers.
    """
    kind = rows.schema[column].dataType
    if not isinstance(kind, (T.StringType, *_WHOLE)):
        raise BadInput(
            f"{name}: recipient column {column!r} is {kind.simpleString()}; a recipient is a text "
            "or a whole number"
        )
    return F.trim(F.col(f"`{column}`").cast("string"), F.lit(_BLANKS))


def _recipients(spark: SparkSession, source: str, alias: str, default: str) -> DataFrame:
    path, column = _split(source)
    audience = read_audience(spark, path, "", {})
    only = audience.columns[0] if len(audience.columns) == 1 else default
    column = column or (default if default in audience.columns else only)
    if column not in audience.columns:
        hint = did_you_mean(column, audience.columns)
        raise BadInput(
            f"excluded {path!r} has no column {column!r}{hint}; its columns are: "
            f"{shown(audience.columns)}"
        )
    rows = audience.matching("")
    return rows.select(recipient_text(rows, column, path).alias(alias))


def _split(source: str) -> tuple[str, str]:
    """Split a source into its path or table and its column (`s3a://bucket/x` has none)."""
    path, colon, column = source.rpartition(":")
    return (path, column) if colon and "/" not in column else (source, "")


def _read(spark: SparkSession, source: str, format_: str, options: Mapping[str, str]) -> DataFrame:
    format_ = format_.lower() or _format_of(source)
    if not format_:
        return spark.table(source)
    reader = spark.read.format("json" if format_ == "jsonl" else format_)
    if format_ == "csv":
        return _csv(spark, source, options)
    if format_ == "jdbc":
        return reader.options(**{"dbtable": source, **options}).load()
    return reader.options(**options).load(source)


def _format_of(source: str) -> str:
    """Return the format by the name of a file, or of a folder's first file; empty for a table."""
    path = Path(source.removeprefix("file://"))
    if path.is_dir():
        inside = (file for file in sorted(path.rglob("*")) if file.name[0] not in "._")
        found = (_FORMATS.get(file.suffix.lower()) for file in inside)
        return next((kind for kind in found if kind), "parquet")
    suffix = path.name.removesuffix(".gz").removesuffix(".bz2").rpartition(".")
    known = _FORMATS.get(f".{suffix[2].lower()}", "") if suffix[1] else ""
    return known or ("parquet" if "/" in source else "")


def _csv(spark: SparkSession, source: str, options: Mapping[str, str]) -> DataFrame:
    """Read each column of CSV twice: as text, and in the type that all of its values have."""
    given = {**_CSV, **options}
    typed = spark.read.format("csv").options(**{**given, "inferSchema": "true"}).load(source)
    plain = spark.read.format("csv").options(**given).load(source)
    texts = (F.col(f"`{name}`").alias(_TEXT + name) for name in plain.columns)
    kinds = (
        F.col(f"`{field.name}`").try_cast(field.dataType).alias(field.name)
        for field in typed.schema.fields
    )
    return plain.select(*kinds, *texts)


def count(
    spark: SparkSession,
    settings: Settings,
    request: FanoutRequest,
    submit: SubmitRequest,
    task: Task,
) -> AudienceCounts:
    """Count what would be published; raises BadInput if audience, rule or row cannot be used."""
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

    Raises BadInput as `count` does; nothing is then left in the stage.
    """
    frozen = stage.begin(task.id)
    try:
        with spark_errors(f"fan-out of {request.audience!r}"):
            limits = payload_limits(settings, task.chain)
            audience, packed, observed = _plan_freeze(spark, request, submit, task, limits)
            before = signature(audience.rows)
            rows = packed.withColumn("part", F.spark_partition_id())
            writer = rows.write.option("compression", "snappy").option("maxRecordsPerFile", 0)
            writer.parquet(frozen.rows.as_uri())  # one file a part, whatever the session's defaults
            _refuse_moving(request, before, signature(audience.rows))
            parts = frozen.files()
            counts = _checked_counts(request, observed, sum(part.rows for part in parts))
    except BaseException:
        stage.drop(task.id)
        raise
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


def changed(spark: SparkSession, request: FanoutRequest, manifest: StageManifest) -> str:
    """Return how the audience differs from what was frozen; empty if it does not."""
    audience = read_audience(spark, request.audience, request.format, request.options)
    with spark_errors(f"audience {request.audience!r}"):
        return difference(manifest.signature, signature(audience.rows))


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
    is_nested = isinstance(rows.schema[name].dataType, (T.StructType, T.MapType, T.ArrayType))
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
    found: dict[str, Any] = {}
    for observation in observed:
        found |= _observed(observation, may_be_nothing=not total)
    names = ("nameless", "excluded", "duplicates", "bad")
    nameless, excluded, duplicates, bad = (found.get(name, 0) for name in names)
    matched = nameless + excluded + duplicates + bad + total
    counts = AudienceCounts(
        matched=matched,
        without_recipient=nameless,
        excluded=excluded,
        duplicates=duplicates,
        bad=bad,
        total=total,
    )
    _refuse_unusable(request, counts, found.get("reason"))
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
