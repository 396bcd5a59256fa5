"""What the parts of waits cost the receipts job: in time and bytes, beside receipts without them.

The same receipts are read into the store with and without the parts of their waits, in alternating
pairs, by one JVM, which a first pair has warmed up. The median of the pairs counts.
"""

from __future__ import annotations

import argparse
import os
from statistics import median
from typing import Any

from bench import receipts_stream
from bench.figures import Figure, say

RUNS: tuple[tuple[str, ...], ...] = ((),)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--receipts", type=int, default=1_000_000, help="read in each run")
    parser.add_argument("--pairs", type=int, default=5, help="of which the median counts (5)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    pairs: list[dict[bool, dict[str, Any]]] = []
    for number in range(options.pairs + 1):  # the first warms up
        pair = {
            has_waits: receipts_stream.measure(options.receipts, 300, has_waits=has_waits)
            for has_waits in ((False, True) if number % 2 else (True, False))
        }
        say(f"pair {number}: {pair[False]['receipts_per_s']:,}/s without, with {_kept(pair):.2f}")
        pairs += [pair] if number else []
    kept = [_kept(pair) for pair in pairs]
    told, untold = pairs[-1][True], pairs[-1][False]
    return {
        "receipts": options.receipts,
        "pairs": options.pairs,
        "load": round(os.getloadavg()[1], 1),
        "rate_kept": round(median(kept), 3),
        "rate_kept_spread": [round(min(kept), 3), round(max(kept), 3)],
        "per_s": round(median(pair[True]["receipts_per_s"] for pair in pairs)),
        "log_bytes": round((told["log_bytes"] - untold["log_bytes"]) / told["receipts"], 1),
        **{
            name: round((told[name] - untold[name]) / options.receipts, 2)
            for name in ("detail_bytes", "latency_bytes")
        },
        "detail_bytes_without": round(untold["detail_bytes"] / options.receipts, 2),
        "latency_rows": round(told["latency_rows"] / untold["latency_rows"], 2),
    }


def _kept(pair: dict[bool, dict[str, Any]]) -> float:
    """The rate with the parts of waits, of that without."""
    return float(pair[True]["receipts_per_s"] / pair[False]["receipts_per_s"])


def figures(result: dict[str, Any]) -> list[Figure]:
    low, high = result["rate_kept_spread"]
    return [
        Figure("rate of the receipts job with waits, of that without", f"{result['rate_kept']:g}"),
        Figure("its spread over the pairs", f"{low:g} to {high:g}"),
        Figure("receipts a second with waits", f"{result['per_s']:,}"),
        Figure("bytes more a receipt in the log, before compression", f"{result['log_bytes']:g}"),
        Figure(
            "bytes more a receipt in `detail`, of so many without",
            f"{result['detail_bytes']:g} of {result['detail_bytes_without']:g}",
        ),
        Figure("bytes more a receipt in `latency`", f"{result['latency_bytes']:g}"),
        Figure("rows of `latency`, of those without", f"{result['latency_rows']:g}"),
        Figure("load of the machine meanwhile", f"{result['load']:g}"),
    ]
