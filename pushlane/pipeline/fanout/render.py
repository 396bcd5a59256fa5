"""Renders templates as Spark expressions, with the same text as a submit of the same rows.

Texts, whole numbers, booleans and dates are plain expressions. Values that Spark would spell
differently (fractions, times, objects) go through the submit's own function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from pushlane.core.errors import BadInput
from pushlane.producers.template import Template, text_of

_ALIKE = (ByteType, ShortType, IntegerType, LongType, BooleanType, DateType)


def rendered(text: str, rows: DataFrame, name: str) -> Column:
    """Return a column with the template's text for each row; null becomes an empty text.

    Raises:
        BadInput: a field of a type that has no text.
    """
    parsed = Template(text).parts
    parts = [part for piece in parsed for part in _pieces(*piece, rows, name)]
    return F.concat(*parts) if parts else F.lit("")


def _pieces(literal: str, field: str | None, rows: DataFrame, name: str) -> Iterator[Column]:
    if literal:
        yield F.lit(literal)
    if field is not None:
        yield F.coalesce(_text(rows.schema[field].dataType, field, name), F.lit(""))


def _text(kind: DataType, field: str, name: str) -> Column:
    column = F.col(f"`{field}`")
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, _ALIKE):
        return column.cast("string")
    if isinstance(kind, BinaryType):
        raise BadInput(
            f"{name}: template field {field!r} is binary and has no text; cast it in the audience, "
            "or leave it out"
        )
    udf: Any = arrow_udf  # its stubs do not know that type hints tell the kind
    made: Column = udf(_as_submitted, StringType())(column)
    return made


def _as_submitted(values: pa.Array) -> pa.Array:
    return pa.array([text_of(value) for value in values.to_pylist()], pa.string())
