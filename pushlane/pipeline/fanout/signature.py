"""Records what an audience looked like when it was frozen, and tells how it differs later.

Files are compared by names, sizes and times; anything else by a count and a hash of its rows.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

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
        return Signature(files={path: _stamp(path) for path in sorted(filter(None, paths))})
    columns = [_hashable(audience, name) for name in audience.columns]
    hashed = F.xxhash64(*columns).cast("decimal(38,0)")
    found = audience.agg(F.count("*").alias("n"), F.sum(hashed).alias("h")).first()
    assert found is not None
    return Signature(rows=found["n"], hash=str(found["h"]))


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
    changed = [path for path in before.keys() & now.keys() if before[path] != now[path]]
    parts = {
        "added": sorted(now.keys() - before.keys()),
        "removed": sorted(before.keys() - now.keys()),
        "changed": sorted(changed),
    }
    return ", ".join(f"{len(some)} {what} ({_named(some)})" for what, some in parts.items() if some)


def _named(paths: list[str]) -> str:
    names = ", ".join(os.path.basename(path) for path in paths[:_MOST_NAMED])
    return names if len(paths) <= _MOST_NAMED else f"{names} …"


def _local(uri: str) -> str | None:
    parsed = urlparse(uri)
    path = unquote(parsed.path)
    return path if parsed.scheme in ("", "file") and Path(path).is_file() else None


def _stamp(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns


def _hashable(audience: DataFrame, name: str) -> Column:
    column = F.col(f"`{name}`")
    return F.to_json(column) if isinstance(audience.schema[name].dataType, MapType) else column
