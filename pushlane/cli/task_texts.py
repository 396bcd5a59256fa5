"""Makes the texts of a task that a command made or changed.

How a task stands now is shown by `cli.task_view`.
"""

from __future__ import annotations

from pushlane.cli.parsing import pushes_text
from pushlane.core.task import Progress
from pushlane.model.stop_rule import OFF
from pushlane.operations.task_views import TaskView


def already_text(task: TaskView, progress: Progress | None) -> str:
    """Return what has become of the task that a key stands for, as a remark."""
    total = pushes_text(task.total or 0)
    if progress is not None and task.total and not task.has_ended:
        total = f"{100 * progress.finished // task.total} % of {total} ended"
    return f"already submitted as task {task.id} ({task.state}, {total})"


def stop_text(task: TaskView) -> str:
    """Return how many dead pushes stop a task, for people."""
    if task.stop_if_dead == OFF:
        return "off"
    again = "; it did, and does not again" if task.stopped else ""
    return f"more than {task.stop_if_dead} are dead{again}"
