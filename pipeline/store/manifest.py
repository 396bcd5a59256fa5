"""Manifests: what counts in a store, one JSON document for each change, numbered from 1.

A manifest says what came and what went; now and then a checkpoint says all that is there, so that
opening a store reads one checkpoint and the few manifests after it. Each appears whole or not at
all, and a manifest once: of two processes that write the same number, one is refused.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from pushlane.lanes.errors import BadInput
from pushlane.pipeline.store.files import (
    CorruptStore,
    StoreBusy,
    sync,
    write_atomically,
    write_beside,
)

VERSION = 1
_DIGITS = 12
_CHECKPOINT = "checkpoint-"
_MOST_GAPS = 1_000

T = TypeVar("T", "StoreState", "Manifest")


class FileEntry(msgspec.Struct, frozen=True):
    """A Parquet file: its path below the generation, and the range of its rows' times."""

    path: str
    rows: int
    bytes: int
    min_ms: int = 0
    max_ms: int = 0


class FileCounts(msgspec.Struct, frozen=True):
    """What was read: bodies of the log, receipts in them, repeats dropped, bodies set aside."""

    bodies: int = 0
    receipts: int = 0
    duplicates: int = 0
    quarantined: int = 0

    def plus(self, other: FileCounts) -> FileCounts:
        return FileCounts(
            self.bodies + other.bodies,
            self.receipts + other.receipts,
            self.duplicates + other.duplicates,
            self.quarantined + other.quarantined,
        )


class Interval(msgspec.Struct, frozen=True):
    """A batch whose detail rows are a sample: its bounds in the log, and in time.

    `rate` is the share of delivered pushes that were kept. `state` is `sampled` until the full
    rows are back (`restored`), or the log keeps them no more (`gone`).
    """

    batch: int
    start: list[str]
    end: list[str]
    min_ms: int
    max_ms: int
    rate: float
    why: str
    state: str = "sampled"


class Gap(msgspec.Struct, frozen=True):
    """Receipts that the log had dropped before they were read: a partition, where it was read to,
    and where it goes on. They came after `since_ms`, the last batch, and were missed at `at_ms`.
    """

    partition: int
    start: str
    end: str
    since_ms: int
    at_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """One change. `kind` is batch, gap, compact or backfill; the counts are what it adds."""

    number: int
    kind: str
    at_ms: int
    positions: list[str] | None = None
    added: dict[str, list[FileEntry]] = {}
    removed: dict[str, list[str]] = {}
    counts: FileCounts = FileCounts()
    intervals: list[Interval] = []
    swept: list[str] = []
    gaps: list[Gap] = []
    version: int = VERSION


class StoreState(msgspec.Struct, frozen=True):
    """All that counts after a manifest.

    `retired` are files that no longer count, with the time since when: a reader may have them open.
    `gaps` are the last 1,000.
    """

    number: int = 0
    at_ms: int = 0
    last_batch: int = 0
    last_batch_at_ms: int = 0
    positions: list[str] | None = None
    files: dict[str, dict[str, FileEntry]] = {}
    counts: FileCounts = FileCounts()
    intervals: dict[int, Interval] = {}
    retired: dict[str, int] = {}
    gaps: list[Gap] = []
    version: int = VERSION

    def after(self, manifest: Manifest) -> StoreState:
        """With one more change."""
        is_batch = manifest.kind == "batch"
        files = _changed(self.files, manifest)
        intervals = self.intervals | {each.batch: each for each in manifest.intervals}
        return StoreState(
            number=manifest.number,
            at_ms=manifest.at_ms,
            last_batch=manifest.number if is_batch else self.last_batch,
            last_batch_at_ms=manifest.at_ms if is_batch else self.last_batch_at_ms,
            positions=self.positions if manifest.positions is None else manifest.positions,
            files=files,
            counts=self.counts.plus(manifest.counts),
            intervals=_left(intervals, files) if manifest.kind == "compact" else intervals,
            retired=_retired(self.retired, manifest),
            gaps=[*self.gaps, *manifest.gaps][-_MOST_GAPS:],
        )

    @property
    def pending(self) -> list[Interval]:
        """Batches whose full rows are still to be put back, oldest first."""
        return [each for _, each in sorted(self.intervals.items()) if each.state == "sampled"]


