"""Writes the store's files so that they outlive a power cut, and names the errors of a store."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pushlane.lanes.errors import PushlaneError


def sync(path: Path) -> None:
    """Force a file's content, or a folder's names, down to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path, paths: Iterable[str]) -> None:
    """Force these files, and every folder from each of them up to this one, down to the disk."""
    files = [folder / path for path in paths]
    above = {each for file in files for each in file.parents if each.is_relative_to(folder)}
    for each in (*files, *sorted(above, reverse=True)):
        sync(each)


MEND = "`pushlane pipeline replay --since TIME` rebuilds the store from the log of receipts"


class CorruptStore(PushlaneError):
    """A file of the store is damaged or missing; the store can be rebuilt from the log."""

    @staticmethod
    def of(path: Path, what: str) -> CorruptStore:
        return CorruptStore(f"{path}: {what}; {MEND}")


class StoreBusy(PushlaneError):
    """Another process writes this store; wait for it, or stop it."""


def write_atomically(path: Path, body: bytes) -> None:
    """Replace the file as a whole; the new content outlives a power cut once this returns."""
    write_beside(path, body).replace(path)
    sync(path.parent)


def write_beside(path: Path, body: bytes) -> Path:
    """Write the content durably beside its place, under a unique name that is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with unfinished.open("xb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    return unfinished


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
