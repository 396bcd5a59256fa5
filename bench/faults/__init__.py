"""What is lost, repeated and how long it takes to go on, fault after fault in a running stream.

Each row is one stream of pushes with one fault in a loop. The receiving end, a process that is
never killed, syncs each arrival to its log before it answers; that log alone says what was
delivered. Fails when a row breaks what is promised of it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.faults.catalogue import FAULTS, MODES, Fault
from bench.faults.feed import Mode
from bench.faults.row import measure
from bench.faults.verdict import Row
from bench.faults.world import (
    CLUSTER,
    EMBEDDED,
    PULSAR,
    SMALL_DISK,
    SYNCED,
    Skipped,
    worlds,
)
from pushlane.core.errors import BadInput

_WIDTH = 160
_BROKERS = {
    "embedded": EMBEDDED + SMALL_DISK,
    "pulsar": PULSAR + SYNCED,
    "cluster": CLUSTER,
    "both": EMBEDDED + SMALL_DISK + PULSAR + SYNCED + CLUSTER,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=tuple(_BROKERS), default="both")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="faults a row (default: each its own)"
    )
    parser.add_argument("--only", action="append", metavar="FAULT", help="this fault; repeatable")
    parser.add_argument("--mode", action="append", metavar="MODE", help="this mode; repeatable")
    parser.add_argument(
        "--outage-s", type=float, metavar="S", help="how long a sink is down (default: 120)"
    )
    parser.add_argument(
        "--client", choices=("loop", "pyreqwest"), help="what posts, with a key that signs"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs of each row there")


def run(options: argparse.Namespace) -> dict[str, Any]:
    _require_known("fault", options.only, [fault.name for fault in FAULTS])
    _require_known("mode", options.mode, [mode.name for mode in MODES])
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    for place in _BROKERS[options.broker]:
        try:
            rows += _rows_in(place, options)
        except Skipped as reason:
            skipped[place] = str(reason)
    if not options.json:
        Console(width=_WIDTH).print(_table(rows))
    failures = [f"{_title(row)}: {breach}" for row in rows for breach in row.breaches]
    return {"rows": [_fields(row) for row in rows], "failures": failures, "skipped": skipped}


def _rows_in(place: str, options: argparse.Namespace) -> Iterator[Row]:
    chosen = [
        (_under(fault, options), mode)
        for fault in FAULTS
        for mode in fault.modes
        if place in fault.places
        and fault.name in (options.only or [fault.name])
        and mode.name in (options.mode or [mode.name])
    ]
    if not chosen:
        return
    with worlds(place) as new_world:
        for fault, mode in chosen:
            with new_world() as world:
                runs = options.runs or fault.runs
                rows = asyncio.run(measure(fault, mode, runs, world, _kept(options, fault, mode)))
            for row in rows:
                print(_line(row), file=sys.stderr)
            yield from rows


def _under(fault: Fault, options: argparse.Namespace) -> Fault:
    """The fault, under the load that the options ask for."""
    load = fault.load
    if options.outage_s is not None:
        load = replace(load, outage_s=options.outage_s)
    if options.client is not None and not load.sink:
        load = replace(load, client=options.client)
    return replace(fault, load=load)


def _kept(options: argparse.Namespace, fault: Fault, mode: Mode) -> Path | None:
    if options.keep is None:
        return None
    folder: Path = options.keep / f"{fault.name}-{mode.name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _require_known(what: str, given: list[str] | None, known: list[str]) -> None:
    for name in given or ():
        if name not in known:
            raise BadInput(
                f"there is no {what} {name!r}; there are {', '.join(dict.fromkeys(known))}"
            )


def _title(row: Row) -> str:
    return f"{row.fault}, {row.mode}, {row.broker}"


def _line(row: Row) -> str:
    verdict = "; ".join(row.breaches) or "kept"
    return (
        f"{_title(row)}: {row.runs} faults, {row.pushes:,} pushes, lost {row.lost}, "
        f"repeated {row.duplicates} (bound {row.bound.duplicates}{_oldest(row)}), "
        f"on again in {row.recovery_s:.2f} s, {row.rate_per_s:,.0f}/s: {verdict}"
    )


def _oldest(row: Row) -> str:
    return f", answered up to {row.oldest_s * 1000:.0f} ms before" if row.oldest_s else ""


def _fields(row: Row) -> dict[str, Any]:
    return {
        **row._asdict(),
        "bound": row.bound.duplicates,
        "lost_bound": row.bound.lost,
        "recovery_s": _seconds(row.recovery_s),
        "within_s": _seconds(row.within_s),
        "oldest_s": _seconds(row.oldest_s),
        "rate_per_s": round(row.rate_per_s, 1),
    }


def _seconds(value: float) -> float | None:
    return None if value == float("inf") else round(value, 3)


def _table(rows: list[Row]) -> Table:
    """In Markdown, as docs/faults.md shows it."""
    table = Table("fault", "mode", "on", box=box.MARKDOWN)
    for heading in ("runs", "pushes", "lost", "≤", "repeated", "≤", "on again, s", "pushes/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        counts = (row.runs, row.pushes, row.lost, row.bound.lost, row.duplicates)
        table.add_row(
            row.fault,
            row.mode,
            row.broker,
            *(f"{count:,}" for count in (*counts, row.bound.duplicates)),
            f"{row.recovery_s:.2f}",
            f"{row.rate_per_s:,.0f}",
        )
    return table
