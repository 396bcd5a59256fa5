"""Checks of the host that a process runs on, by the files in which it tells about itself."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from pushlane.settings import Settings
from pushlane.util.checks import Check, Remark, Unseen, outside
from pushlane.util.files import is_rotational

AREA = "host"
OLDEST_PYTHON, TRIED_PYTHON = (3, 11), (3, 14)
MOST_SWAPPINESS = 10
FREE_BYTES, FREE_PART = 1024**3, 0.10
LAST_BYTES, LAST_PART = 100 * 1024**2, 0.02
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
_GIB = 1024**3
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs"})
_HUGE_PAGES = {"enabled": "on", "defrag": "made by moving others while a process waits"}
_NO_LOCKS = _NETWORK | {"fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"}


def _clock_state() -> int:
    """Return the kernel's word for its clock; it is only asked, and may be anybody's question."""
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)))


@dataclass(frozen=True)
class Host:
    """A host, and the settings under which pushlane runs there.

    `root` is the folder that the paths of its files begin at.
    """

    settings: Settings
    root: Path = Path("/")
    python: str = sys.version.split()[0]
    open_files: int = field(default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    clock_state: Callable[[], int] = _clock_state

    def text(self, path: str) -> str:
        """Return what a file of the system holds. Raises Unseen when there is none."""
        try:
            return (self.root / path).read_text().strip()
        except OSError as error:
            raise Unseen(f"/{path} cannot be read ({error.strerror})") from error

    @property
    def has_services(self) -> bool:
        """True where the store, the broker or Redis is on this host too."""
        settings = self.settings
        urls = (settings.broker, settings.redis_url)
        return settings.capabilities.is_local or any(
            urlsplit(url).hostname in _LOOPBACK for url in urls
        )

    @property
    def folders(self) -> dict[str, Path]:
        """The folders that pushlane writes to, by their settings."""
        data = self.settings.data_dir
        return {
            "data_dir": data,
            "reports_dir": self.settings.reports_dir or data / "reports",
            "fanout_dir": self.settings.fanout_dir or data / "fanout",
        }


def _check(
    name: str, looks_at: str, why: str
) -> Callable[[Callable[[Host], Iterator[Remark]]], Check[Host]]:
    """Make a check of a function that looks at a host."""
    return lambda look: Check(name, AREA, looks_at, why, look)


@_check("python-version", "Python's version: 3.11 to 3.14", "others were not tried")
def _python(host: Host) -> Iterator[Remark]:
    yield from outside("Python", host.python, OLDEST_PYTHON, TRIED_PYTHON)


@_check(
    "huge-pages",
    "transparent huge pages: neither made nor defragmented always",
    "bookies and Redis stall while the kernel moves pages, and pushes wait",
)
def _huge_pages(host: Host) -> Iterator[Remark]:
    for name, doing in _HUGE_PAGES.items():
        path = f"sys/kernel/mm/transparent_hugepage/{name}"
        if "[always]" in host.text(path):
            line = f"w /{path} - - - - madvise"
            file = f"/etc/tmpfiles.d/huge-pages-{name}.conf"
            yield Remark(
                "warning" if host.has_services else "note",
                f"transparent huge pages are {doing} (always)",
                f"echo {quote(line)} | sudo tee {file} && sudo systemd-tmpfiles --create {file}",
            )


@_check(
    "turning-disk",
    "that an embedded store is on a disk without a head that moves",
    "each push that is taken waits for the disk to turn",
)
def _turning_disk(host: Host) -> Iterator[Remark]:
    if not host.settings.capabilities.is_local:
        return
    folder = _existing(host.settings.data_dir)
    if is_rotational(folder.stat().st_dev, host.root):
        yield Remark(
            "note",
            f"data_dir {folder} is on a disk that turns, as the kernel says",
            "set data_dir to a folder on an SSD",
        )


@_check(
    "swappiness",
    f"vm.swappiness where there is swap: {MOST_SWAPPINESS} at most",
    "a broker or Redis that is swapped out answers late, and leases end",
)
def _swappiness(host: Host) -> Iterator[Remark]:
    if len(host.text("proc/swaps").splitlines()) < 2:
        return
    value = int(host.text("proc/sys/vm/swappiness"))
    if value > MOST_SWAPPINESS:
        yield Remark(
            "warning" if host.has_services else "note",
            f"vm.swappiness is {value}, and there is swap",
            f"sysctl -w vm.swappiness={MOST_SWAPPINESS}",
        )


@_check(
    "open-files",
    "how many files a process may open",
    "each delivery in flight and each connection is one; at the limit deliveries fail",
)
def _open_files(host: Host) -> Iterator[Remark]:
    needed = max(4096, 4 * host.settings.slots)
    if 0 <= host.open_files < needed:
        what = f"a process may open {host.open_files:,} files, and should {needed:,}"
        yield Remark("warning", what, f"ulimit -n {needed}, or LimitNOFILE={needed} of its unit")


@_check(
    "time-sync",
    "that something keeps the clock right",
    "schedules, expiries and quiet hours go by it",
)
def _time_sync(host: Host) -> Iterator[Remark]:
    try:
        state = host.clock_state()
    except (OSError, AttributeError) as error:
        raise Unseen("this system does not show whether its clock is synchronised") from error
    if state == _UNSYNCHRONISED:
        what = "nothing keeps this host's clock right"
        yield Remark("warning", what, "timedatectl set-ntp true (in a container: on its host)")


@_check(
    "disk",
    "that data_dir, reports_dir and fanout_dir can be written to and have room",
    "with a full disk the store, receipts and fan-outs stand still",
)
def _disk(host: Host) -> Iterator[Remark]:
    told = set()
    for name, folder in host.folders.items():
        there = _existing(folder)
        if not there.is_dir():
            yield Remark(
                "error", f"{name} {folder}: {there} is not a folder", f"set {name} to another"
            )
            continue
        if not os.access(there, os.W_OK | os.X_OK):
            what = f"{name} {folder} cannot be written to"
            yield Remark("error", what, f"sudo install -d -o {os.getuid()} {quote(str(folder))}")
            continue
        device = there.stat().st_dev
        if device in told:
            continue
        told.add(device)
        yield from _free(name, folder, os.statvfs(there))


def _free(name: str, folder: Path, disk: os.statvfs_result) -> Iterator[Remark]:
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    is_last = free < LAST_BYTES or free < LAST_PART * size
    if is_last or (free < FREE_BYTES and free < FREE_PART * size):
        yield Remark(
            "error" if is_last else "warning",
            f"{name} {folder}: {free / _GIB:,.1f} of {size / _GIB:,.1f} GiB are free",
            f"du -xh {folder} | sort -h | tail, then make room",
        )


@_check(
    "file-system",
    "the file system of an embedded store",
    "without locks two processes damage the store",
)
def _file_system(host: Host) -> Iterator[Remark]:
    if not host.settings.capabilities.is_local:
        return
    folder = _existing(host.settings.data_dir).resolve()
    kind = _kind_at(host.text("proc/self/mounts"), folder)
    if kind in _NO_LOCKS:
        what = f"data_dir {folder} is on {kind}, whose locks SQLite cannot rely on"
        yield Remark("error", what, "set data_dir to a folder on a disk of this host")


def _kind_at(mounts: str, folder: Path) -> str:
    """Return the kind of file system that a folder is on: the deepest that is mounted above it."""
    rows = [line.split() for line in mounts.splitlines()]
    above = [
        (len(row[1]), row[2])
        for row in rows
        if len(row) > 2 and folder.is_relative_to(row[1].replace("\\040", " "))
    ]
    return max(above, default=(0, ""))[1]


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest above it that is there."""
    return next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())


CHECKS = (
    _python,
    _huge_pages,
    _swappiness,
    _open_files,
    _time_sync,
    _disk,
    _turning_disk,
    _file_system,
)
