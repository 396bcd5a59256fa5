"""The sink port: where pushes are delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pushlane.lanes.push import Outcome, Push
from pushlane.lanes.task import Level


class Delivery(msgspec.Struct, gc=False):
    """A push on its way to a sink.

    `level` is the one it goes out at, which may change while it waits, and `address` where it goes
    at this sink. `payload` is what its task's template has for this sink, None when it has none.
    """

    push: Push
    level: Level
    address: str = ""
    payload: Any = None


class Sink(Protocol):
    """Delivers pushes to one place.

    `batch_size` is the most that one call takes. `mixes_tasks` says whether one batch may hold
    pushes of several tasks, `hosts_code` whether it runs somebody's own code in this process, which
    a push could bring to end it.
    """

    name: str
    batch_size: int
    mixes_tasks: bool
    hosts_code: bool

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return one outcome for each push, in the same order.

        An exception counts as a retry of the whole batch; its message is not kept, since it might
        hold what the push holds.
        """

    async def close(self) -> None:
        """Release the connections of the sink."""
