"""Measures how fast pushes reach FCM, APNs and Web Push, beside bare loops of HTTP/2 clients.

A dispatcher drains a backlog into one sink; each bare loop of bench/provider_kinds.py posts as many
bodies of that size on as many connections, with the same headers, and for Web Push encrypts each by
itself. All go to the same fast provider in turns, which answers at once, to FCM and APNs also with
TLS. Rates are of the middle of its log; so is the CPU time a push, of the process that sends and of
the provider. Where the provider took more than 45 % of a core the round is told: it may have
limited who sent. Then one that answers after 50 ms, over 5 connections: how much of the slots'
capacity is used.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.beside import (
    BARE,
    OURS,
    Measured,
    busy,
    busy_figures,
    receiver_figures,
    require_enough,
    summary,
    with_cpu,
)
from bench.certificates import Certificates, make_certificates, trusting
from bench.cpu import CpuMeter, Middle, middle, run_metered
from bench.deliveries import account, tell_lost
from bench.dispatching import drain_metered
from bench.fast_provider import fast_provider
from bench.figures import Figure, at_least, exactly, say
from bench.provider_kinds import CLIENTS, KINDS, STREAMS, push_to, sink_settings, write_keys
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings

RUNS = (("--broker", "embedded"),)
_FAST_ENOUGH = 10_000
_SLOTS = 100
_SLOW_S = 0.05
_SLOW_SLOTS = 50
_SLOW_STREAMS = 10
_SLOW_PUSHES = 20_000
_TASKS = 4
_WITH_TLS = ("fcm", "apns")


class _Case(NamedTuple):
    """A kind of provider, with TLS where there are certificates."""

    kind: str
    certificates: Certificates | None = None

    @property
    def prefix(self) -> str:
        return f"{self.kind}_tls_" if self.certificates else f"{self.kind}_"

    @property
    def title(self) -> str:
        return _title(self.kind, with_tls=self.certificates is not None)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--rounds", type=int, default=3, help="a kind of provider (default 3)")
    parser.add_argument("--pushes", type=int, default=60_000, help="a round (default 60000)")
    parser.add_argument(
        "--http2",
        choices=("", "ngh2"),
        default="",
        help="what speaks HTTP/2 to FCM and APNs (default pyreqwest)",
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    require_enough(options.rounds, options.pushes)
    with (
        backend_settings(options.broker, slots=_SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-providers-") as folder,
    ):
        place = Path(folder)
        write_keys(place)
        certificates = make_certificates(place)
        result: dict[str, Any] = {"broker": options.broker, "bare_client": BARE}
        result |= {"http2": options.http2 or "pyreqwest"}
        result |= {"receiver_busy": {}, "lost": 0, "duplicates": 0}
        for case in (*map(_Case, KINDS), *(_Case(kind, certificates) for kind in _WITH_TLS)):
            runs: dict[str, list[Measured]] = defaultdict(list)
            for _ in range(options.rounds):
                for name in (OURS, *CLIENTS):
                    runs[name].append(_run(settings, place, case, name, options))
                    say(f"{case.title}, {name}: {runs[name][-1]}")
            result |= summary(runs, case.prefix, "bare_rate")
            result["receiver_busy"] |= busy(runs, f", {case.title}")
        say("FCM, which answers after 50 ms")
        slow, log = settings.but(slots=_SLOW_SLOTS), _fresh(place / "slow.jsonl")
        with fast_provider(log, _free_port(), _SLOW_S) as provider:
            case = _Case("fcm")
            kind = sink_settings(case.kind, place, provider.url, _SLOW_STREAMS, options.http2)
            _drained(slow, case, kind, _SLOW_PUSHES, provider.url, log)
        rate = _middle(log).rate
        result["utilisation"] = round(rate * _SLOW_S / _SLOW_SLOTS, 4)
    return result


def _run(
    settings: Settings, place: Path, case: _Case, name: str, options: argparse.Namespace
) -> Measured:
    """Send so many pushes to a provider: ours, or a bare client of this name."""
    log = _fresh(place / "arrivals.jsonl")
    with (
        fast_provider(log, _free_port(), certificates=case.certificates) as provider,
        CpuMeter(provider.pid) as receiver,
    ):
        if name == OURS:
            kind = sink_settings(case.kind, place, provider.url, STREAMS, options.http2)
            sender = _drained(settings, case, kind, options.pushes, provider.url, log)
        else:
            command = [sys.executable, "-m", "bench.provider_kinds", name, case.kind, provider.url]
            command += [str(options.pushes), str(_SLOTS)]
            sender = run_metered(command, trusting(case.certificates))
    return Measured.of(_middle(log), sender, receiver)


def _drained(
    settings: Settings, case: _Case, kind: SinkSettings, pushes: int, url: str, log: Path
) -> CpuMeter:
    """Dispatch so many pushes to a provider of this kind. Raises PushlaneError if one was lost."""
    own = anew(settings).but(sinks={case.kind: kind})
    totals = asyncio.run(_write(own, case.kind, url, pushes))
    meter = drain_metered(own, "null", case.certificates)
    lost, duplicates = account(_arrivals(log), totals)
    tell_lost(lost)
    if lost or duplicates:
        raise PushlaneError(f"{len(lost)} pushes were lost, {duplicates} came twice")
    return meter


async def _write(settings: Settings, kind: str, url: str, pushes: int) -> dict[str, int]:
    """Some tasks of the same level, with so many pushes together."""
    make = push_to(kind, url)
    async with connect(settings) as backend:
        each = pushes // _TASKS
        tasks = [
            await write_task(backend, Level.HIGH, each, sinks=(kind,), make=make)
            for _ in range(_TASKS)
        ]
    return dict.fromkeys(tasks, each)


def _arrivals(log: Path) -> list[ArrivalLine]:
    follower = Follower(log)
    follower.read()
    return sorted(follower.arrivals, key=lambda one: one.at_s)


def _middle(log: Path) -> Middle:
    return middle(_arrivals(log))


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *(line for kind in KINDS for line in _of_kind(result, kind)),
        *(line for kind in _WITH_TLS for line in _of_kind(result, kind, with_tls=True)),
        *busy_figures(result),
        at_least("slots used, answers after 50 ms", result["utilisation"], 0.98),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def _of_kind(result: dict[str, Any], kind: str, *, with_tls: bool = False) -> list[Figure]:
    way = f"{kind}_tls_" if with_tls else f"{kind}_"
    rate, title = f"{way}rate", _title(kind, with_tls=with_tls)
    if rate not in result:
        return []
    goal = "" if with_tls else f"≥ {_FAST_ENOUGH:,}/s, or 0.6"
    met = result[rate] >= _FAST_ENOUGH or result[f"{way}ratio"] >= 0.6
    shown = with_cpu(result, rate, f"{way}cpu_us")
    lines = [Figure(f"{title}, one process", shown, goal, met if goal else None)]
    for name in CLIENTS:
        named = way if name == BARE else f"{way}{name}_"
        bare, ratio = f"{named}bare_rate", f"{named}ratio"
        if ratio in result:
            shown = with_cpu(result, bare, f"{named}bare_cpu_us")
            lines += [
                Figure(f"{title}, bare {name} loop", shown),
                Figure(f"{title}, of the rate of the bare {name} loop", f"{result[ratio]:g}"),
            ]
    return [*lines, *receiver_figures(result, way, title)]


def _title(kind: str, *, with_tls: bool) -> str:
    return f"{KINDS[kind]} with TLS" if with_tls else KINDS[kind]
