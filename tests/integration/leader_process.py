"""A process that leads: changes a task, waits for a line on stdin, and changes it again.

It asks for no new lease in between, as one that was stopped just before a change.

python -m tests.integration.leader_process HOLDER TASK      (settings from the environment)
"""

from __future__ import annotations

import asyncio
import sys

from msgspec.structs import replace

from pushlane.backends.backend import connect
from pushlane.backends.leases import Leader
from pushlane.core.task import Task
from pushlane.model import task_changes
from pushlane.settings import load
from pushlane.util.errors import Superseded
from tests.contract.reading import until

TTL_S = 0.5


def signed(holder: str) -> task_changes.Edit:
    def edit(task: Task) -> Task:
        return replace(task, reason=holder, quota=task.quota + 1)

    return edit


async def work(holder: str, task_id: str) -> None:
    async with connect(load()) as backend:
        leader = Leader(backend.lease, "test", holder, ttl_s=TTL_S)
        fence = await until(leader.fence)
        await backend.registry.change(task_id, signed(holder), fence)
        print("leads", flush=True)
        sys.stdin.readline()
        try:
            await backend.registry.change(task_id, signed(holder), fence)
            print("changed", flush=True)
        except Superseded:
            print("superseded", flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
