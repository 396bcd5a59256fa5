"""Writes an audience for a benchmark: tokens, names and cities in Parquet, file by file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_FILE_ROWS = 250_000
_CITIES = ("Oslo", "Rome", "Lima", "Quito", "Perth", "Osaka", "Turin", "Accra")


def write_audience(folder: Path, rows: int) -> Path:
    """Columns n (0, 1, 2 …), token, name, city and age."""
    path = folder / "audience"
    path.mkdir()
    for number, first in enumerate(range(0, rows, _FILE_ROWS)):
        table = _table(first, min(rows, first + _FILE_ROWS))
        pq.write_table(table, path / f"{number:05}.parquet")
    return path


def _table(first: int, end: int) -> pa.Table:
    numbers = pa.array(range(first, end), pa.int64())
    texts = pc.utf8_lpad(numbers.cast("string"), 10, "0")
    cities = pa.array(_CITIES).take(pa.array([n % len(_CITIES) for n in range(first, end)]))
    return pa.table(
        {
            "n": numbers,
            "token": pc.binary_join_element_wise(texts, "c0ffee4b1d5eed", ":"),
            "name": pc.binary_join_element_wise("Person", texts, " "),
            "city": cities,
            "age": pa.array([n % 90 for n in range(first, end)], pa.int32()),
        }
    )