def _changed(
    files: dict[str, dict[str, FileEntry]], manifest: Manifest
) -> dict[str, dict[str, FileEntry]]:
    changed = dict(files)
    for table in {*manifest.added, *manifest.removed}:
        gone = set(manifest.removed.get(table, ()))
        kept = {path: e for path, e in files.get(table, {}).items() if path not in gone}
        changed[table] = kept | {each.path: each for each in manifest.added.get(table, ())}
    return changed


def _left(
    intervals: dict[int, Interval], files: dict[str, dict[str, FileEntry]]
) -> dict[int, Interval]:
    """Those that say something of the rows that are kept, or are still to be filled up."""
    oldest_ms = min((each.min_ms for each in files.get("detail", {}).values()), default=sys.maxsize)
    return {
        batch: each
        for batch, each in intervals.items()
        if each.state == "sampled" or each.max_ms >= oldest_ms
    }


def _retired(retired: dict[str, int], manifest: Manifest) -> dict[str, int]:
    swept = set(manifest.swept)
    kept = {path: at for path, at in retired.items() if path not in swept}
    gone = (path for paths in manifest.removed.values() for path in paths)
    return kept | dict.fromkeys(gone, manifest.at_ms)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Publish it: it is there, whole and durable, when this returns.

    Raises:
        StoreBusy: there is one of this number, or the file was taken away by who writes now.
    """
    path = folder / _name(manifest.number)
    unfinished = write_beside(path, msgspec.json.encode(manifest))
    try:
        os.link(unfinished, path)
    except (FileExistsError, FileNotFoundError) as error:
        raise StoreBusy(
            f"{path} was written by another process meanwhile: this one has lost the right to "
            "write the store, and has changed nothing"
        ) from error
    except OSError as error:
        raise BadInput(
            f"{folder} is on a file system without hard links ({error.strerror}), which the "
            "manifests need; choose another reports_dir"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    sync(folder)


def write_checkpoint(folder: Path, state: StoreState) -> None:
    write_atomically(folder / f"{_CHECKPOINT}{_name(state.number)}", msgspec.json.encode(state))


def read_state(folder: Path) -> StoreState:
    """All that counts now.

    Raises:
        CorruptStore: a manifest cannot be read, or one is missing; says which.
    """
    names = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    checkpoints = [name for name in names if name.startswith(_CHECKPOINT)]
    state = _read(folder / checkpoints[-1], StoreState) if checkpoints else StoreState()
    for name in names:
        number = _number(folder / name)
        if name.startswith(_CHECKPOINT) or number <= state.number:
            continue
        if number != state.number + 1:
            missing = folder / _name(state.number + 1)
            raise CorruptStore.of(missing, "this manifest is missing, and there are later ones")
        state = state.after(_read(folder / name, Manifest))
    return state


def manifests_before(folder: Path, number: int) -> list[Path]:
    """Manifests and checkpoints that nobody needs who starts from the checkpoint of `number`."""
    return [path for path in folder.glob("*.json") if _number(path) < number]


def checkpoint_numbers(folder: Path) -> list[int]:
    """Oldest first."""
    return sorted(_number(path) for path in folder.glob(f"{_CHECKPOINT}*.json"))


def _read(path: Path, kind: type[T]) -> T:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, FileNotFoundError) as error:
        raise CorruptStore.of(path, "this manifest cannot be read") from error
    if found.version != VERSION:
        raise CorruptStore.of(path, f"it is of version {found.version}, not {VERSION}")
    return found


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.json"


def _number(path: Path) -> int:
    try:
        return int(path.stem.removeprefix(_CHECKPOINT))
    except ValueError as error:
        raise CorruptStore.of(path, "this is no manifest") from error


def remove_unfinished(folder: Path) -> None:
    """What was being written when its process was killed; who still writes it is refused then."""
    for path in folder.glob(".*.json.*"):
        path.unlink(missing_ok=True)
