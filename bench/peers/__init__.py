"""One workload on the systems that could do the same job, each beside the others on this machine.

50 slots of 100 ms; 5 tasks a level, the first high one five times larger, all written before the
start; a late high task of 100 after 10 s; the weights 6:3:1 reversed to 1:3:6 after 20 s. Each
system's handler, at the start of its work, writes a line to a log, and all are judged by that.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench.deliveries import tell_lost
from bench.figures import say
from bench.peers.catalogue import CATALOGUE, OURS
from bench.peers.judge import change_seen_s, judge, rates, silence_s, skipped
from bench.peers.play import play
from bench.peers.show import console, markdown, picture
from bench.peers.venv import MissingPeer
from bench.peers.workload import CHANGE_AT_S, END_AT_S, Times, backlog
from dev.receiver import Follower
from pushlane.core.errors import PushlaneError

RUNS = ((),)
_FULL_LIMIT_S = 90.0

Row = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="systems with this in their name; repeatable",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"wait up to {_FULL_LIMIT_S:g} s for each late task, and change the weights then",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs there")


def run(options: argparse.Namespace) -> dict[str, Any]:
    chosen = [
        system
        for system in CATALOGUE
        if any(text.lower() in system.lower() for text in options.only or [""])
    ]
    limit_s = _FULL_LIMIT_S if options.full else CHANGE_AT_S
    rows = [_row(system, options.keep, limit_s) for system in chosen]
    result = {
        "seconds": max(limit_s, END_AT_S),
        "rows": rows,
        "lost": sum(row.get("lost", 0) for row in rows),
    }
    if not options.json:
        console(result)
    return result


def _row(system: str, keep: Path | None, limit_s: float) -> Row:
    """The figures of one system, or why there are none."""
    say(f"{system}")
    try:
        with tempfile.TemporaryDirectory(prefix="pushlane-peers-") as folder:
            return _measure(system, Path(folder), keep, limit_s)
    except (MissingPeer, PushlaneError) as reason:
        say(f"  not measured: {reason}")
        return {"system": system, "missing": str(reason)}


def _measure(system: str, folder: Path, keep: Path | None, limit_s: float) -> Row:
    log = (keep or folder) / f"{system.replace(',', '').replace(' ', '-')}.jsonl"
    log.unlink(missing_ok=True)
    arrivals = Follower(log)
    with CATALOGUE[system](folder, log) as peer:
        times = play(peer, arrivals, folder / "said.log", limit_s)
    return {
        "system": system,
        "version": peer.version,
        **judge(arrivals.arrivals, backlog(), times),
        **(_lost(arrivals) if system.startswith(OURS) else {}),
        "weight_change": peer.change,
        **_change(arrivals, times),
        "rates": rates(arrivals.arrivals, times),
    }


def _lost(log: Follower) -> dict[str, int]:
    """Of ours alone: a run is cut short, and others put back what they had fetched ahead."""
    lost = skipped(log.arrivals)
    tell_lost(lost)
    return {"lost": len(lost)}


def _change(log: Follower, times: Times) -> dict[str, float | None]:
    if times.changed_at is None:
        return {"change_seen_s": None, "silence_s": None}
    return {
        "change_seen_s": change_seen_s(log.arrivals, times.changed_at),
        "silence_s": silence_s(log.arrivals, times.changed_at),
    }


def table(result: dict[str, Any]) -> str:
    return markdown(result)


def plot(result: dict[str, Any], path: Path) -> None:
    picture(result, path)
