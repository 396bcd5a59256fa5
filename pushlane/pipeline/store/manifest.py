"""Manifests say what counts in a store: one JSON document for each change, numbered from 1.

CURRENT               the name of the generation that counts
gen-000001/
    manifests/        what counts in it
    detail/ minutes/  one folder a table; each batch writes to its own `batch=` folders

A manifest lists the files that came and went; now and then a checkpoint lists all files, so that
opening a store reads one checkpoint and the few manifests after it. Each is written atomically, and
each number only once: of two processes that write the same number, one is refused.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.settings import REPORTS_FILE
from pushlane.util.files import create_durably, write_durably

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
        raise CorruptStore.of(path, "this file is not a complete Parquet file") from error


def column_range(footer: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column, by the footer of a file with rows."""
    place = footer.schema.names.index(column)
    groups = (footer.row_group(index) for index in range(footer.num_row_groups))
    found = [group.column(place).statistics for group in groups]
    return min(each.min for each in found), max(each.max for each in found)


_GENERATION = "gen-"
_BATCH = re.compile(r"/batch=(\d+)(?:-\w+)?/")


@dataclass(frozen=True)
class Generation:
    """One complete store in a folder of its own; a replay makes another generation beside it."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"

    def table(self, table: str) -> Path:
        return self.folder / table

    def paths(self, below: Iterable[str]) -> list[str]:
        """Return the whole paths of these files, as a manifest names them."""
        return [str(self.folder / path) for path in below]

    def batch_folders(self, table: str, batch: str) -> list[Path]:
        """Return all folders of a table that were written under this batch name or name pattern."""
        folder = self.table(table)
        above = ("", "day=*/", "day=*/hour=*/", "unit=*/")
        found = (folder.glob(f"{each}batch={batch}") for each in above)
        return sorted(path for paths in found for path in paths)


def current(root: Path) -> Generation | None:
    """Return the generation that counts; None if there is no store yet.

    Raises CorruptStore if CURRENT names nothing that is there.
    """
    path = root / REPORTS_FILE
    if not path.exists():
        return None
    found = Generation(root, path.read_text().strip())
    if not found.name.startswith(_GENERATION) or not found.folder.is_dir():
        raise CorruptStore.of(path, f"it names {found.name!r}, and there is no such folder")
    return found


def make_current(generation: Generation) -> None:
    """Make this generation the one that counts from now on."""
    generation.root.mkdir(parents=True, exist_ok=True)
    write_durably(generation.root / REPORTS_FILE, generation.name.encode())


def became_current_at_ms(root: Path) -> int:
    """Return since when the current generation counts; older readers may have another one open."""
    return (root / REPORTS_FILE).stat().st_mtime_ns // 1_000_000


def next_generation(root: Path) -> Generation:
    """Make an empty generation under a name that was never used."""
    taken = [int(path.name.removeprefix(_GENERATION)) for path in root.glob(f"{_GENERATION}*")]
    made = Generation(root, f"{_GENERATION}{max(taken, default=0) + 1:06d}")
    made.manifests.mkdir(parents=True)
    return made


def local_uri(path: Path) -> str:
    """Return a path as Spark takes it, which does not decode what a URI would encode."""
    return f"file://{path.resolve()}"


def new_batch_name(number: int) -> str:
    """Return a new name for the folders of the manifest with this number; each call gives another.

    Workers of a driver that was killed may still write under the name that it had.
    """
    return f"{number:09d}-{secrets.token_hex(4)}"


def batch_names(number: int) -> tuple[str, ...]:
    """Return patterns of all names that this number was ever given."""
    return f"{number:09d}", f"{number:09d}-*"


def batch_of(path: str) -> int | None:
    """Return the number of the manifest that first named a file; None if the path has none."""
    found = _BATCH.search(path)
    return int(found[1]) if found else None


VERSION = 1
_DIGITS = 12
_CHECKPOINT = "checkpoint-"
_MOST_GAPS = 1_000

T = TypeVar("T", "StoreState", "Manifest")


class FileEntry(msgspec.Struct, frozen=True):
    """A Parquet file: its path below the generation, and the range of its rows' times.

    Files of a table with the same number of `columns`, as Parquet counts them, have the same ones;
    0 is not known.
    """

    path: str
    rows: int
    bytes: int
    min_ms: int = 0
    max_ms: int = 0
    columns: int = 0


Files = dict[str, dict[str, FileEntry]]
"""The files of each table, by their paths."""


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
    files: Files = {}
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


def _changed(files: Files, manifest: Manifest) -> Files:
    changed = dict(files)
    for table in {*manifest.added, *manifest.removed}:
        gone = set(manifest.removed.get(table, ()))
        kept = {path: e for path, e in files.get(table, {}).items() if path not in gone}
        changed[table] = kept | {each.path: each for each in manifest.added.get(table, ())}
    return changed


def _left(intervals: dict[int, SampledBatch], files: Files) -> dict[int, SampledBatch]:
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

    Raises StoreBusy if there is one of this number, or who writes now took the file away.
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
            f"{folder}: a manifest cannot be written ({error.strerror}); the file system may be "
            "full, or have no hard links: fix that, or choose another reports_dir"
        ) from error


def write_checkpoint(folder: Path, state: StoreState) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / f"{_CHECKPOINT}{_name(state.number)}", msgspec.json.encode(state))


def read_state(folder: Path) -> StoreState:
    """Read all that counts now; raises CorruptStore if a manifest is damaged or missing."""
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


def remove_before_checkpoints(folder: Path) -> None:
    """Remove what is older than the last checkpoint but one.

    That one stays, for readers that are listing manifests just now.
    """
    numbers = sorted(_number(path) for path in folder.glob(f"{_CHECKPOINT}*.json"))
    for path in folder.glob("*.json"):
        if len(numbers) > 1 and _number(path) < numbers[-2]:
            path.unlink(missing_ok=True)


def _read(path: Path, kind: type[T]) -> T:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, FileNotFoundError) as error:
        raise CorruptStore.of(path, "this manifest cannot be read") from error
    if found.version != VERSION:
        raise CorruptStore.of(path, f"it has version {found.version}, not {VERSION}")
    return found


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.json"


def _number(path: Path) -> int:
    try:
        return int(path.stem.removeprefix(_CHECKPOINT))
    except ValueError as error:
        raise CorruptStore.of(path, "this is not a manifest") from error


def remove_unfinished(folder: Path) -> None:
    """Remove files of writers that were killed; a writer that still lives is refused by that."""
    for path in folder.glob(".*.json.*"):
        path.unlink(missing_ok=True)
