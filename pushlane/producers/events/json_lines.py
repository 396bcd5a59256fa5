"""Records events from lines of JSON, or refuses a line with its number and the reason.

Memory is flat in the number of lines. What comes before a line that stops it all is recorded, and
counts once when it is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, UserError
from pushlane.producers.device_events import Recorder
from pushlane.producers.events.event import parse_event
from pushlane.producers.text_rows import bounded_lines
from pushlane.settings import Settings


@dataclass(frozen=True)
class Recorded:
    """The numbers of events that were recorded and of lines that were left out."""

    recorded: int
    rejected: int


Refused = Callable[[int, str], None]
"""Hears of a line that is left out, and why."""


async def record_lines(
    backend: Backend, settings: Settings, stream: BinaryIO, name: str, refused: Refused | None
) -> Recorded:
    """Record every line of the stream; a bad one stops it unless `refused` is given to be told.

    Raises:
        BadInput: a line is no event of a push that there is; says which line and why.
    """
    recorder = Recorder(backend, settings)
    rejected = 0
    for number, line in enumerate(bounded_lines(stream.readline, name), start=1):
        if not line.strip():
            continue
        try:
            await recorder.add(parse_event(line))
        except UserError as error:
            if refused is None:
                await recorder.flush()
                raise BadInput(_stopped(name, number, error, recorder.recorded)) from error
            rejected += 1
            refused(number, str(error))
    await recorder.flush()
    return Recorded(recorder.recorded, rejected)


def _stopped(name: str, number: int, error: UserError, recorded: int) -> str:
    return (
        f"{name}:{number}: {error}. Recorded before it: {recorded:,}, which count once if they are "
        "sent again; correct the line, or leave bad ones out with --bad-rows skip"
    )
