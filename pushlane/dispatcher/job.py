"""A push that holds a slot, with all that is needed to settle it."""

from __future__ import annotations

import msgspec

from pushlane.dispatcher.budgets.budgets import Charge
from pushlane.dispatcher.failures import Flight
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.messages import Held
from pushlane.lanes.push import Push
from pushlane.lanes.recipient_window import CapDay
from pushlane.lanes.task import DeliveryMode, Task


class Job(msgspec.Struct, gc=False):
    """A push on its way, with the lane and the task that it belongs to.

    `owner` is who has claimed the push in the ledger; empty when nobody had to, or could. `turn_of`
    is the same for its recipient's turn, `watched_by` for the watch over its process.
    `dispatched_at_ms` is when it went to the sink, 0 as long as it has not. `leave` is what the
    breaker gave it to go with, `charge` what it has taken of budgets, if anything limits it, and
    `counted` the place that it has within a frequency cap.
    """

    lane: OpenLane
    taken: Held
    push: Push
    task: Task
    owner: str = ""
    turn_of: str = ""
    watched_by: str = ""
    dispatched_at_ms: int = 0
    leave: int = 0
    charge: Charge | None = None
    counted: tuple[CapDay, int] | None = None

    def flight(self) -> Flight:
        """Return what a breaker has to know of the push."""
        return Flight(
            self.push.push_id,
            self.task.id,
            self.task.app,
            is_charged=self.push.attempt > 1,
            may_repeat=self.task.delivery is not DeliveryMode.AT_MOST_ONCE,
        )
