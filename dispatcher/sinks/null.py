"""Delivers nothing and says that it did: to measure everything but the sink."""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.lanes.ports import Delivery
from pushlane.lanes.push import DELIVERED, Outcome


class NullSink:
    name = "null"
    batch_size = 256
    mixes_tasks = True
    hosts_code = False

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return
