"""The rate of a dispatcher with fifty consoles open beside its rate with none, in pairs.

Runs with and without take turns, each on a store of its own that a `serve` is at, so that whatever
else the machine does falls on both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from statistics import median

from bench.backends import anew
from bench.backlog import write_tasks
from bench.drained import Drained, drained
from bench.figures import say
from bench.serving import Serving, serving
from pushlane.backends.backend import connect
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller
from pushlane.settings import Settings

_LANES = 20

Watching = Callable[[Serving, str], AbstractContextManager[None]]


def rates_in_pairs(
    settings: Settings, watching: Watching, pairs: int, pushes: int
) -> dict[str, float]:
    """Return what is kept of the rate, and what a push costs more, while somebody is `watching`.

    `watching` opens pages at a server for who has a token. Each run has so many `pushes`.
    """
    runs: dict[bool, list[Drained]] = {False: [], True: []}
    for number in range(pairs):
        for is_watched in (False, True) if number % 2 else (True, False):
            own = anew(settings)
            totals, token = asyncio.run(_written(own, pushes // _LANES))
            with serving(own, token) as serve, ExitStack() as stack:
                if is_watched:
                    stack.enter_context(watching(serve, token))
                runs[is_watched].append(drained(own, totals))
        say("  " + ", ".join(f"{runs[kind][-1].rate:,.0f}/s" for kind in (False, True)))
    both = [*zip(runs[True], runs[False], strict=True)]
    return {
        "rate_alone": round(median(one.rate for one in runs[False])),
        "rate_watched": round(median(one.rate for one in runs[True])),
        "rate_kept": round(median(with_.rate / alone.rate for with_, alone in both), 3),
        "push_cpu": round(median(with_.cpu_us / alone.cpu_us for with_, alone in both), 3),
    }


async def _written(settings: Settings, pushes: int) -> tuple[dict[str, int], str]:
    async with connect(settings) as backend:
        totals = await write_tasks(backend, _LANES, pushes)
        wanted = CreateToken.made(name="bench", grants="admin")
        token = (await do(backend, settings, Caller("bench", "cli"), wanted)).token
        return totals, token
