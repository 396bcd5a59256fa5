"""A spool's folder, which one process has at a time, with a folder for every task in it.

A task's folder appears and goes whole, by its name. It never looks into batches.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pushlane.core.errors import BadInput, StorageFull, TaskConflict, UnknownFormat
from pushlane.lanes.durable import sync
from pushlane.lanes.file_lock import FileLock
from pushlane.producers.outbox import records
from pushlane.producers.outbox.options import MAX_SPOOL_BYTES
from pushlane.producers.outbox.segment import CORRUPT
from pushlane.producers.outbox.spool import HEADER, SEGMENT_BYTES, Spool
from pushlane.producers.outbox.store import Batch, BatchStore, Header

log = logging.getLogger("pushlane.producer")

_SEGMENTS = 8
"""A full spool has at least so many files, so that sending one of them makes room."""

_LOCK = "lock"
_COMING = ".coming"
_GOING = ".going"


class SpoolFolder:
    """The spool in a folder, open until closed. `corrupt` names the files that were set aside.

    What a newer version has spooled is said, and left as it is for a process of that version.

    Raises:
        TaskConflict: another producer has it.
        BadInput: it cannot be used as a folder.
    """

    def __init__(self, path: Path, most_bytes: int = MAX_SPOOL_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._segment_bytes = min(SEGMENT_BYTES, most_bytes // _SEGMENTS)
        self.corrupt: list[str] = []
        self.spools: list[Spool] = []
        self._lock = _locked(path)
        try:
            self._tidy()
            for folder in self._folders():
                self._open(folder)
        except BaseException:
            self.close()
            raise

    @property
    def bytes(self) -> int:
        """The bytes that its files take, without those that were set aside."""
        return sum(spool.bytes for spool in tuple(self.spools))

    @property
    def lost(self) -> int:
        return sum(spool.lost for spool in tuple(self.spools))

    def bytes_without(self, store: BatchStore) -> int:
        return sum(spool.bytes for spool in self.spools if spool is not store)

    def begin(self, header: Header, batches: Iterable[Batch] = ()) -> Spool:
        """Begin a task's spool with these batches, whole or not at all, even through a power cut.

        Raises:
            StorageFull: there is no room for the batches.
        """
        coming = self.path / (header.task.id + _COMING)
        coming.mkdir(mode=0o700)
        try:
            self._fill(coming, header, batches)
        except BaseException:
            shutil.rmtree(coming)
            raise
        folder = coming.rename(self.path / header.task.id)
        sync(self.path)
        spool = self._spool(header, folder)
        self.spools.append(spool)
        return spool

    def remove(self, store: BatchStore) -> None:
        """Remove a spool that is sealed, or whose task has ended."""
        [spool] = [one for one in self.spools if one is store]
        self.spools = [one for one in self.spools if one is not spool]  # others may walk through it
        spool.finish()
        task_id = spool.header.task.id
        shutil.rmtree((self.path / task_id).rename(self.path / (task_id + _GOING)))

    def close(self) -> None:
        for spool in self.spools:
            spool.close()
        self._lock.close()

    def _fill(self, folder: Path, header: Header, batches: Iterable[Batch]) -> None:
        spool = self._spool(header, folder)
        try:
            for batch in batches:
                if not spool.append([batch], self._most_bytes - self.bytes):
                    raise StorageFull(
                        f"the spool {self.path} is full (it may take {self._most_bytes:,} bytes): "
                        "send first what is in it, or use another folder"
                    )
            spool.write_header()
        finally:
            spool.close()

    def _tidy(self) -> None:
        """Remove what a kill has left half made or half removed."""
        for suffix in (_COMING, _GOING):
            for folder in self.path.glob(f"*{suffix}"):
                shutil.rmtree(folder)

    def _folders(self) -> list[Path]:
        """Return the folders of tasks, oldest first, as the ids of tasks sort by time."""
        found = (path.parent for path in self.path.glob(f"*/{HEADER}"))
        return sorted(folder for folder in found if folder.suffix != CORRUPT)

    def _open(self, folder: Path) -> None:
        try:
            self.spools.append(self._spool(_header(folder), folder))
        except UnknownFormat as error:
            log.error("%s", error, extra={"action": "format_unknown"})
        except (msgspec.DecodeError, UnicodeDecodeError):
            aside = self._set_aside(folder)
            log.error(
                "the head of a spool is corrupt, so nothing of it can be sent: set aside as %s",
                aside,
                extra={"action": "spool_corrupt"},
            )

    def _spool(self, header: Header, folder: Path) -> Spool:
        try:
            return Spool(folder, header, self._set_aside, self._segment_bytes)
        except UnknownFormat as error:
            raise UnknownFormat(error.version, str(folder)) from error

    def _set_aside(self, path: Path) -> Path:
        name = path.name if path.parent == self.path else f"{path.parent.name}-{path.name}"
        aside = path.rename(self.path / (name + CORRUPT))
        self.corrupt.append(str(aside))
        return aside


def _header(folder: Path) -> Header:
    """Read a header. Raises UnknownFormat for a newer version's, DecodeError for a damaged one."""
    content = (folder / HEADER).read_bytes()
    try:
        header = msgspec.json.decode(content, type=Header)
    except msgspec.ValidationError as error:  # it is whole, and yet not what we know
        raise UnknownFormat(0, str(folder)) from error
    newest = max(header.format, header.task.format)
    if newest > records.FORMAT:
        raise UnknownFormat(newest, str(folder))
    return header


def _locked(path: Path) -> FileLock:
    """Take the folder's lock; the kernel lets go of it when the process dies."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path / _LOCK)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be the folder of a spool: {error.strerror}; name a folder that this "
            "process may write to"
        ) from error
    if not lock.acquire():
        lock.close()
        raise TaskConflict(
            f"the spool {path} is used by another producer; give each process, and each producer "
            "in it, a folder of its own"
        )
    return lock
