"""Draws the plots of a report, each onto given axes, or all of them as one picture.

Colours tell levels apart on a light or dark ground, and for colour-blind eyes (Okabe and Ito's).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.dates
from matplotlib.figure import Figure

from pushlane.pipeline.reports.answers import QUANTILES, Report, Share
from pushlane.pipeline.reports.query import utc_text

_BAR = "#0072B2"
_DEATH = "#D55E00"
LEVELS = {"high": "#D55E00", "medium": "#0072B2", "low": "#999999"}
_OTHERS = ("#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#B8A000", "#8C6BB1", "#D55E00", "#0072B2")
PLAIN_TEXT: dict[Any, Any] = {"text.parse_math": False}
"""Settings with which a dollar sign in a task's name does not begin a formula."""
_STAGES = {"wait": "-", "delivery": "--"}
_MOST_LABEL = 34
_LEAST_BARS = 3
_MOST_CELLS = 24 * 62


class Plot(NamedTuple):
    """A plot of a report; `text` says the same in words, for readers who cannot see it."""

    title: str
    text: str
    draw: Callable[[Any], None]
    inches: tuple[float, float] = (8.0, 3.0)


def plots(report: Report) -> list[Plot]:
    """Return the plots that have something to show."""
    found = [
        _funnel(report),
        _shares("Share of the sinks by level", report.level_shares, report, LEVELS),
        _shares("Share of the sinks by task", report.task_shares, report, {}),
        _latency(report),
        _deaths(report),
        _heat(report),
    ]
    return [plot for plot in found if plot]


def write_png(report: Report, path: Path) -> None:
    """Write all plots as one picture on a white ground."""
    drawn = plots(report)
    lines = max(1, math.ceil(len(drawn) / 2))
    period = report.span or report.query.period
    title = f"{report.title}: {utc_text(period.since_ms)} to {utc_text(period.until_ms)}"
    with mpl.rc_context(PLAIN_TEXT):
        figure = Figure(figsize=(14, 0.8 + 3.1 * lines), layout="constrained", facecolor="white")
        figure.suptitle(title)
        for place, plot in enumerate(drawn, 1):
            axes = figure.add_subplot(lines, 2, place)
            axes.set_title(plot.title, fontsize="medium", loc="left")
            plot.draw(axes)
        figure.savefig(path, dpi=90, format="png")


def _funnel(report: Report) -> Plot | None:
    steps = report.funnel.steps()
    whole = report.funnel.submitted
    if not whole:
        return None

    def draw(axes: Any) -> None:
        _bars(axes, steps, [f"{n:,}  ({n / whole:.1%})" for _, n in steps], _BAR, whole * 1.25)

    text = ", ".join(f"{name} {n:,}" for name, n in steps)
    return Plot("From submitted to clicked", text, draw, (8.0, 2.4))


def _shares(
    title: str, shares: Sequence[Share], report: Report, colours: dict[str, str]
) -> Plot | None:
    names = list(dict.fromkeys(share.name for share in shares))
    names.sort(key=lambda name: list(colours).index(name) if name in colours else len(colours))
    if not names:
        return None

    def draw(axes: Any) -> None:
        for place, name in enumerate(names):
            colour = colours.get(name, _OTHERS[place % len(_OTHERS)])
            _share_lines(axes, [share for share in shares if share.name == name], colour, report)
        axes.plot([], [], color="#808080", linestyle=":", label="entitled")
        axes.set_ylabel("% of all sent")
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        _legend(axes)
        _time_axis(axes, report)

    text = "; ".join(_share_text(name, shares, report) for name in names)
    return Plot(title, text, draw, (8.0, 3.4))


def _share_lines(axes: Any, shares: Sequence[Share], colour: str, report: Report) -> None:
    """Draw measured and, dotted, entitled shares; a step without anything sent breaks the line."""
    by_time = {share.at_ms: share for share in shares}
    assert report.span is not None
    since_ms, step_ms = report.span.since_ms, report.step_ms
    steps = range(since_ms - since_ms % step_ms, report.span.until_ms, step_ms)
    times = [_utc(at) for at in steps]
    got = [by_time.get(at) for at in steps]
    measured = [100 * share.share if share else math.nan for share in got]
    entitled = [100 * share.entitled if share else math.nan for share in got]
    marker = "." if len(times) < 20 else ""
    label = _short(report.names.get(shares[0].name) or shares[0].name)
    axes.plot(times, measured, color=colour, label=label, marker=marker)
    axes.plot(times, entitled, color=colour, linestyle=":", linewidth=1.2)


def _share_text(name: str, shares: Sequence[Share], report: Report) -> str:
    own = [share for share in shares if share.name == name]
    whole = sum(share.of for share in own)
    entitled = sum(share.entitled * share.of for share in own) / whole
    sent = sum(share.n for share in own) / whole
    label = report.names.get(name) or name
    return f"{label} sent {sent:.1%}; its fair share was {entitled:.1%}"


