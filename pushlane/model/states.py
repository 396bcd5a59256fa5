"""The states in which tasks are shown to people, beside those in which they are stored."""

from __future__ import annotations

from pushlane.core.task import State, Task

SCHEDULED = "scheduled"
STALLED = "stalled"
RECEIVING = "receiving"
OPEN = "open"
WAITING = "waiting"
RESTING = "resting"
FAILING = "failing"
SHOWN_STATES = (SCHEDULED, STALLED, RECEIVING, OPEN, WAITING, RESTING, FAILING)
"""The states in which people see a task that is stored otherwise, as running mostly."""

STATES = (*(state.value for state in State), *SHOWN_STATES)
"""All states that people see."""

STORED_AS = {
    **dict.fromkeys(SHOWN_STATES, (State.RUNNING,)),
    STALLED: (State.SUBMITTED, State.RUNNING, State.PAUSED),
    RECEIVING: (State.SUBMITTED, State.RUNNING),
}
"""The states in which tasks are stored that are shown so."""


def shown_state(task: Task, at_ms: int) -> str:
    """Return the task's state; a running task whose start is still to come is scheduled."""
    waits = task.state is State.RUNNING and task.is_scheduled(at_ms)
    return SCHEDULED if waits else task.state.value
