"""Tells owners that work from those that are frozen or dead.

An owner holds a lock on a file of its own as long as its process lives, frozen or not, whoever gets
its pid later; the kernel releases it when the process dies. One that works writes beats, too.

A process that was stopped (SIGSTOP, Ctrl-Z, a paused container) lives, and yet others are to get
the messages it has claimed. A beat is a row that changes; its time is never compared with a clock.
Silence is measured in the watcher's own beats: while all sleep, the clock jumps, or nothing can be
written, nobody beats and nobody is found frozen.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pushlane.backends.embedded.database import translated
from pushlane.util.files import FileLock, is_locked

BEAT_S = 10.0
"""The time between two beats of an owner. Each beat has all other processes look for news."""

MISSED = 6
"""The number of the watcher's beats without one of a frozen owner: a minute, as brokers wait for a
silent client. Nothing else stops the store's thread for as long: another's lock does for 15 s."""

_FROZEN = 0


class OwnerBeat(NamedTuple):
    """The last beat of an owner. Its time (Unix ms) only makes it differ from earlier ones."""

    owner: str
    at_ms: int


def beat(connection: sqlite3.Connection, owner: str, now_ms: int) -> bool:
    """Record that the owner works. False when it was found frozen: it has to come back first."""
    cursor = connection.execute(
        "INSERT INTO beats (owner, at_ms) VALUES (?1, ?2) "
        "ON CONFLICT (owner) DO UPDATE SET at_ms = ?2 WHERE at_ms <> ?3",
        (owner, now_ms, _FROZEN),
    )
    return cursor.rowcount == 1


def come_back(connection: sqlite3.Connection, owner: str, now_ms: int) -> bool:
    """Let the owner count again. True when it was found frozen, and so has lost its claims."""
    cursor = connection.execute(
        "UPDATE beats SET at_ms = ? WHERE owner = ? AND at_ms = ?", (now_ms, owner, _FROZEN)
    )
    return cursor.rowcount == 1


def find_frozen(connection: sqlite3.Connection, last: OwnerBeat) -> bool:
    """Record that the owner is frozen. False when this was not its last beat."""
    cursor = connection.execute(
        "UPDATE beats SET at_ms = ? WHERE owner = ? AND at_ms = ?", (_FROZEN, *last)
    )
    return cursor.rowcount == 1


def last_beats(connection: sqlite3.Connection) -> list[OwnerBeat]:
    """Return the last beat of each owner, without those found frozen or too old to write beats."""
    rows = connection.execute("SELECT owner, at_ms FROM beats WHERE at_ms <> ?", (_FROZEN,))
    return [OwnerBeat(*row) for row in rows.fetchall()]


class HeartbeatWatch:
    """Finds owners that have not beaten while the owner `own` did so `MISSED` times."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._last: OwnerBeat | None = None
        self._missed: dict[OwnerBeat, int] = {}

    def frozen(self, beats: Sequence[OwnerBeat]) -> list[OwnerBeat]:
        """Return the last beats of frozen owners, given the last beats of all."""
        own = next((beat for beat in beats if beat.owner == self._own), None)
        has_beaten = own is not None and own != self._last
        self._last = own or self._last
        self._missed = {
            beat: self._missed[beat] + has_beaten if beat in self._missed else 0
            for beat in beats
            if beat.owner != self._own
        }
        return [beat for beat, missed in self._missed.items() if missed >= MISSED]


FOLDER = "owners"


class Owner:
    """The side of the process itself: alive from `start()` to `end()`."""

    def __init__(self, folder: Path) -> None:
        self.name = secrets.token_hex(8)
        self._folder = folder
        self._lock: FileLock | None = None

    def start(self) -> None:
        with translated(self._folder):
            path = _lock_file(self._folder, self.name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._lock = FileLock(path)
            self._lock.wait()

    def end(self) -> None:
        if self._lock is not None:
            forget(self._folder, self.name)
            self._lock.close()
            self._lock = None


def is_alive(folder: Path, name: str) -> bool:
    """Return whether that owner's process still holds its lock."""
    return is_locked(_lock_file(folder, name))


def forget(folder: Path, name: str) -> None:
    """Remove the lock file of an owner that has ended."""
    with contextlib.suppress(FileNotFoundError):
        _lock_file(folder, name).unlink()


def _lock_file(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.lock"
