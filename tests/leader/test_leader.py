"""Who leads keeps its lease while it works, however long that takes."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.backends.leases import Leader
from pushlane.backends.ports import Grant
from pushlane.core.errors import Unreachable
from pushlane.core.task import now_ms


class Lease:
    """Counts how often it was asked for; away at the second time."""

    def __init__(self) -> None:
        self.asked = 0
        self.changed = asyncio.Condition()

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant:
        self.asked += 1
        async with self.changed:
            self.changed.notify_all()
        if self.asked == 2:
            raise Unreachable("away")
        return Grant(7, now_ms())

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.asked >= times)


async def test_the_lease_is_renewed_while_it_works_and_not_after() -> None:
    lease = Lease()
    leader = Leader(lease, "janitor", "one", ttl_s=0.003)  # type: ignore[arg-type]

    async with leader.leading():
        await lease.until_asked(4)
    asked = lease.asked
    for _ in range(50):
        await asyncio.sleep(0)

    assert lease.asked == asked


async def test_what_the_work_raises_is_passed_on() -> None:
    leader = Leader(Lease(), "janitor", "one")  # type: ignore[arg-type]

    with pytest.raises(Unreachable, match="the work"):
        async with leader.leading():
            raise Unreachable("the work")


async def test_it_leads_until_its_lease_may_have_run_out() -> None:
    now_s = [0.0]
    leader = Leader(Lease(), "janitor", "one", ttl_s=10, clock=lambda: now_s[0])  # type: ignore[arg-type]
    assert not leader.leads

    await leader.fence()
    now_s[0] = 9.9
    assert leader.leads
    now_s[0] = 10.0
    assert not leader.leads


async def test_who_steps_down_leads_no_more() -> None:
    leader = Leader(Lease(), "janitor", "one")  # type: ignore[arg-type]
    await leader.fence()

    leader.step_down()
    assert not leader.leads
