"""Writes a report as one web page that needs no other file: plots are inline, and it links nowhere.

Everything that a user or a sink wrote is escaped. The page follows the reader's light or dark
theme.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from pushlane.model.counted import STAGES
from pushlane.model.wait_words import WAITED, label, took_text, untold_text
from pushlane.pipeline.reports.answers import TIMES, Report, Table
from pushlane.pipeline.reports.plots import PLAIN_TEXT, Plot, plots
from pushlane.pipeline.reports.query import utc_text

_INK = "#010203"
"""A placeholder that the finished page replaces by the reader's own text colour."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.labelcolor": _INK,
    "grid.color": _INK,
}


def write_html(report: Report, table: Table, path: Path) -> None:
    """Write the page into one file."""
    environment = Environment(
        loader=PackageLoader("pushlane.pipeline.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": _cell, "took": took_text, "label": label}
    period = report.span or report.query.period
    latency = sorted(report.latency, key=lambda each: (each.key, [*STAGES].index(each.stage)))
    page = environment.get_template("report.html").render(
        report=report,
        table=table,
        since=utc_text(period.since_ms),
        until=utc_text(period.until_ms),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        pictures=[(plot, _svg(plot, place)) for place, plot in enumerate(plots(report))],
        latency=[(each.key[0], each.stage, each.n, each.times_ms) for each in latency],
        times=TIMES,
        waits=[(level, part) for (level,), part in report.waits],
        untold=untold_text(
            sum(each.n for each in latency if each.stage == "total"),
            sum(part.n for _, part in report.waits if part.cause == WAITED),
        ),
    )
    path.write_text(page, encoding="utf-8")


def _svg(plot: Plot, place: int) -> Markup:
    """Return a plot as an inline drawing in the page's text colour, with ids of its own."""
    with mpl.rc_context({**PLAIN_TEXT, **_STYLE, "svg.hashsalt": f"plot-{place}"}):
        figure = Figure(figsize=plot.inches, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        plot.draw(axes)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    label = Markup.escape(f"{plot.title}: {plot.text}")
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))  # noqa: S704


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int | float):
        return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
    return str(value) or "(none)"
