"""How long pushes have waited, for `pushlane_waited_seconds`: from when they could first go."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.core.names import own_lane
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, Task, now_ms
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from tests.core.support import MemorySink, backend_in

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("of_task", "of_push", "least_s", "most_s"),
    [
        ({}, {}, 7_200, 7_300),
        ({"not_before_ms": -HOUR_MS}, {}, 3_600, 3_700),
        ({}, {"not_before_ms": -HOUR_MS}, 3_600, 3_700),
        ({"not_before_ms": -3 * HOUR_MS}, {}, 7_200, 7_300),
    ],
)
async def test_a_delay_that_was_asked_for_is_no_lateness(
    tmp_path: Path,
    of_task: dict[str, int],
    of_push: dict[str, int],
    least_s: float,
    most_s: float,
) -> None:
    """Submitted two hours ago; starts are relative to now."""
    now = now_ms()
    task_id = new_task_id()
    lane = own_lane(task_id)
    starts = {name: now + value for name, value in of_task.items()}
    own = {name: now + value for name, value in of_push.items()}
    task = Task(id=task_id, level=Level.HIGH, lane=lane, first_lane=lane, **starts)
    push = Push(task_id, 1, "to-1", "Hi", submitted_at_ms=now - 2 * HOUR_MS, **own)
    async with backend_in(tmp_path) as (backend, settings):
        await backend.registry.add(task)
        await backend.broker.open_lane(lane)
        await backend.registry.change(task_id, task_changes.start)
        await backend.broker.publish(lane, [encode(push)])
        await backend.registry.change(task_id, task_changes.seal(1))
        dispatcher = Dispatcher(backend, MemorySink(), settings, drain=True)

        await dispatcher.run()

    waited = dispatcher.stats.waited[Level.HIGH]
    assert waited.count == 1
    assert least_s <= waited.sum_s <= most_s
