"""The rows as a table in the terminal and in the docs, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.peers.catalogue import OURS
from bench.peers.workload import BIN_S, CHANGE_AT_S, END_AT_S, LATE_AT_S, NEW_WEIGHTS
from pushlane.core.task import Level

Row = dict[str, Any]

_WIDTH = 170
_HEADS = (
    "system",
    "late: first push, s",
    "complete, s",
    "shares, %",
    "share error",
    "longest gaps",
    "Jain's index",
    "utilisation",
    "other weights need",
)
_COMPARED = ("late_first_push_s", "late_completion_s", "share_error_max")
_DUE_GAPS = {Level.HIGH: 2, Level.MEDIUM: 4, Level.LOW: 10}
_COLOURS = {"high": "#c0392b", "medium": "#2471a3", "low": "#7f8c8d", "late": "#111111"}


def console(result: dict[str, Any]) -> None:
    table = Table(*_HEADS, box=box.SIMPLE)
    for row in result["rows"]:
        table.add_row(*_cells(row, result["seconds"]))
    console = Console(width=_WIDTH)
    console.print(table)
    for line in behind(result["rows"]):
        console.print(line)


def markdown(result: dict[str, Any]) -> str:
    lines = [_HEADS, ("---",) * len(_HEADS)]
    lines += [tuple(_cells(row, result["seconds"])) for row in result["rows"]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def behind(rows: list[Row]) -> list[str]:
    """Where a rival's figure is better than that of one of ours."""
    measured = [row for row in rows if "missing" not in row]
    ours = [row for row in measured if row["system"].startswith(OURS)]
    rivals = [row for row in measured if not row["system"].startswith(OURS)]
    return [
        f"{mine['system']} is behind {rival['system']} in {name}: {at} against {its}"
        for mine in ours
        for rival in rivals
        for (name, at, lower), (_, its, _) in zip(_compared(mine), _compared(rival), strict=True)
        if its is not None and (at is None or (its < at if lower else its > at))
    ]


def _compared(row: Row) -> list[tuple[str, float | None, bool]]:
    """What is compared: name, figure, and whether lower is better."""
    gaps = max(row["gap_max"][level.value] / due for level, due in _DUE_GAPS.items())
    return [
        *((name, row[name], True) for name in _COMPARED),
        ("gaps, times those due", round(gaps, 2), True),
        ("jain", row["jain"], False),
        ("utilisation", row["utilisation"], False),
    ]


def _cells(row: Row, seconds: float) -> list[str]:
    if "missing" in row:
        return [row["system"], f"not measured: {row['missing']}", *[""] * (len(_HEADS) - 2)]
    never = f"none in {seconds - LATE_AT_S:g}"
    return [
        f"{row['system']} {row['version']}",
        _or(row["late_first_push_s"], never),
        _or(row["late_completion_s"], never),
        _each({level: f"{100 * share:.0f}" for level, share in row["share"].items()}),
        f"{row['share_error_max']:.1f}",
        _each(row["gap_max"]),
        _each({level: f"{index:.2f}" for level, index in row["jain_by_level"].items()}),
        f"{row['utilisation']:.3f}",
        _change(row),
    ]


def _or(seconds: float | None, never: str) -> str:
    return never if seconds is None else f"{seconds:.3g}"


def _each(by_level: dict[str, Any]) -> str:
    return " / ".join(str(by_level[level.value]) for level in Level)


def _change(row: Row) -> str:
    if row["silence_s"] is None:
        return str(row["weight_change"])
    seen = row["change_seen_s"]
    shows = "does not show" if seen is None else f"shows after {seen:.2f} s"
    return f"{row['weight_change']}; {shows}, longest silence {row['silence_s']:.2f} s"


def picture(result: dict[str, Any], path: Path) -> None:
    """Who got the sink when, a strip a system."""
    from matplotlib.figure import Figure

    rows = [row for row in result["rows"] if "missing" not in row]
    figure = Figure(figsize=(9, 1.0 + 1.35 * len(rows)), layout="constrained")
    all_axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for axes, row in zip(all_axes, rows, strict=True):
        _strip(axes, row)
    all_axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.15), ncols=4, frameon=False)
    all_axes[-1].set(xlabel="seconds since the first push", xlim=(BIN_S / 2, END_AT_S - BIN_S / 2))
    figure.supylabel("pushes a second, stacked")
    figure.savefig(path, dpi=120)


def _strip(axes: Any, row: Row) -> None:
    times = [(place + 0.5) * BIN_S for place in range(len(row["rates"]["high"]))]
    stacked = {name: row["rates"][name] for name in ("late", "high", "medium", "low")}
    axes.stackplot(
        times,
        *stacked.values(),
        labels=[f"{name} task" if name == "late" else name for name in stacked],
        colors=[_COLOURS[name] for name in stacked],
    )
    axes.set_ylim(0, 560)
    axes.set_title(f"{row['system']} {row['version']}", fontsize="small", loc="left")
    for at, what in ((LATE_AT_S, "late task"), (CHANGE_AT_S, f"weights {NEW_WEIGHTS}")):
        axes.axvline(at, color="black", linewidth=0.8, linestyle=":")
        axes.text(at, 565, what, fontsize="x-small", ha="center", va="bottom")
