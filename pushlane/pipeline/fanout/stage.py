"""The folder of one fan-out: its frozen rows, the manifest that completes them, its progress.

Rows without a manifest come from a freeze that was cut off, and are thrown away. Workers store how
far each part is. Files are replaced as a whole, so that a kill leaves the old or the new one.

The manifest records what the audience looked like, to tell how it differs later: the names, sizes
and times of its files, or else a count and a hash of its rows.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from pushlane.core.errors import BadInput, OutdatedFormat, UnknownFormat
from pushlane.core.task import Task
from pushlane.pipeline.fanout.request import AudienceCounts
from pushlane.settings import Settings
from pushlane.util.files import write_durably

_MOST_NAMED = 5


class Signature(msgspec.Struct, frozen=True):
    """The look of an audience: `files`, or the count and hash of its rows.

    `files` maps each path to its size and time of change in nanoseconds.
    """

    files: dict[str, tuple[int, int]] = {}
    rows: int = -1
    hash: str = ""


def signature(audience: DataFrame) -> Signature:
    """Return the signature of an audience, from its files if this machine can see all of them.

    Otherwise every row is read.
    """
    paths = [_local(uri) for uri in audience.inputFiles()]
    if paths and all(paths):
        stats = {path: Path(path).stat() for path in sorted(filter(None, paths))}
        return Signature({path: (of.st_size, of.st_mtime_ns) for path, of in stats.items()})
    columns = [
        F.to_json(f"`{field.name}`") if isinstance(field.dataType, MapType) else f"`{field.name}`"
        for field in audience.schema
    ]
    hashed = F.xxhash64(*columns).cast("decimal(38,0)")
    row = audience.agg(F.count("*").alias("n"), F.sum(hashed).alias("h")).first()
    assert row is not None
    return Signature(rows=row["n"], hash=str(row["h"]))


def difference(before: Signature, now: Signature) -> str:
    """Return how two signatures differ as a text for a message; empty if they do not."""
    if before == now:
        return ""
    if before.files and now.files:
        return _of_files(before.files, now.files)
    if before.rows != now.rows:
        return f"it had {before.rows:,} rows and has {now.rows:,} now"
    return f"of its {now.rows:,} rows some have changed"


def _of_files(before: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]]) -> str:
    parts = {
        "added": now.keys() - before.keys(),
        "removed": before.keys() - now.keys(),
        "changed": {path for path in before.keys() & now.keys() if before[path] != now[path]},
    }
    return ", ".join(f"{len(some)} {what} ({_named(some)})" for what, some in parts.items() if some)


def _named(paths: set[str]) -> str:
    names = ", ".join(os.path.basename(path) for path in sorted(paths)[:_MOST_NAMED])
    return names if len(paths) <= _MOST_NAMED else f"{names} …"


def _local(uri: str) -> str | None:
    parsed = urlparse(uri)
    path = unquote(parsed.path)
    return path if parsed.scheme in ("", "file") and Path(path).is_file() else None


FORMAT = 2
_IS_STAGE = re.compile(r"[0-9a-f]{24}")


class Part(msgspec.Struct, frozen=True):
    """One file of `rows` frozen pushes, with seqs from `first_seq` on.

    Each row has a bundle without its beginning (`packed`), and how many `pushes` are in that. For
    older versions it has how many come before it in the file (`place`), and `number` (`part`) too.
    """

    file: str
    number: int
    first_seq: int
    rows: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.rows - 1


class StageManifest(msgspec.Struct, frozen=True):
    """Describes what was frozen, and the task as it was then.

    In format 1, which only versions before 0.2.0 wrote, each row is a push.
    """

    task: Task
    parts: list[Part]
    counts: AudienceCounts
    signature: Signature
    audience: str
    where: str
    created_at_ms: int
    collapses: bool = False
    format: int = 1

    def refuse_outdated(self, path: Path) -> None:
        """Raise OutdatedFormat unless its rows, in this folder, are bundles."""
        if self.format < FORMAT:
            raise OutdatedFormat(f"what is frozen in {path} for task {self.task.id}")


class PartProgress(msgspec.Struct, frozen=True):
    """The last durable seq of a part, 0 if it was only begun, and since when in milliseconds."""

    seq: int
    at_ms: int


class FanoutStage:
    """The folder for the key of a task on a backend."""

    def __init__(self, settings: Settings, key: str) -> None:
        named = f"{settings.location}\n{settings.namespace}\n{key}"
        self.path = _root(settings) / hashlib.sha256(named.encode()).hexdigest()[:24]

    def manifest(self) -> StageManifest | None:
        """Return the manifest; None if nothing was frozen, or the freeze was cut off."""
        try:
            text = (self.path / "manifest.json").read_bytes()
        except FileNotFoundError:
            return None
        try:
            manifest = msgspec.json.decode(text, type=StageManifest)
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{self.path / 'manifest.json'} is damaged; cancel the task, remove the folder, "
                "and run this with another --key"
            ) from error
        if manifest.format > FORMAT:
            raise UnknownFormat(manifest.format, f"the fan-out in {self.path}")
        return manifest

    def keep(self) -> None:
        """Note that the fan-out is resumed, so that it is not removed as abandoned."""
        os.utime(self.path / "manifest.json")

    def begin(self, task_id: str) -> FrozenRows:
        """Make an empty place for a new freeze, which only its owner can read.

        Its name is the task's, since workers of a driver that was killed may still write elsewhere.
        """
        self.clear()
        frozen = self.frozen(task_id)
        self.path.mkdir(parents=True, mode=0o700)
        frozen.path.mkdir(mode=0o700)
        frozen.progress.mkdir(mode=0o700)
        return frozen

    def frozen(self, task_id: str) -> FrozenRows:
        """Return the rows that were frozen for this task."""
        return FrozenRows(self.path / task_id)

    def publish(self, manifest: StageManifest) -> None:
        """Store the manifest, from which moment on the frozen rows count."""
        write_durably(self.path / "manifest.json", msgspec.json.encode(manifest))

    def clear(self) -> None:
        """Remove the whole folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def drop(self, task_id: str) -> None:
        """Remove this freeze alone, since another driver may have begun one meanwhile."""
        shutil.rmtree(self.path / task_id, ignore_errors=True)
        with suppress(OSError):  # not empty
            self.path.rmdir()

    def drop_rows(self) -> None:
        """Remove all but the manifest: rows hold recipients, and nobody needs them any more."""
        for folder in self.path.glob("*/"):
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(settings: Settings) -> None:
    """Remove frozen rows, which hold recipients, that no fan-out has touched for long.

    A fan-out at work keeps storing its progress, which tells it from an abandoned one.
    """
    oldest_s = time.time() - settings.fanout_keep_s
    for folder in _root(settings).glob("*/"):
        if _IS_STAGE.fullmatch(folder.name) and any(folder.glob("*/")):
            with suppress(FileNotFoundError):  # another process removes it, or goes on with it
                inside = (folder, *folder.rglob("*"))
                if max(path.stat().st_mtime for path in inside) < oldest_s:
                    shutil.rmtree(folder)


