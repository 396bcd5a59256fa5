"""Notes what waits on later lanes, so that people can be told what for, and until when."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pushlane.core.endings import Ending
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Finished, Progress, now_ms
from pushlane.lanes.ports import ProgressStore
from pushlane.model.due import PutOffTally

log = logging.getLogger("pushlane.settle")


class PutOffNotes:
    """Hears of pushes that are put off. For people alone: left out when the registry is away."""

    def __init__(self, registry: ProgressStore) -> None:
        self._registry = registry

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        tally, now = PutOffTally(), now_ms()
        for ending in endings:
            if ending.wait is not None:
                task_id, delay_ms = ending.job.push.task_id, round(ending.delay_s * 1000)
                tally.add(task_id, ending.wait, now + delay_ms)
        if put_off := tally.take():
            try:
                await self._registry.put_off(put_off)
            except PushlaneError as error:
                log.debug("what was put off is not noted: %s", error)
