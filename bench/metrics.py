"""What metrics that are scraped cost a dispatcher: its rate beside its rate without a server.

20 tasks on 20 lanes, all written before their dispatcher starts, which runs in this process with a
sink that does nothing; another process scrapes it every second. Runs take turns, so that whatever
else the machine does falls on both. Counting goes on in both: it cannot be turned off.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import uvloop

from bench.backends import anew, backend_settings
from bench.backlog import write_tasks
from bench.cpu import Spent, spent
from bench.figures import Figure, at_most, say
from dev.stack.services import free_port
from pushlane.backends.backend import connect
from pushlane.cli.health import HealthFlags
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks.plain import NullSink
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_LANES = 20
_SCRAPE_EVERY_S = 1.0
_KINDS = ("without", "scraped")
_SCRAPER = """
import contextlib, sys, time, urllib.request
url, every_s = sys.argv[1], float(sys.argv[2])
scraped = 0
for _ in sys.stdin:
    break
deadline_s = time.monotonic() + 600
while time.monotonic() < deadline_s:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as reply:
        scraped += b"pushlane_picked_total" in reply.read()
        print(scraped, flush=True)
    time.sleep(every_s)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of both (default 9)")
    parser.add_argument(
        "--pushes", type=int, default=40_000, help="pushes a task, of 20 (default 40000)"
    )


class _Run(NamedTuple):
    spent: Spent
    scrapes: int


def run(options: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, list[_Run]] = {kind: [] for kind in _KINDS}
    pushes = _LANES * options.pushes
    with backend_settings(options.broker) as settings:
        for number in range(options.rounds):
            for kind in _KINDS if number % 2 else reversed(_KINDS):
                runs[kind].append(_run(anew(settings), kind, options.pushes))
            say(
                "  "
                + ", ".join(
                    f"{kind} {pushes / runs[kind][-1].spent.took_s:,.0f}/s" for kind in runs
                )
            )
    took_s = {kind: median(one.spent.took_s for one in runs[kind]) for kind in _KINDS}
    cpu_us = {kind: median(one.spent.cpu_us for one in runs[kind]) for kind in _KINDS}
    pairs = zip(*runs.values(), strict=True)
    costs = sorted(1 - a.spent.took_s / b.spent.took_s for a, b in pairs)
    return {
        "broker": options.broker,
        "pushes": pushes,
        "rates": {kind: round(pushes / took_s[kind]) for kind in _KINDS},
        "cpu_us": {kind: round(cpu_us[kind], 2) for kind in _KINDS},
        "scrapes": sum(one.scrapes for one in runs["scraped"]),
        "metrics_cost": round(median(costs), 3),
        "metrics_costs": [round(cost, 3) for cost in costs],
        "cpu_cost": round(cpu_us["scraped"] / cpu_us["without"] - 1, 3),
    }


def _run(settings: Settings, kind: str, pushes: int) -> _Run:
    if kind == "without":
        return _Run(uvloop.run(_drain(settings, HealthFlags(), pushes, None)), 0)
    flags = HealthFlags(metrics_port=free_port())
    with _scraper(f"http://127.0.0.1:{flags.metrics_port}/metrics") as scraper:
        found = uvloop.run(_drain(settings, flags, pushes, scraper))
        scraper.terminate()
        said, _ = scraper.communicate()
    return _Run(found, len(said.splitlines()))


@contextmanager
def _scraper(url: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that scrapes the URL again and again once it is told a line."""
    command = [sys.executable, "-c", _SCRAPER, url, str(_SCRAPE_EVERY_S)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _drain(
    settings: Settings, flags: HealthFlags, pushes: int, scraper: subprocess.Popen[str] | None
) -> Spent:
    async with connect(settings) as backend:
        await write_tasks(backend, _LANES, pushes)
        if scraper is not None and scraper.stdin is not None:
            scraper.stdin.write("go\n")
            scraper.stdin.flush()
        with flags.serving() as health:
            dispatcher = Dispatcher(
                backend, NullSink(), settings, drain=True, registry=health.registry
            )
            return await spent(dispatcher, _LANES * pushes)


def figures(result: dict[str, Any]) -> list[Figure]:
    rates, cpu_us = result["rates"], result["cpu_us"]
    return [
        Figure("pushes a second, no server", f"{rates['without']:,}"),
        Figure("pushes a second, scraped every second", f"{rates['scraped']:,}"),
        at_most("part of the rate that it costs (median of rounds)", result["metrics_cost"], 0.02),
        Figure("CPU a push", f"{cpu_us['without']:g} → {cpu_us['scraped']:g} us"),
        Figure("scrapes", f"{result['scrapes']:,}"),
    ]
