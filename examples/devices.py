"""Plays the devices: a processor for `pushlane dispatch --sink devices:send`, run in this folder.

What becomes of a push depends on its id alone, so that every run comes out the same.
"""

from __future__ import annotations

import zlib

from pushlane import Outcome, Push, batch

GONE = 0.02
BUSY = 0.01


@batch(500)
def send(pushes: list[Push]) -> list[Outcome]:
    """The outcomes of pushes of one task, in their order."""
    return [outcome_of(push) for push in pushes]


def outcome_of(push: Push) -> Outcome:
    share = share_of(push)
    if share < GONE:
        return Outcome.dead("no such device")
    if share < GONE + BUSY and push.attempt == 1:
        return Outcome.retry("busy", after_s=1.0)
    return Outcome.delivered()


def share_of(push: Push) -> float:
    """From 0 to 1, and the same each time."""
    return zlib.crc32(push.push_id.encode()) / 2**32
