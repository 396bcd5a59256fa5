"""Opens files of rows: finds out a file's format, and refuses one that cannot be read.

Never holds a whole file in memory; the formats themselves are read in text_rows and parquet_rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pushlane.core.errors import BadInput
from pushlane.lanes.suggestions import did_you_mean
from pushlane.producers.rows import RowSource
from pushlane.producers.text_rows import CsvRows, JsonRows


def _parquet(path: Path, name: str) -> RowSource:
    from pushlane.producers.parquet_rows import ParquetRows  # with pyarrow: that takes long

    return ParquetRows(path, name)


_READERS: dict[str, Callable[[Path, str], RowSource]] = {
    "csv": CsvRows,
    "jsonl": JsonRows,
    "parquet": _parquet,
}
_EXTENSIONS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(path: Path, given: str | None) -> str:
    """Return the format asked for, else the one that the file's extension tells.

    Raises:
        BadInput: neither names a known format; lists those there are.
    """
    known = ", ".join(_READERS)
    found = given if given is not None else _EXTENSIONS.get(path.suffix.lower())
    if found is None:
        raise BadInput(f"the format of {path} is not clear from its name; add --format {known}")
    if found not in _READERS:
        raise BadInput(f"unknown format {given!r}; use {known}{did_you_mean(found, _READERS)}")
    return found


def open_source(path: Path, kind: str, name: str = "") -> RowSource:
    """Open the rows of a file, which messages call `name`.

    Raises:
        BadInput: missing, a folder, unreadable, empty or not of this format.
    """
    name = name or str(path)
    try:
        if path.is_dir():
            raise BadInput(f"{name} is a folder; give a file")
        if path.exists() and not path.is_file():
            raise BadInput(f"{name} is a device, not a file of rows; give a file, or - for stdin")
        if path.stat().st_size == 0:
            raise BadInput(f"{name} is empty: there is nothing to submit")
        return _READERS[kind](path, name)
    except FileNotFoundError as error:
        raise BadInput(f"{name} does not exist; check the path") from error
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror or error}") from error
