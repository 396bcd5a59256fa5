"""Writes a store: one process at a time, each change published by one manifest.

A writer puts files under the name of the next batch, and publishes them; what a crash left under
that name is removed first. Nothing counts before `publish` returns.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pushlane.core.errors import BadInput
from pushlane.pipeline.store.manifest import (
    FileCounts,
    FileEntry,
    Gap,
    Generation,
    Manifest,
    SampledBatch,
    StoreBusy,
    StoreState,
    batch_names,
    column_range,
    current,
    make_current,
    new_batch_name,
    next_generation,
    read_footer,
    read_state,
    remove_before_checkpoints,
    remove_unfinished,
    write_checkpoint,
    write_manifest,
)
from pushlane.pipeline.store.reading import Store
from pushlane.pipeline.store.schema import TABLES, TIME_COLUMN
from pushlane.util import files
from pushlane.util.files import FileLock, sync_below

CHECKPOINT_EVERY = 32
_LOCK = "LOCK"


class StoreWriter:
    """The one writer of a generation, made by `open_writer`, which holds the lock."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.state = read_state(generation.manifests)

    @property
    def store(self) -> Store:
        """Return the store as it counts now."""
        return Store(self.generation, self.state)

    def begin(self) -> str:
        """Remove what a crash left of the next number, and return the name to write under now."""
        number = self.state.number + 1
        for table in TABLES:
            for left in batch_names(number):
                for folder in self.generation.batch_folders(table, left):
                    shutil.rmtree(folder, ignore_errors=True)
        return new_batch_name(number)

    def write(self, table: str, rows: pa.Table, name: str) -> None:
        """Write one file of a table from Arrow; no rows make no file."""
        if rows.num_rows:
            folder = self.generation.table(table) / f"batch={name}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows.cast(TABLES[table]), folder / "part-0.parquet", compression="zstd")

    def publish(
        self,
        kind: str,
        name: str,
        *,
        positions: list[str] | None = None,
        removed: Mapping[str, list[str]] | None = None,
        counts: FileCounts | None = None,
        intervals: Iterable[SampledBatch] = (),
        swept: Iterable[str] = (),
        gaps: Iterable[Gap] = (),
    ) -> StoreState:
        """Make everything written under the name count, and the removed files count no more.

        Raises StoreBusy if another process has published this number, and so writes the store now.
        """
        added = {table: written_files(self.generation, table, name) for table in TABLES}
        self._settle(name, added)
        manifest = Manifest(
            number=self.state.number + 1,
            kind=kind,
            at_ms=time.time_ns() // 1_000_000,
            positions=positions,
            added={table: entries for table, entries in added.items() if entries},
            removed={table: paths for table, paths in (removed or {}).items() if paths},
            counts=counts or FileCounts(),
            intervals=list(intervals),
            swept=list(swept),
            gaps=list(gaps),
        )
        write_manifest(self.generation.manifests, manifest)
        self.state = self.state.after(manifest)
        if self.state.number % CHECKPOINT_EVERY == 0:
            write_checkpoint(self.generation.manifests, self.state)
            remove_before_checkpoints(self.generation.manifests)
        return self.state

    def _settle(self, name: str, added: Mapping[str, list[FileEntry]]) -> None:
        """Force the files that will count down to the disk, and remove folders without rows."""
        paths = [each.path for entries in added.values() for each in entries]
        named = {(self.generation.folder / path).parent for path in paths}
        for table in TABLES:
            for folder in self.generation.batch_folders(table, name):
                if folder not in named:
                    shutil.rmtree(folder)
        sync_below(self.generation.folder, paths)


@contextmanager
def open_writer(root: Path) -> Iterator[StoreWriter]:
    """Hold the right to write the store, which is made if there is none.

    Raises StoreBusy if another process has it, CorruptStore if the manifests cannot be read.
    """
    with store_lock(root):
        generation = current(root)
        if generation is None:
            generation = next_generation(root)
            make_current(generation)
        remove_unfinished(generation.manifests)
        # Older versions have left a checkpoint, and settings, which may hold a token.
        shutil.rmtree(generation.folder / "checkpoint", ignore_errors=True)
        for left in root.glob(".settings-*"):
            left.unlink(missing_ok=True)
        yield StoreWriter(generation)


@contextmanager
def store_lock(root: Path) -> Iterator[None]:
    """Hold the store's lock, which the system releases with the process, however it ends."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = root / _LOCK
    with closing(FileLock(path, 0o644)) as lock:
        try:
            is_ours = lock.acquire()
        except OSError as error:
            raise BadInput(
                f"{root} cannot be locked ({error.strerror}): keep the store where files can be"
            ) from error
        if not is_ours:
            holder = path.read_text() or "unknown"
            raise StoreBusy(f"process {holder} writes the store in {root}: wait for it, or stop it")
        path.write_text(str(os.getpid()))
        yield


def is_locked(root: Path) -> bool:
    """Return whether a process writes the store now."""
    return files.is_locked(root / _LOCK)


def written_files(generation: Generation, table: str, name: str) -> list[FileEntry]:
    """Return the files written under this name, as `written_file` does."""
    folders = generation.batch_folders(table, name)
    paths = (path for folder in folders for path in sorted(folder.glob("*.parquet")))
    found = (written_file(generation, table, path) for path in paths)
    return [each for each in found if each.rows]


def written_file(generation: Generation, table: str, path: Path) -> FileEntry:
    """Return the entry of a file, by its footer; raises CorruptStore if it is no Parquet."""
    footer = read_footer(path)
    column = TIME_COLUMN.get(table)
    low, high = column_range(footer, column) if column and footer.num_rows else (0, 0)
    name = str(path.relative_to(generation.folder))
    bytes_ = path.stat().st_size
    return FileEntry(name, footer.num_rows, bytes_, low, high, columns=footer.num_columns)
