"""What can be wrong with a store, and the command that mends it."""

from __future__ import annotations

from pathlib import Path

from pushlane.lanes.errors import PushlaneError

MEND = "`pushlane pipeline replay --since TIME` rebuilds the store from the log of receipts"


class CorruptStore(PushlaneError):
    """A file of the store is damaged or missing; the store can be rebuilt from the log."""

    @staticmethod
    def of(path: Path, what: str) -> CorruptStore:
        return CorruptStore(f"{path}: {what}; {MEND}")


class StoreBusy(PushlaneError):
    """Another process writes this store."""
