"""Delivers nothing and says that it did: to measure everything but the sink."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pushlane.core.push import DELIVERED, Outcome
from pushlane.lanes.ports import Delivery
from pushlane.model.targets import PlainTarget


class NullOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It has none."""

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> NullSink:
        return NullSink()

    def target(self) -> PlainTarget:
        return PlainTarget("null", delivers=False)


class NullSink:
    name = "null"
    batch_size = 256
    mixes_tasks = True
    hosts_code = False

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return