def _latency(report: Report) -> Plot | None:
    known = {(each.key[0], each.stage): each.quantiles_ms for each in report.latency}
    levels = [level for level in LEVELS if (level, "wait") in known or (level, "delivery") in known]
    if not levels:
        return None
    names = [f"p{quantile * 100:g}" for quantile in QUANTILES]

    def draw(axes: Any) -> None:
        for level in levels:
            for stage, style in _STAGES.items():
                values = [max(ms, 0.5) for ms in known.get((level, stage), ())]
                if values:
                    axes.plot(names, values, style, color=LEVELS[level], marker="o")
            axes.plot([], [], color=LEVELS[level], label=level)
        for stage, style in _STAGES.items():
            axes.plot([], [], style, color="#808080", label=stage)
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter(lambda ms, _: _duration(ms))
        axes.grid(axis="y", alpha=0.3)
        _legend(axes)
        _bare(axes)

    text = "; ".join(
        f"{level} {stage}: "
        + ", ".join(f"{name} {ms:,.0f} ms" for name, ms in zip(names, values, strict=True))
        for (level, stage), values in sorted(known.items())
        if stage in _STAGES
    )
    return Plot("How late, by level (within 5 %)", text, draw)


def _deaths(report: Report) -> Plot | None:
    rows = report.deaths
    if not rows:
        return None

    def draw(axes: Any) -> None:
        counts = [(_short(str(row.key[0]) or "(none)"), row.n) for row in rows]
        longest = max(row.n for row in rows)
        _bars(axes, counts, [f"{row.n:,}" for row in rows], _DEATH, longest * 1.15)

    text = ", ".join(f"{row.key[0] or '(none)'}: {row.n:,}" for row in rows)
    return Plot("Reasons of death", text, draw, (8.0, 0.4 + 0.34 * max(len(rows), _LEAST_BARS)))


def _heat(report: Report) -> Plot | None:
    days = sorted({_utc(row.key[0]).date() for row in report.hours})
    if not days:
        return None
    grid = [[math.nan] * 24 for _ in days]
    for row in report.hours:
        at = _utc(row.key[0])
        grid[days.index(at.date())][at.hour] = row.n

    def draw(axes: Any) -> None:
        many = 24 * len(days) > _MOST_CELLS
        drawn = axes.pcolormesh(grid, cmap="viridis", vmin=0, edgecolors="face", rasterized=many)
        step = max(1, len(days) // 14)
        axes.set_xticks([hour + 0.5 for hour in range(0, 24, 2)], range(0, 24, 2))
        places = range(0, len(days), step)
        axes.set_yticks([place + 0.5 for place in places], [f"{days[p]:%b %d}" for p in places])
        axes.invert_yaxis()
        axes.set_xlabel("hour, UTC")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.figure.colorbar(drawn, ax=axes, label="delivered").outline.set_visible(False)

    busiest = max(report.hours, key=lambda row: row.n)
    text = f"busiest hour {utc_text(busiest.key[0])} with {busiest.n:,} delivered"
    return Plot("Delivered by day and hour", text, draw, (8.0, 1.3 + 0.3 * min(len(days), 14)))


def _time_axis(axes: Any, report: Report) -> None:
    assert report.span is not None
    axes.set_xlim(_utc(report.span.since_ms - report.step_ms), _utc(report.span.until_ms))
    dates: Any = matplotlib.dates  # untyped
    locator = dates.AutoDateLocator(tz=UTC, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC, show_offset=False))
    axes.grid(axis="y", alpha=0.3)
    _bare(axes)


def _legend(axes: Any) -> None:
    below = (0.5, -0.08)
    axes.legend(loc="upper center", bbox_to_anchor=below, ncols=5, fontsize="small", frameon=False)


def _bars(
    axes: Any, counts: Sequence[tuple[str, int]], labels: list[str], colour: str, width: float
) -> None:
    """Draw a bar for each count, the first on top; they carry their numbers, so without a scale."""
    places = range(len(counts))
    bars = axes.barh(places, [n for _, n in counts], color=colour, height=0.7)
    axes.set_yticks(places, [name for name, _ in counts])
    axes.set_ylim(-0.5, max(len(counts), _LEAST_BARS) - 0.5)
    axes.bar_label(bars, labels, padding=4)
    axes.invert_yaxis()
    axes.set_xlim(0, width)
    _bare(axes)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _short(text: str) -> str:
    """Return a printable label of limited length from any text."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text)
    return plain if len(plain) <= _MOST_LABEL else f"{plain[: _MOST_LABEL - 1]}…"


def _duration(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
