"""Runs DuckDB on one store: it reads the store's files and can reach nothing else.

A query is text from this package with its values bound. DuckDB's errors are translated into errors
that name the file and how to mend it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb
import pyarrow as pa

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.pipeline.reports.query import TIMES_MS, Period
from pushlane.pipeline.store import CorruptStore, FileEntry, Store
from pushlane.pipeline.store.schema import TABLES

COUNTED = "counted"
"""The name of the table of all counts, whether they are kept by minute, hour or day."""
ROLLED_UP_MS = {"hours": TIMES_MS["hour"], "days": TIMES_MS["day"]}
_PAGE = 10_000
_MOST_THREADS = 8
_GLOB_SIGNS = frozenset("*?[")


class Sql(NamedTuple):
    """A piece of SQL, with the values that are bound to its `$names`."""

    text: str
    values: Mapping[str, Any] = {}


class FilesMoved(PushlaneError):
    """The store was rewritten while it was read; ask the same question again."""


class Engine:
    """Runs queries on one period of a store; used as a context manager.

    Queries end after the time that their bounds have, counted from when it is entered. Raises
    BadInput if the store's folder has a name that DuckDB takes for a pattern.
    """

    def __init__(
        self, store: Store, root: Path, period: Period, bounds: ReadBounds = NO_BOUNDS
    ) -> None:
        if _GLOB_SIGNS & set(str(root)):
            raise BadInput(
                f"the store's folder {str(root)!r} has one of * ? [ in its name; choose another "
                "(setting reports_dir)"
            )
        self.period = period
        self._bounds = (period.since_ms, period.until_ms)
        self._store = store
        self._views: dict[str, list[str]] = {}
        self._read_bounds = bounds
        self._timer: threading.Timer | None = None
        threads = min(os.cpu_count() or 1, _MOST_THREADS)
        limits: dict[str, Any] = {
            "threads": threads,
            "memory_limit": bounds.memory,
            "temp_directory": "",
        }
        offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        self._connection = duckdb.connect(config={**limits, **offline})
        self._connection.execute("set allowed_directories = $roots", {"roots": [str(root)]})
        self._connection.execute("set parquet_metadata_cache = true")  # its files never change
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def __enter__(self) -> Self:
        if self._read_bounds.most_s is not None:
            self._timer = threading.Timer(self._read_bounds.most_s, self._connection.interrupt)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._connection.close()

    def table(self, name: str) -> str:
        """Return the view on a table's files of the period, which may hold rows of other times too.

        A table without files is empty.
        """
        return self._view(name, name, *self._bounds)

    def all_of(self, name: str) -> str:
        """Return the view on all files of a table."""
        return self._view(f"all_{name}", name, None, None)

    @property
    def coarsest_ms(self) -> int:
        """Return the longest step by which counts of the period are kept: a minute, hour or day."""
        kept = (ms for table, ms in ROLLED_UP_MS.items() if self._store.files(table, *self._bounds))
        return max(kept, default=TIMES_MS["minute"])

    def rows(self, sql: Sql) -> list[tuple[Any, ...]]:
        """Run the query and return its rows.

        Raises CorruptStore for a file that cannot be read, FilesMoved for one that has gone since
        the question began, and BadInput if more memory is needed than may be used.
        """
        return [row for page in self.pages(sql, _PAGE) for row in page]

    def pages(self, sql: Sql, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """Run the query and yield its rows, so many at a time; raises what `rows` does."""
        try:
            found = self._connection.execute(sql.text, dict(sql.values))
            while page := found.fetchmany(rows):
                yield page
        except duckdb.Error as error:
            raise self._translated(error) from error

    def _view(self, view: str, table: str, since_ms: int | None, until_ms: int | None) -> str:
        if view in self._views:
            return view
        is_counted = table == COUNTED
        files_of = self._store.counted if is_counted else partial(self._store.files, table)
        self._views[view] = files = files_of(since_ms, until_ms)
        try:
            schema = TABLES["minutes" if is_counted else table]
            # Arrow imports pandas for `schema.empty_table()`, which takes longer than most answers.
            nothing = self._connection.from_arrow(pa.Table.from_batches([], schema))
            if not files:
                nothing.create_view(view)
            elif table == "detail":
                entries = self._store.entries(table, since_ms, until_ms)
                self._with_all_columns(view, entries, nothing)
            else:
                self._connection.read_parquet(files, hive_partitioning=False).create_view(view)
        except duckdb.Error as error:
            raise self._translated(error) from error
        return view

    def _with_all_columns(
        self, view: str, entries: Sequence[FileEntry], nothing: duckdb.DuckDBPyRelation
    ) -> None:
        """Make a view in which a column that older files lack is null.

        DuckDB looks at all files before it reads any where their columns may differ: so those that
        have the same ones are read apart from others.
        """
        nothing.create_view(f"{view}_columns")
        parts = [f"{view}_columns"]
        for columns in sorted({each.columns for each in entries}):
            paths = (each.path for each in entries if each.columns == columns)
            found = self._connection.read_parquet(
                self._store.generation.paths(paths),
                hive_partitioning=False,
                union_by_name=not columns,
            )
            parts.append(f"{view}_of_{columns}")
            found.create_view(parts[-1])
        self._connection.execute(
            f"create view {view} as from {' union all by name from '.join(parts)}"
        )

    def _translated(self, error: duckdb.Error) -> PushlaneError:
        if isinstance(error, duckdb.InterruptException):
            return BadInput(
                f"this report takes longer than {self._read_bounds.most_s:g} s: shorten its "
                "period, filter it, or break it down by less"
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            return BadInput(
                f"this report needs more than {self._read_bounds.memory} of memory: shorten its "
                "period, filter it with --where, or break it down by less"
            )
        files = [file for files in self._views.values() for file in files]
        if any(not os.path.exists(file) for file in files):
            return FilesMoved("the store was rewritten while it was read; ask again")
        if damaged := next((file for file in files if not self._is_readable(file)), None):
            return CorruptStore.of(Path(damaged), "this Parquet file cannot be read")
        return PushlaneError(f"the report's query failed with {type(error).__name__}")

    def _is_readable(self, file: str) -> bool:
        """Read the whole file, since DuckDB does not say which of several is damaged."""
        try:
            columns = self._connection.read_parquet(file, hive_partitioning=False)
            columns.aggregate("bit_xor(hash(columns(*)))").fetchall()
        except duckdb.Error:
            return False
        return True
