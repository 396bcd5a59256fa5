"""Opens a store for reading: tells which files hold what, as of one moment.

It never writes, and never waits for a writer. Files that a later manifest replaced stay for a grace
time, so that a reader that has opened the store can finish.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pushlane.core.errors import BadInput
from pushlane.pipeline.store.manifest import (
    FileCounts,
    FileEntry,
    Gap,
    Generation,
    SampledBatch,
    StoreState,
    current,
    read_state,
)
from pushlane.pipeline.store.schema import TABLES, TIME_COLUMN

ADDITIVE = ("minutes", "hours", "days")


@dataclass(frozen=True)
class TableSize:
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Snapshot:
    """A summary of what a store holds at one moment.

    `positions` is how far the log was read, one text a partition; None before the first batch.
    `intervals` are the batches whose detail rows are, or were, a sample. `gaps` are receipts that
    the log dropped unread.
    """

    generation: str
    manifest: int
    last_batch: int
    last_batch_at_ms: int
    positions: list[str] | None
    counts: FileCounts
    intervals: list[SampledBatch]
    gaps: list[Gap]
    tables: dict[str, TableSize]


@dataclass(frozen=True)
class Store:
    """A store as it was when it was opened; open it again to see later changes."""

    generation: Generation
    state: StoreState

    def entries(
        self, table: str, since_ms: int | None = None, until_ms: int | None = None
    ) -> list[FileEntry]:
        """Return the table's files that may hold rows of since <= time < until, oldest first."""
        assert table in TABLES, table
        found = list(self.state.files.get(table, {}).values())
        if table in TIME_COLUMN:
            found = [each for each in found if _meets(each, since_ms, until_ms)]
        return sorted(found, key=lambda each: (each.min_ms, each.path))

    def files(
        self, table: str, since_ms: int | None = None, until_ms: int | None = None
    ) -> list[str]:
        """Return the paths of `entries`; the files may hold rows outside of the range too."""
        entries = self.entries(table, since_ms, until_ms)
        return self.generation.paths(each.path for each in entries)

    def counted(self, since_ms: int | None = None, until_ms: int | None = None) -> list[str]:
        """Return the files of `minutes`, `hours` and `days` together, which have one schema.

        Each receipt is counted in exactly one of the three: compaction moves old counts from
        minutes to hours to days.
        """
        return [path for table in ADDITIVE for path in self.files(table, since_ms, until_ms)]

    def snapshot(self) -> Snapshot:
        state = self.state
        return Snapshot(
            generation=self.generation.name,
            manifest=state.number,
            last_batch=state.last_batch,
            last_batch_at_ms=state.last_batch_at_ms,
            positions=state.positions,
            counts=state.counts,
            intervals=[each for _, each in sorted(state.intervals.items())],
            gaps=state.gaps,
            tables={table: _size(self.entries(table)) for table in TABLES},
        )


def open_store(root: Path) -> Store:
    """Open the store as it is now.

    Raises BadInput if there is no store in this folder, and CorruptStore, with the file and the
    replay command, if its manifests cannot be read.
    """
    generation = current(Path(root))
    if generation is None:
        raise BadInput(
            f"{root} holds no receipts yet: `pushlane pipeline run` reads them from the log"
        )
    return Store(generation, read_state(generation.manifests))


def _meets(entry: FileEntry, since_ms: int | None, until_ms: int | None) -> bool:
    is_late_enough = since_ms is None or entry.max_ms >= since_ms
    return is_late_enough and (until_ms is None or entry.min_ms < until_ms)


def _size(entries: list[FileEntry]) -> TableSize:
    rows = sum(each.rows for each in entries)
    return TableSize(len(entries), rows, sum(each.bytes for each in entries))
