"""Plays the devices: a processor for `pushlane dispatch --sink devices:send`, run in this folder.

What becomes of a push depends on its id alone, so that every run comes out the same. What people
do with it is appended to a file, for `pushlane receipts add`.
"""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path

from pushlane import Outcome, Push, batch

EVENTS = Path("data/events.jsonl")
GONE = 0.02
BUSY = 0.01
DISPLAYED = 0.60
CLICKED = 0.09


@batch(500)
def send(pushes: list[Push]) -> list[Outcome]:
    """The outcomes of pushes of one task, in their order."""
    outcomes = [outcome_of(push) for push in pushes]
    delivered = Outcome.delivered()
    reached = [p for p, outcome in zip(pushes, outcomes, strict=True) if outcome == delivered]
    with EVENTS.open("a") as events:
        events.writelines(line for push in reached for line in events_of(push))
    return outcomes


def outcome_of(push: Push) -> Outcome:
    share = share_of(push, "outcome")
    if share < GONE:
        return Outcome.dead("no such device")
    if share < GONE + BUSY and push.attempt == 1:
        return Outcome.retry("busy", after_s=1.0)
    return Outcome.delivered()


def events_of(push: Push) -> list[str]:
    """Lines of JSON: most pushes are displayed, few of those clicked."""
    share = share_of(push, "event")
    events = ["displayed"] * (share < DISPLAYED) + ["clicked"] * (share < CLICKED)
    said = {"push_id": push.push_id, "at": time.time()}
    return [json.dumps({**said, "event": event}) + "\n" for event in events]


def share_of(push: Push, what: str) -> float:
    """From 0 to 1, and the same each time."""
    return zlib.crc32(f"{what} {push.push_id}".encode()) / 2**32
