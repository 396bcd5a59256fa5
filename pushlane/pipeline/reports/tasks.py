"""Finds the names of the tasks that have receipts, and the task that a user means."""

from __future__ import annotations

from dataclasses import replace

from pushlane.core.errors import UnknownTask
from pushlane.lanes.suggestions import ambiguous_task, did_you_mean
from pushlane.pipeline.reports.conditions import Condition
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.query import Query

Names = dict[str, str]


def names(engine: Engine) -> Names:
    """Return the names by id of all tasks of the period; empty for a task without a name."""
    text = f"select task_id, max(task_name) from {engine.table(COUNTED)} group by all"
    return dict(engine.rows(Sql(text)))


def by_id(query: Query, known: Names) -> Query:
    """Return the question with ids in place of the names of tasks.

    Raises:
        UnknownTask: no task in the store, or several, have such an id or name.
    """
    return replace(query, where=tuple(_with_ids(each, known) for each in query.where))


def _with_ids(condition: Condition, known: Names) -> Condition:
    if condition.dimension.word != "task":
        return condition
    return replace(condition, values=tuple(_id_of(value, known) for value in condition.values))


def _id_of(word: str, known: Names) -> str:
    if word in known:
        return word
    ids = [task_id for task_id, name in known.items() if name == word]
    if not ids:
        hint = did_you_mean(word, {*known, *known.values()} - {""})
        raise UnknownTask(f"no receipts of a task {word!r} in this period{hint}")
    if len(ids) > 1:
        raise ambiguous_task(word, ids)
    return ids[0]
