"""Sums up a reading of the journal, and tells its tasks, weights and documents apart."""

from __future__ import annotations

from pushlane.lanes.ports import JournalPage
from pushlane.lanes.task_merge import Merged

WEIGHTS_KEY = ":weights"  # no task id begins with a colon
DOCUMENT_KEY = ":shelf:"


def is_task(key: str) -> bool:
    """Tell whether the journal has a task under this key."""
    return key != WEIGHTS_KEY and not key.startswith(DOCUMENT_KEY)


class JournalSum:
    """Sums up what of the journal was read: all but the tasks, of which it keeps the ids.

    `is_beside_others` says that Redis may hold a task which the journal does not. `fresh` are tasks
    of the latest page of which nothing counts that was before it. `overruling` are those of which
    another value stands than the last.
    """

    def __init__(self, *, is_beside_others: bool = False) -> None:
        self.weights = b""
        self.documents: dict[str, bytes] = {}
        self.known: set[str] = set()
        self.removed: set[str] = set()
        self.fresh: set[str] = set()
        self.overruling: set[str] = set()
        self.position = b""
        self.is_beside_others = is_beside_others

    def take(self, page: JournalPage) -> dict[str, Merged]:
        """Take in a page; return what its records of each task come to."""
        tasks: dict[str, Merged] = {}
        self.position = page.position
        self.fresh.clear()
        for key, body in page.records:
            if key == WEIGHTS_KEY:
                self.weights = body
            elif key.startswith(DOCUMENT_KEY):
                _put(self.documents, key.removeprefix(DOCUMENT_KEY), body)
            elif body:
                if key not in tasks and self._is_fresh(key):
                    self.fresh.add(key)
                tasks[key] = tasks.pop(key, Merged()).then(body)  # keeps the order
                self.known.add(key)
                self.removed.discard(key)
            else:
                tasks.pop(key, None)
                self._note_removed(key)
        return tasks

    def note_stored(self, task_id: str, *, is_last: bool) -> None:
        """Note whether the value that stands is the last of the journal."""
        (self.overruling.discard if is_last else self.overruling.add)(task_id)

    def _is_fresh(self, task_id: str) -> bool:
        if task_id in self.removed:
            return True
        return not self.is_beside_others and task_id not in self.known

    def _note_removed(self, task_id: str) -> None:
        self.removed.add(task_id)
        if task_id in self.known:
            self.known.remove(task_id)
            self.is_beside_others = True  # an earlier page of it may be filled in


def _put(bodies: dict[str, bytes], key: str, body: bytes) -> None:
    """Put a body behind all others, or remove what an empty one stands for."""
    bodies.pop(key, None)
    if body:
        bodies[key] = body
