"""Questions of panels, about what the dashboard's variables choose, in a few usual looks."""

from __future__ import annotations

from scripts.monitoring.expression import Expression, Selection, binary
from scripts.monitoring.known import known
from scripts.monitoring.panels import Look, Panel, Query

CHOSEN = Selection({label: f"${label}" for label in ("namespace", "job", "sink", "level")}, ())
ANYWHERE = Selection({}, ())
"""For alerts, some of which have no job, and producers, which run in applications."""

OVER = "$__rate_interval"
"""Grafana's word for at least four scrapes."""

QUANTILES = (0.5, 0.99)
NUMBER, PART, PER_S, SECONDS, BYTES = "short", "percentunit", "cps", "s", "bytes"
NONE_IS_GOOD = ((None, "green"), (1, "red"))


def unable(name: str) -> Expression:
    """Count the dispatchers that do not reach a service."""
    reaches = known(name)
    return binary(CHOSEN.count(reaches), "-", CHOSEN.total(reaches))


def number(
    title: str, expression: Expression, *colours: tuple[float | None, str], unit: str = NUMBER
) -> Panel:
    return Panel(title, unit, (Query(expression, title),), Look.NUMBER, 4, colours)


def line(
    title: str,
    unit: str,
    expression: Expression,
    legend: str,
    look: Look = Look.LINES,
    width: int = 12,
) -> Panel:
    return Panel(title, unit, (Query(expression, legend),), look, width)


def quantiles(title: str, parts: list[Expression], legend: str, width: int = 12) -> Panel:
    """Show the median and what one in a hundred exceeds."""
    named = zip(parts, QUANTILES, strict=True)
    queries = [Query(part, f"{legend} {quantile:.0%}") for part, quantile in named]
    return Panel(title, SECONDS, queries, width=width)
