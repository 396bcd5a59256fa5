"""Looks after alerts again and again, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import Unreachable
from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.alerts.alert_store import AlertStore
from pushlane.pipeline.alerts.alert_webhook import Webhook
from pushlane.pipeline.alerts.measure import lag_of
from pushlane.pipeline.alerts.watch import Look, Watch


async def serve(
    backend: Backend,
    root: Path,
    every_s: float | None,
    stop: asyncio.Event,
    on_looks: Callable[[list[Look]], None],
    on_problem: Callable[[str], None],
) -> int:
    """How many rules went wrong in the last look; with `every_s` of None there is only one.

    A backend that does not answer is asked again the next time.

    Raises:
        Unreachable: it does not answer the only look.
    """
    async with Webhook() as webhook:
        watch = Watch(
            AlertStore(backend.documents),
            root,
            webhook.tell,
            lambda: lag_of(backend.receipts, root),
        )
        while True:
            problems = 0
            try:
                looks = await watch.look(now_ms())
                on_looks(looks)
                problems = sum(bool(look.problem) for look in looks)
            except Unreachable as error:
                if every_s is None:
                    raise
                on_problem(str(error))
            if every_s is None or await _stopped(stop, every_s):
                return problems


async def _stopped(stop: asyncio.Event, within_s: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), within_s)
    return stop.is_set()
