"""Reads rows of a Parquet file batch by batch, and only the columns that are used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pushlane.core.errors import BadInput
from pushlane.producers.rows import Row, Wanted

_ROWS = 8_192  # of a batch
_BROKEN = (pa.ArrowException, UnicodeDecodeError, OSError)


class ParquetRows:
    unit = "row"
    misfit = "not UTF-8"
    fixed = True

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        with self._open() as file:
            self.columns = tuple(file.schema_arrow.names)

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        done = 0
        try:
            with self._open() as file:
                for batch in file.iter_batches(_ROWS, columns=list(wanted.names)):
                    columns = [batch.column(field).to_pylist() for field in wanted.names]
                    yield from enumerate(zip(*columns, strict=True), start=done + 1)
                    done += batch.num_rows
        except _BROKEN as error:
            if _is_the_disks(error):
                raise
            raise BadInput(f"{self.name} is damaged after row {done}; write it again") from error

    def _open(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._path)
        except _BROKEN as error:
            if _is_the_disks(error):
                raise
            raise BadInput(f"{self.name} is not a Parquet file; check its format") from error


def _is_the_disks(error: Exception) -> bool:
    """Return whether the disk failed; Arrow's own OSError, for bad content, has no number."""
    return isinstance(error, OSError) and error.errno is not None
