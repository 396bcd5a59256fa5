"""Where things are in a store: the generation that counts, its manifests and tables.

CURRENT               the name of the generation that counts
gen-000001/
    manifests/        what counts in it
    detail/ minutes/  one folder a table; each batch writes to its own `batch=` folders
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from pushlane.lanes.durable import write_durably
from pushlane.pipeline.store.files import CorruptStore

_CURRENT = "CURRENT"
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

    def batch_folders(self, table: str, batch: str) -> list[Path]:
        """Return all folders of a table that were written under this batch name or name pattern."""
        folder = self.table(table)
        above = ("", "day=*/", "day=*/hour=*/", "unit=*/")
        found = (folder.glob(f"{each}batch={batch}") for each in above)
        return sorted(path for paths in found for path in paths)


def current(root: Path) -> Generation | None:
    """Return the generation that counts; None if there is no store yet.

    Raises:
        CorruptStore: CURRENT names nothing that is there.
    """
    path = root / _CURRENT
    if not path.exists():
        return None
    found = Generation(root, path.read_text().strip())
    if not found.name.startswith(_GENERATION) or not found.folder.is_dir():
        raise CorruptStore.of(path, f"it names {found.name!r}, and there is no such folder")
    return found


def make_current(generation: Generation) -> None:
    """Make this generation the one that counts from now on."""
    generation.root.mkdir(parents=True, exist_ok=True)
    write_durably(generation.root / _CURRENT, generation.name.encode())


def became_current_at_ms(root: Path) -> int:
    """Return since when the current generation counts; older readers may have another one open."""
    return (root / _CURRENT).stat().st_mtime_ns // 1_000_000


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
