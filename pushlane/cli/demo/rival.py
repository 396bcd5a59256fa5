"""The rival that the demo measures: one first-in-first-out queue a level, on the same broker.

It is our own dispatcher with the tasks of a level on one lane, so that nothing else differs.
"""

from __future__ import annotations

from dataclasses import dataclass

from pushlane.cli.demo.files import Campaign
from pushlane.lanes import task_transitions
from pushlane.lanes.backend import Backend
from pushlane.lanes.push import Push, encode
from pushlane.lanes.task import Task, new_task_id

_AT_ONCE = 8_192


@dataclass(frozen=True)
class Queues:
    """The lanes `queue-high`, `queue-medium` and `queue-low`."""

    backend: Backend

    async def add(self, campaign: Campaign) -> str:
        """Put a task's pushes at the end of its level's queue; returns its id."""
        lane = f"queue-{campaign.level}"
        task_id = new_task_id()
        task = Task(id=task_id, name=campaign.name, level=campaign.level, lane=lane)
        await self.backend.broker.open_lane(lane)
        await self.backend.registry.add(task)
        await self.backend.registry.change(task_id, task_transitions.start)
        for first in range(1, campaign.pushes + 1, _AT_ONCE):
            seqs = range(first, min(first + _AT_ONCE, campaign.pushes + 1))
            bodies = [encode(_push(campaign, task_id, seq)) for seq in seqs]
            await self.backend.broker.publish(lane, bodies)
        await self.backend.registry.change(task_id, task_transitions.seal(campaign.pushes))
        return task_id


def _push(campaign: Campaign, task_id: str, seq: int) -> Push:
    text = campaign.body.format(name=f"user {seq}")
    return Push(
        task_id,
        seq,
        f"device-{seq}",
        campaign.title,
        text,
        submitted_at_ms=task_transitions.now_ms(),
    )
