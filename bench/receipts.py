"""Receipts: how fast they are read in, how fast reports answer, what they cost the dispatcher.

Reports are asked of a store of a day's receipts, written for it; each question is asked as the
command does, with a connection of its own, and the median of a few askings counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import receipts_cost, receipts_stream
from bench.figures import Figure, at_least, at_most, say
from bench.receipts_store import HOUR_MS, HOURS, write_store

RUNS: tuple[tuple[str, ...], ...] = ((),)
_BROKERS = ("embedded", "pulsar")
_ASKINGS = 3
_GOAL_S = 1.0
_GOAL_COST = 0.1
_SINCE_MS = 1_790_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS


class Question(NamedTuple):
    by: str
    where: str = ""
    is_rows: bool = False
    is_report: bool = False
    with_recipients: bool = False
    with_latency: bool = False


QUESTIONS = {
    "by level and outcome": Question("level,outcome"),
    "by task, hour and reason": Question("task,hour,reason"),
    "by minute": Question("minute,level"),
    "by an attribute": Question("attribute:app_version,level"),
    "by two attributes": Question("attribute:app_version,attribute:region"),
    "by attribute and reason of death": Question("attribute:region,reason", "outcome=dead"),
    "quantiles by task and level": Question("task,level", with_latency=True),
    "quantiles by attribute": Question(
        "attribute:app_version", "task=spring now", with_latency=True
    ),
    "recipients by task": Question("task", with_recipients=True),
    "the last rows of a reason": Question("", "reason=HTTP 410", is_rows=True),
    "rows of a task and an attribute": Question(
        "", "task=weather now,attribute:region=apac,outcome=dead", is_rows=True
    ),
    "all figures of a report": Question("task,level", is_report=True),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--receipts", type=int, default=10_000_000, help="in the store of reports")
    parser.add_argument("--streamed", type=int, default=4_000_000, help="read from a log")
    parser.add_argument("--only-queries", action="store_true", help="leave out rate and cost")
    parser.add_argument("--store", type=Path, help="keep the store here, or use what is there")
    parser.add_argument(
        "--brokers", nargs="+", choices=_BROKERS, default=_BROKERS, help="to measure the cost on"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    result = _queries(options)
    if options.only_queries:
        return result
    streamed = receipts_stream.measure(options.streamed)
    streamed["streamed"] = streamed.pop("receipts")
    return {**streamed, **result, **_costs(options.brokers)}


def _costs(brokers: Sequence[str]) -> dict[str, Any]:
    """What receipts take off the dispatcher's rate; the worst of all counts."""
    measured = [
        receipts_cost.measure(broker, sink) for broker in brokers for sink in ("null", "webhook")
    ]
    runs = {f"{each['broker']}, {each['sink']}": each for each in measured}
    costs = {name: each["cost"] for name, each in runs.items()}
    return {
        "dispatcher_cost": max(costs.values()),
        "costs": costs,
        "dispatcher_rates": {name: each["rate_on"] for name, each in runs.items()},
    }


def _queries(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pushlane-receipts-") as folder:
        root = options.store or Path(folder)
        if not (root / "CURRENT").exists():
            write_store(root, options.receipts, _SINCE_MS)
        took_s = {name: _took_s(root, name, question) for name, question in QUESTIONS.items()}
    return {
        "receipts": options.receipts,
        "query_s": max(took_s.values()),
        "queries_s": took_s,
    }


def _took_s(root: Path, name: str, question: Question) -> float:
    ask = _asking(root, question)
    times = []
    for _ in range(_ASKINGS):
        started = time.monotonic()
        ask()
        times.append(time.monotonic() - started)
    say(f"{name}: {median(times):.3f} s")
    return round(median(times), 3)


def _asking(root: Path, question: Question) -> Callable[[], object]:
    from pushlane.pipeline.reports.answers import AnswerOptions
    from pushlane.pipeline.reports.query import Period, Query, parse_by, parse_where
    from pushlane.pipeline.reports.query_runner import counts_of, report_of, rows_of

    period = Period(_SINCE_MS, _SINCE_MS + (HOURS + 2) * HOUR_MS)
    query = Query(period, parse_by(question.by), parse_where([question.where]))
    wish = AnswerOptions(1_000, question.with_recipients, question.with_latency)
    if question.is_rows:
        return lambda: rows_of(root, query, 100)
    if question.is_report:
        return lambda: report_of(root, query, wish)
    return lambda: counts_of(root, query, wish)


def figures(result: dict[str, Any]) -> list[Figure]:
    queries = [
        at_most(f"report {name}, s", took_s, _GOAL_S)
        for name, took_s in result["queries_s"].items()
    ]
    costs = [
        at_most(f"off the dispatcher's rate: {name}", cost, _GOAL_COST)
        for name, cost in result.get("costs", {}).items()
    ]
    return [*_rate(result), *queries, *costs]


def _rate(result: dict[str, Any]) -> list[Figure]:
    """One job has to keep up with one dispatcher, as fast as that can be."""
    if "receipts_per_s" not in result:
        return []
    fastest = max(result["dispatcher_rates"].values())
    return [
        at_least("receipts/s read into the store", result["receipts_per_s"], fastest, "{:,.0f}")
    ]
