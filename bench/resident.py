"""Reads the resident memory of a process, and the peak of all processes started by this one."""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_EVERY_S = 0.5


class Resident:
    """Looks twice a second while it is entered; `peak_mb` is the most that it saw."""

    def __init__(self) -> None:
        self.peak_mb = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.peak_mb = max(self.peak_mb, _held_mb())


def resident_kib(pid: int) -> int:
    """The resident memory of a process, in KiB."""
    found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def peak_kib(pid: int) -> int:
    """The most memory that a process had resident, in KiB; 0 when it has just ended."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) if found else 0
    return 0


def _held_mb() -> int:
    children: dict[int, list[int]] = defaultdict(list)
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            children[int(stat[1])].append(int(entry.name))
    below = [os.getpid()]
    for process in below:
        below += children[process]
    held = sum(pages.get(process, 0) for process in below[1:])
    return held * os.sysconf("SC_PAGE_SIZE") // 2**20
