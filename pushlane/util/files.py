"""Files that outlive a kill, are locked by one process, or are replaced by others while we run.

Whole appends and search in damage are shared by two logs of segments, each with a format of its
own: the log of receipts (`backends.embedded`), which several processes share and read at any
position, and a producer's spool (`producers.outbox`), which one process reads once, in order.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pushlane.core.errors import BadInput

_BY_UMASK = 0o666


def write_durably(path: Path, content: bytes, mode: int = _BY_UMASK) -> None:
    """Replace the file as a whole: whatever happens, it has its old content or this one."""
    with _unfinished(path, content, mode) as unfinished:
        unfinished.replace(path)
    sync(path.parent)


def create_durably(path: Path, content: bytes, mode: int = _BY_UMASK) -> None:
    """Make the file, whole or not at all. Of several processes that make it, one succeeds.

    The others raise FileExistsError: it is there and durable then; or FileNotFoundError, if
    somebody took the unfinished file away.
    """
    with _unfinished(path, content, mode) as unfinished:
        try:
            os.link(unfinished, path)
        finally:  # another may have made it, and not synced it yet
            sync(path.parent)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path, paths: Iterable[str]) -> None:
    """Make these files durable, and every folder from each of them up to this one."""
    files = [folder / path for path in paths]
    above = {each for file in files for each in file.parents if each.is_relative_to(folder)}
    for each in (*files, *sorted(above, reverse=True)):
        sync(each)


@contextmanager
def _unfinished(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Write the content beside its place, synced, under a hidden name that nobody else has."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(unfinished, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)


_RETRY_S = 0.002


def is_rotational(device: int, root: Path = Path("/")) -> bool:
    """Return whether the kernel says that a device (`st_dev`) turns: a disk, not an SSD.

    False where it says nothing, as of what is no disk. `root` is where its files begin.
    """
    place = (root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for folder in (place, place.parent):  # a partition has it in its disk's folder
        with suppress(OSError):
            return (folder / "queue/rotational").read_text().strip() == "1"
    return False


class FileLock:
    """A lock on a file, made if missing; not held before `acquire`. Raises OSError like `open`."""

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, mode)
        self._pid = os.getpid()

    @property
    def is_removed(self) -> bool:
        """True when somebody removed the file: others lock another one by its name then."""
        return os.fstat(self._file).st_nlink == 0

    def acquire(self, timeout_s: float = 0.0) -> bool:
        """Take the lock. False when another holds it for that long."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    return False
            time.sleep(_RETRY_S)

    def wait(self) -> None:
        """Take the lock, however long another holds it."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock for good; the file stays.

        A child that was forked just now has it open as well, until it has loaded its program.
        """
        if os.getpid() == self._pid:
            self.release()
        os.close(self._file)


def is_locked(path: Path) -> bool:
    """Return whether a live process holds the lock on this file. Makes no file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def write_all(handle: int, content: bytes, offset: int) -> None:
    """Write all of the content at this offset. Raises OSError when the disk does not take it."""
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written


def append(handle: int, content: bytes, size: int, *, durably: bool = False) -> int:
    """Append to a file of this size, all or nothing; returns the new size.

    Raises OSError when the disk does not take it; what an error left behind is cut off again.
    """
    try:
        write_all(handle, content, size)
        if durably:
            os.fdatasync(handle)
    except OSError:
        with suppress(OSError):  # the next append writes over it, or finds it torn
            os.ftruncate(handle, size)
        raise
    return size + len(content)


def marks(content: bytes, mark: bytes, start: int = 0) -> Iterator[int]:
    """Yield every offset from `start` on at which a record may begin, for it begins with `mark`."""
    while (start := content.find(mark, start)) >= 0:
        yield start
        start += 1


_MOST_BYTES = 1024 * 1024

Stamp = tuple[int, int, int]


def stamp_of(path: Path | None) -> Stamp | None:
    """Return what changes whenever the file does; None when there is no file to be seen."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None


class WatchedFile:
    """The text of a file without the white space around it, read again once the file has changed.

    `setting` is the setting that names the file. Safe to use from several threads.
    """

    def __init__(self, setting: str, path: Path) -> None:
        self.setting = setting
        self.path = path
        self._read: tuple[Stamp | None, str] | None = None

    def __repr__(self) -> str:
        return f"WatchedFile({self.path})"

    def text(self) -> str:
        """Return the present text. Raises BadInput, which never shows it, when there is none."""
        stamp = stamp_of(self.path)
        known = self._read
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        text = self._fresh()
        self._read = (stamp, text)
        return text

    def last_text(self) -> str:
        """Return the present text, or the last one that could be read: '' when there was none."""
        try:
            return self.text()
        except BadInput:
            return self._read[1] if self._read is not None else ""

    def _fresh(self) -> str:
        try:
            with self.path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode().strip()
        except (OSError, ValueError) as error:
            raise BadInput(
                f"{self.setting} {self.path} cannot be read ({type(error).__name__}): give a "
                "text file that this user may read"
            ) from error
        if not text:
            raise BadInput(f"{self.setting} {self.path} is empty: write the secret into it")
        return text
