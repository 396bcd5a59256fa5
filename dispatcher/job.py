"""A push that holds a slot, with all that is needed to settle it."""

from __future__ import annotations

import msgspec

from dispatcher.lane import OpenLane
from lanes.ports import Taken
from lanes.push import Push
from lanes.task import Task


class Job(msgspec.Struct):
    """`owner` is who has claimed the push in the ledger; empty when nobody had to, or could."""

    lane: OpenLane
    taken: Taken
    push: Push
    task: Task
    owner: str = ""
