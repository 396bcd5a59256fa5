"""Guards: whatever may keep a push from its delivery once it has a slot.

They stand in one list. Each is asked about a batch before the sink is, and told afterwards what
became of it, the last one first. A push that no guard applies to waits for none. Order is kept
before a push takes a slot, since one that has to wait must not cost its task a turn
(`dispatcher.guards.key_order`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pushlane.dispatcher.job import Job
from pushlane.lanes.push import Outcome


class Guard(Protocol):
    """Keeps some pushes back; what it remembers of those it let go is its own."""

    def applies(self, job: Job) -> bool:
        """Tell whether it has a say about this push, and never block."""

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        """Return those that may go now, in their order, and take care of the others."""

    async def conclude(
        self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]
    ) -> list[Outcome | None]:
        """Learn what became of pushes that were admitted, None for those that were not sent.

        Returns what is to be settled instead, which is mostly the same.
        """

    async def run(self) -> None:
        """Answer who asks, until cancelled."""


class Guards:
    """The guards of a dispatcher, in the order in which they are asked."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = tuple(guards)

    def of(self, job: Job) -> tuple[Guard, ...]:
        """Return those that apply to a push: pushes of one batch must have the same."""
        applying: tuple[Guard, ...] = ()
        for guard in self._guards:
            if guard.applies(job):
                applying += (guard,)
        return applying

    async def run(self) -> None:
        await asyncio.gather(*(guard.run() for guard in self._guards))


async def admitted(guards: Sequence[Guard], jobs: Sequence[Job]) -> list[Job]:
    """Return those that all of the guards let go; the others are taken care of."""
    going = list(jobs)
    for number, guard in enumerate(guards):
        asked, going = going, await guard.admit(going)
        if len(going) < len(asked):
            let_go = set(map(id, going))
            back = [job for job in asked if id(job) not in let_go]
            await concluded(guards[:number], back, [None] * len(back))
        if not going:
            break
    return going


async def concluded(
    guards: Sequence[Guard], jobs: Sequence[Job], outcomes: Sequence[Outcome | None]
) -> list[Outcome | None]:
    """Tell each guard what became of these pushes, and return what is to be settled."""
    final = list(outcomes)
    for guard in reversed(guards):
        final = await guard.conclude(jobs, final)
    return final
