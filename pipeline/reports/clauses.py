"""Builds pieces of SQL for dimensions and conditions, with every value bound."""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.pipeline.reports.conditions import Condition
from pushlane.pipeline.reports.dimensions import ATTRIBUTE, Dimension
from pushlane.pipeline.reports.engine import Sql
from pushlane.pipeline.reports.query import Query


def expression(query: Query, dimension: Dimension) -> str:
    """Return the SQL expression of this dimension over a row of a source."""
    if dimension.step_ms:
        return f"minute_ms - minute_ms % {dimension.step_ms}"
    if dimension.word == ATTRIBUTE:
        return f"a{query.attributes.index(dimension.attribute)}"
    return "task_id" if dimension.word == "task" else dimension.word


def keys(query: Query) -> list[str]:
    """Return one expression for each dimension of the answer, named `d0`, `d1` …"""
    return [f"{expression(query, each)} as d{place}" for place, each in enumerate(query.by)]


def condition(query: Query, words: Sequence[str] = ()) -> Sql:
    """Return a condition for the rows that are asked for.

    If `words` are given, only the conditions on dimensions of these words are in it.
    """
    texts = ["true"]
    values: dict[str, str] = {}
    for place, each in enumerate(query.where):
        if words and each.dimension.word not in words:
            continue
        names = [f"value{place}_{number}" for number in range(len(each.values))]
        texts.append(_is_one_of(expression(query, each.dimension), each, names))
        values.update(zip(names, each.values, strict=True))
    return Sql(" and ".join(texts), values)


def _is_one_of(column: str, each: Condition, names: list[str]) -> str:
    listed = ", ".join(f"${name}" for name in names)
    return f"{column} {'not in' if each.negated else 'in'} ({listed})"
