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
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.backends import backend_settings
from bench.faults.catalogue import FAULTS, Fault
from bench.faults.feed import Mode
from bench.faults.row import measure
from bench.faults.verdict import Row
from lanes.errors import BadInput

_BROKERS = {"embedded": ("embedded",), "pulsar": ("pulsar",), "both": ("embedded", "pulsar")}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=tuple(_BROKERS), default="both")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="faults a row (default: each its own)"
    )
    parser.add_argument("--only", action="append", metavar="FAULT", help="this fault; repeatable")
    parser.add_argument("--mode", action="append", metavar="MODE", help="this mode; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs of each row there")


def run(options: argparse.Namespace) -> dict[str, Any]:
    _require_known("fault", options.only, [fault.name for fault in FAULTS])
    rows = []
    for broker in _BROKERS[options.broker]:
        rows += _rows_of(broker, options)
    if not options.json:
        Console(width=140).print(_table(rows))
    failures = [f"{_title(row)}: {breach}" for row in rows for breach in row.breaches]
    return {"rows": [_fields(row) for row in rows], "failures": failures}


def _rows_of(broker: str, options: argparse.Namespace) -> Iterator[Row]:
    chosen = [(fault, mode) for fault in FAULTS for mode in fault.modes if broker in fault.brokers]
    for fault, mode in chosen:
        if (options.only and fault.name not in options.only) or (
            options.mode and mode.name not in options.mode
        ):
            continue
        row = _row(fault, mode, broker, options)
        print(_line(row), file=sys.stderr)
        yield row


def _row(fault: Fault, mode: Mode, broker: str, options: argparse.Namespace) -> Row:
    keep = options.keep and options.keep / f"{fault.name}-{mode.name}-{broker}"
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    with backend_settings(broker, pool_lanes=1) as settings:
        runs = options.runs or fault.runs
        return asyncio.run(measure(fault, mode, broker, runs, settings, keep))


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
        f"repeated {row.duplicates} (bound {row.bound.duplicates}), "
        f"on again in {row.recovery_s:.2f} s, {row.rate_per_s:,.0f}/s: {verdict}"
    )


def _fields(row: Row) -> dict[str, Any]:
    recovered = None if row.recovery_s == float("inf") else round(row.recovery_s, 3)
    return {
        **row._asdict(),
        "bound": row.bound.duplicates,
        "lost_bound": row.bound.lost,
        "recovery_s": recovered,
        "rate_per_s": round(row.rate_per_s, 1),
    }


def _table(rows: list[Row]) -> Table:
    table = Table("fault", "mode", "broker", title="Faults in a running stream")
    for heading in ("runs", "pushes", "lost", "repeated", "bound", "worst recovery, s", "pushes/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.fault,
            row.mode,
            row.broker,
            *(f"{n:,}" for n in (row.runs, row.pushes, row.lost, row.duplicates)),
            f"{row.bound.duplicates:,}",
            f"{row.recovery_s:.2f}",
            f"{row.rate_per_s:,.0f}",
        )
    return table
