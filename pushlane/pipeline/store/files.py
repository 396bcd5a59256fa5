"""Reads the store's Parquet files, and names the errors of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pushlane.core.errors import PushlaneError

MEND = "`pushlane pipeline replay --since TIME` rebuilds the store from the log of receipts"


class CorruptStore(PushlaneError):
    """A file of the store is damaged or missing; the store can be rebuilt from the log."""

    @staticmethod
    def of(path: Path, what: str) -> CorruptStore:
        return CorruptStore(f"{path}: {what}; {MEND}")


class StoreBusy(PushlaneError):
    """Another process writes this store; wait for it, or stop it."""


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, wanted: pc.Expression | None = None
) -> pa.Table:
    """Read a file of the store; raises CorruptStore if it cannot be read."""
    try:
        names = list(columns) if columns else None
        return pq.read_table(path, columns=names, filters=wanted, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise CorruptStore.of(path, "this file cannot be read") from error


def read_footer(path: Path) -> pq.FileMetaData:
    """Read the footer of a file of the store; raises CorruptStore if it is no Parquet."""
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise CorruptStore.of(path, "this file is no whole Parquet file") from error


def column_range(footer: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column, by the footer of a file with rows."""
    place = footer.schema.names.index(column)
    groups = [footer.row_group(index).column(place) for index in range(footer.num_row_groups)]
    found = [group.statistics for group in groups]
    return min(each.min for each in found), max(each.max for each in found)
