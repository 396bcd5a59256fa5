"""Masks of Spark columns: the very texts of `model.masks`, made in Spark's workers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from pushlane.model.masks import FieldType, Masks, Sensitivity, field_type, sensitivity


def mask(
    column: Column | str,
    field: FieldType | str = FieldType.TEXT,
    level: Sensitivity | str = Sensitivity.PERSONAL,
    *,
    key: bytes | str,
) -> Column:
    """Return the masks of a column, as texts; what is no text is cast to one. Null stays null.

    The key travels inside the function's code, so that no plan of Spark shows it.
    Raises BadInput if the key has fewer than 16 bytes, or there is no such type of field or level.
    """
    Masks(key)
    chosen, shown = field_type(field), sensitivity(level)

    def masked(values: pa.Array) -> pa.Array:
        one = _masks(key).mask
        return pa.array([one(value, chosen, shown) for value in values.to_pylist()], pa.string())

    udf: Any = arrow_udf  # its stubs do not know that type hints tell the kind
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    made: Column = udf(masked, "string")(text)
    return made


@lru_cache(maxsize=8)
def _masks(key: bytes | str) -> Masks:
    return Masks(key)
