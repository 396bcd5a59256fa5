"""Measures the cost of frequency caps and suppression: a dispatcher's rate with and without.

One task on one lane to as many recipients, all written before its dispatcher starts, which runs in
this process. Every push is counted and none is dropped. Runs take turns, so that whatever else the
machine does falls on all.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import uvloop

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.cpu import Spent, spent
from bench.figures import say
from pushlane.backends.backend import Backend, connect
from pushlane.core.task import Level
from pushlane.core.turns import EVERY_APP
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks.plain import NullSink
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.recipients import EVERYWHERE, kept_hasher
from pushlane.settings import Settings

_PUSHES = 100_000
_SUPPRESSED = 100_000
_ROUNDS = 5
_KINDS = ("off", "caps", "suppressed", "both")


def caps_cost(
    broker: str = "embedded", rounds: int = _ROUNDS, pushes: int = _PUSHES
) -> dict[str, Any]:
    """Pushes a second without and with caps, and the part of the first that they cost.

    Likewise with suppressions of others, with both, and the processor time of this process a push.
    """
    runs: dict[str, list[Spent]] = {kind: [] for kind in _KINDS}
    with backend_settings(broker) as settings:
        for number in range(rounds):
            for kind in _KINDS if number % 2 else reversed(_KINDS):
                runs[kind].append(uvloop.run(_drain(anew(settings), kind, pushes)))
            say(
                "  " + ", ".join(f"{kind} {pushes / runs[kind][-1].took_s:,.0f}/s" for kind in runs)
            )
    took_s = {kind: median(run.took_s for run in runs[kind]) for kind in _KINDS}
    return {
        "broker": broker,
        "pushes": pushes,
        "suppressed": _SUPPRESSED,
        "rates": {kind: round(pushes / took_s[kind]) for kind in _KINDS},
        "cpu_us": {kind: round(median(run.cpu_us for run in runs[kind]), 2) for kind in _KINDS},
        "caps_cost": round(1 - took_s["off"] / took_s["caps"], 3),
        "suppression_cost": round(1 - took_s["off"] / took_s["suppressed"], 3),
        "both_cost": round(1 - took_s["off"] / took_s["both"], 3),
    }


async def _drain(settings: Settings, kind: str, pushes: int) -> Spent:
    async with connect(settings) as backend:
        if kind in ("caps", "both"):
            every = Subject("app", EVERY_APP)
            await change_limit(
                backend.documents, every, lambda _: Limit(recipient_a_day={"all": 5})
            )
        if kind in ("suppressed", "both"):
            await _suppress(backend)
        await write_task(backend, Level.HIGH, pushes)
        return await spent(Dispatcher(backend, NullSink(), settings, drain=True), pushes)


async def _suppress(backend: Backend) -> None:
    hasher = await kept_hasher(backend.documents)
    hashes = hasher.hashes([f"other-{number}" for number in range(_SUPPRESSED)])
    await backend.suppressions.add(EVERYWHERE, hashes)
