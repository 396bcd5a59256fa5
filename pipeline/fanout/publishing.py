"""Runs the Spark job that publishes frozen bundles, each file with its own producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane.lanes.settings import Settings
from pushlane.pipeline.errors import spark_errors
from pushlane.pipeline.fanout.source import NAME, data_source_with
from pushlane.pipeline.fanout.stage import SCHEMA, SINGLES, FrozenRows, Part, StageManifest
from pushlane.pipeline.session import spark_conf

_TOO_LARGE = str(1 << 40)
_WHOLE_FILES = {
    "spark.sql.files.maxPartitionBytes": _TOO_LARGE,
    "spark.sql.files.openCostInBytes": _TOO_LARGE,
}
"""Settings that make each file one partition, neither cut nor combined with others."""


def publish(
    spark: SparkSession,
    settings: Settings,
    frozen: FrozenRows,
    manifest: StageManifest,
    parts: Sequence[Part],
) -> None:
    """Publish these parts, and return when all of their rows are durable.

    Raises:
        PipelineFailed: a part could not be published; it can be tried again.
    """
    spark.createDataFrame([], "seq long")  # sources are found by the session active in a thread
    spark.dataSource.register(data_source_with(settings))
    doing = f"publishing for task {manifest.task.id}"
    with spark_errors(doing), spark_conf(spark, _WHOLE_FILES):
        rows = _numbered(spark, frozen, manifest, parts)
        rows.write.format(NAME).options(
            task=manifest.task.id,
            head=manifest.head.hex(),
            collapses="true" if manifest.collapses else "false",
            progress=str(frozen.progress),
        ).mode("append").save()


def _numbered(
    spark: SparkSession, frozen: FrozenRows, manifest: StageManifest, parts: Sequence[Part]
) -> DataFrame:
    """Return the bundles of the parts with their first seqs, from where each part starts."""
    files = [(frozen.rows / part.file).as_uri() for part in parts]
    if manifest.format == 1:  # a row is a push
        rows = spark.read.schema(SINGLES).parquet(*files)
        place, pushes = F.col("_metadata.row_index"), F.lit(1)
    else:
        rows = spark.read.schema(SCHEMA).parquet(*files)
        place, pushes = F.col("place"), F.col("pushes")
    first = _by_part({part.number: part.first_seq for part in parts})
    numbered = rows.select((first + place).alias("seq"), pushes.alias("pushes"), "packed", "part")
    starts = frozen.starts(parts)
    if any(start > first_seq for first_seq, start in starts.items()):
        begins = _by_part({part.number: starts[part.first_seq] for part in parts})
        numbered = numbered.where(F.col("seq") >= begins)
    return numbered.select("seq", "pushes", "packed")


def _by_part(values: Mapping[int, int]) -> Column:
    """Return a column that looks up a value by the part number that each row carries."""
    table = [values.get(number, 0) for number in range(max(values) + 1)]
    return F.get(F.lit(table).cast("array<bigint>"), F.col("part"))
