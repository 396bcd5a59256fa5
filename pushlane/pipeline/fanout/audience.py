"""Reads an audience and its exclusions from files or tables.

A rule sees the columns of CSV in the types that Spark infers, but pushes get the text as it stands,
since a number that begins with 0 or + may be a phone number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

from pushlane.core.errors import BadInput
from pushlane.lanes.suggestions import did_you_mean
from pushlane.pipeline.errors import shown, spark_errors
from pushlane.pipeline.session import spark_conf

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".avro": "avro",
}
EXCLUDED = "__excluded"
_TEXT = "__text_"
_ZONE = "spark.sql.session.timeZone"
_CSV = {"header": "true", "escape": '"', "mode": "FAILFAST"}
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
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

        Raises:
            BadInput: SQL that cannot be parsed, or names a column that is not there.
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
    """Read the audience at a path or in a table.

    Raises:
        BadInput: it is not there, or cannot be read as what it is said to be.
    """
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

    Raises:
        BadInput: the column is of another type.
    """
    kind = rows.schema[column].dataType
    if not isinstance(kind, (StringType, *_WHOLE)):
        raise BadInput(
            f"{name}: recipient column {column!r} is {kind.simpleString()}; a recipient is a text "
            "or a whole number"
        )
    return F.trim(F.col(f"`{column}`").cast("string"), F.lit(_BLANKS))


def _recipients(spark: SparkSession, source: str, alias: str, default: str) -> DataFrame:
    path, column = _split(source)
    audience = read_audience(spark, path, "", {})
    column = column or _only_column(audience, default)
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


def _only_column(audience: Audience, default: str) -> str:
    if default in audience.columns or len(audience.columns) != 1:
        return default
    return audience.columns[0]


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
    """Return the format by the name of a file or of the first file in a folder; empty for a
    table.
    """
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