def _root(settings: Settings) -> Path:
    return (settings.fanout_dir or settings.data_dir / "fanout").absolute()


class FrozenRows:
    """The rows of one freeze, and how far they are published."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = path / "rows"
        self.progress = path / "progress"

    def files(self) -> list[Part]:
        """Return the files that were written, numbered from seq 1 on, after making each durable."""
        parts: list[Part] = []
        first_seq = 1
        for path in sorted(self.rows.glob("part-*.parquet")):
            found = _part(path, first_seq)
            if found.rows:
                parts.append(found)
                first_seq += found.rows
        return parts

    def starts(self, parts: Iterable[Part]) -> dict[int, int]:
        """Return the seq from which each part is published, by the part's first seq.

        It differs from the first seq after a reconciliation.
        """
        changed: dict[int, int] = {}
        with suppress(FileNotFoundError):
            text = (self.path / "starts.json").read_bytes()
            changed = msgspec.json.decode(text, type=dict[int, int])
        return {part.first_seq: changed.get(part.first_seq, part.first_seq) for part in parts}

    def store_starts(self, starts: dict[int, int]) -> None:
        """Store the seqs at which these parts start from now on."""
        write_durably(self.path / "starts.json", msgspec.json.encode(starts))

    def reached(self, parts: Iterable[Part]) -> dict[int, PartProgress]:
        """Return how far each part is, by its first seq, without parts that no worker has begun."""
        found: dict[int, PartProgress] = {}
        for first, start in self.starts(parts).items():
            path = self.progress / str(start)
            with suppress(FileNotFoundError):
                at_ms = path.stat().st_mtime_ns // 1_000_000
                found[first] = PartProgress(int(path.read_text() or 0), at_ms)
        return found


def _part(path: Path, first_seq: int) -> Part:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    pushes = pc.sum(pq.read_table(path, columns=["pushes"])["pushes"]).as_py() or 0
    return Part(path.name, int(path.name.split("-")[1]), first_seq, pushes)
