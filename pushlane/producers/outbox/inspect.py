"""Looks into a spool that a submit or a producer left behind, and sends what is in it.

For when that producer does not come back. It refuses a spool that a producer has open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.core.publish import Ended
from pushlane.core.task import Task
from pushlane.producers.outbox.folder import SpoolFolder
from pushlane.producers.outbox.sender import Sender
from pushlane.producers.outbox.spool import Spool
from pushlane.settings import Settings

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Spooled:
    """The state of one task in a spool; if `is_sealed`, nothing more comes to it.

    `waiting` pushes are not sent yet.
    """

    task: Task
    waiting: int
    bytes: int
    is_sealed: bool


@dataclass(frozen=True)
class SpoolSent:
    """The result of sending one task from a spool.

    `ended` says why the rest is dropped, if it is, and `refused` why it is left in the spool.
    """

    task: Task
    sent: int
    lost: int
    is_sealed: bool
    ended: str = ""
    refused: str = ""


def look(path: Path) -> list[Spooled]:
    """Return what is in the spool, oldest task first. Raises BadInput when there is no spool."""
    with _opened(path) as folder:
        return [
            Spooled(spool.header.task, spool.waiting, spool.bytes, spool.header.is_sealed)
            for spool in folder.spools
        ]


async def send(settings: Settings, path: Path, *, seal: bool, tell: Tell) -> list[SpoolSent]:
    """Send all of the spool, and seal the tasks that are complete; with `seal`, all of them.

    A service that is lost on the way is waited for.

    Raises:
        BadInput: there is no spool.
        TaskConflict: a producer has it open.
        Unreachable: a service does not answer at the start.
    """
    with _opened(path) as folder:
        async with connect(settings):
            tell(f"sending {path}")
        return [await _send(settings, folder, spool, seal, tell) for spool in list(folder.spools)]


async def _send(
    settings: Settings, folder: SpoolFolder, spool: Spool, seal: bool, tell: Tell
) -> SpoolSent:
    is_waiting, sent_before = False, spool.published

    def on_trouble(trouble: str) -> None:
        nonlocal is_waiting
        if trouble and not is_waiting:
            tell(f"waiting: {trouble}")
        is_waiting = bool(trouble)

    if seal:
        spool.seal()
    no_news = asyncio.Event()
    sender = Sender(settings, spool, None, lambda sent: None, on_trouble, lambda: True, no_news)
    ended = refused = ""
    try:
        await sender.run()
    except Ended as error:
        ended = str(error)
    except (TaskConflict, UnknownFormat) as error:
        refused = str(error)
    is_sealed = spool.header.is_sealed and not (ended or refused)
    if ended or is_sealed:
        folder.remove(spool)
    sent = spool.published - sent_before
    return SpoolSent(spool.header.task, sent, spool.lost, is_sealed, ended, refused)


def _opened(path: Path) -> closing[SpoolFolder]:
    if not (path / "lock").exists():
        raise BadInput(f"{path} is no spool; name the folder that the producer was given")
    return closing(SpoolFolder(path))
