"""Manifests say what counts in a store: one JSON document for each change, numbered from 1.

A manifest lists the files that came and went; now and then a checkpoint lists all files, so that
opening a store reads one checkpoint and the few manifests after it. Each is written atomically, and
each number only once: of two processes that write the same number, one is refused.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from pushlane.core.errors import BadInput
from pushlane.lanes.durable import create_durably, write_durably
from pushlane.pipeline.store.files import CorruptStore, StoreBusy

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
    """Counts of what was read: log bodies, their receipts, dropped repeats, and unusable bodies."""

    bodies: int = 0
    receipts: int = 0
    duplicates: int = 0
    quarantined: int = 0

    def plus(self, other: FileCounts) -> FileCounts:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return FileCounts(*map(sum, pairs))


class SampledBatch(msgspec.Struct, frozen=True):
    """A batch whose detail rows are a sample: its bounds in the log, and in time.

    `rate` is the share of delivered pushes that were kept. `state` is `sampled` until the full rows
    are back (`restored`), or the log no longer has them (`gone`).
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
    """Receipts of a partition that the log dropped before they were read.

    `start` is where the partition was read to, `end` where it continues. The receipts came after
    `since_ms`, the last batch, and were missed at `at_ms`.
    """

    partition: int
    start: str
    end: str
    since_ms: int
    at_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """One change of the store; `kind` is batch, gap, compact or backfill, `counts` what it adds."""

    number: int
    kind: str
    at_ms: int
    positions: list[str] | None = None
    added: dict[str, list[FileEntry]] = {}
    removed: dict[str, list[str]] = {}
    counts: FileCounts = FileCounts()
    intervals: list[SampledBatch] = []
    swept: list[str] = []
    gaps: list[Gap] = []
    version: int = VERSION


class StoreState(msgspec.Struct, frozen=True):
    """All that counts after a manifest.

    `retired` maps files that no longer count, but may still be open in a reader, to the time since
    when. `gaps` holds the last 1,000.
    """

    number: int = 0
    at_ms: int = 0
    last_batch: int = 0
    last_batch_at_ms: int = 0
    positions: list[str] | None = None
    files: dict[str, dict[str, FileEntry]] = {}
    counts: FileCounts = FileCounts()
    intervals: dict[int, SampledBatch] = {}
    retired: dict[str, int] = {}
    gaps: list[Gap] = []
    version: int = VERSION

    def after(self, manifest: Manifest) -> StoreState:
        """Return the state after one more change."""
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
    def pending(self) -> list[SampledBatch]:
        """Return the batches whose full rows are still to be restored, oldest first."""
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
    intervals: dict[int, SampledBatch], files: dict[str, dict[str, FileEntry]]
) -> dict[int, SampledBatch]:
    """Keep the intervals that describe kept rows, or are still to be restored."""
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
    """Publish the manifest, which is there, whole and durable, when this returns.

    Raises:
        StoreBusy: there is one of this number, or the file was taken away by who writes now.
    """
    path = folder / _name(manifest.number)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        create_durably(path, msgspec.json.encode(manifest))
    except (FileExistsError, FileNotFoundError) as error:
        raise StoreBusy(
            f"{path} was written by another process meanwhile: this one has lost the right to "
            "write the store, and has changed nothing"
        ) from error
    except OSError as error:
        raise BadInput(
            f"{folder} does not take a manifest ({error.strerror}), as a file system that is full "
            "or without hard links; see to that, or choose another reports_dir"
        ) from error


def write_checkpoint(folder: Path, state: StoreState) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / f"{_CHECKPOINT}{_name(state.number)}", msgspec.json.encode(state))


def read_state(folder: Path) -> StoreState:
    """Read all that counts now.

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
    """Return the files that are not needed to start from the checkpoint of this number."""
    return [path for path in folder.glob("*.json") if _number(path) < number]


def checkpoint_numbers(folder: Path) -> list[int]:
    """Return the numbers of all checkpoints, oldest first."""
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
    """Remove files of writers that were killed; a writer that still lives is refused by that."""
    for path in folder.glob(".*.json.*"):
        path.unlink(missing_ok=True)
