"""Plays the demo: a backlog, a late urgent task, a quota changed on the way, then a rival.

Everything goes through what a user would use: files, submit, `pushlane dispatch` as a process, a
webhook. The figures come from the receiver's log alone.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pushlane.cli.demo.arrivals import Follower
from pushlane.cli.demo.files import BACKLOG, LATE_TASK, Campaign, write_all
from pushlane.cli.demo.receiver import running
from pushlane.cli.demo.rival import write_queues
from pushlane.lanes import task_transitions
from pushlane.lanes.backend import Backend, connect
from pushlane.lanes.settings import Settings, load
from pushlane.lanes.task import Task
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit

SLOTS = 100
SINK_MS = 20.0
LATE_AT_S = 3.0
QUOTA_AT_S = 7.0
STOP_AT_S = 12.0
NEW_QUOTA = 3
QUOTA_TASK = "digest"
RIVAL_LIMIT_S = 45.0
_LOOK_EVERY_S = 0.25

Say = Callable[[str], None]


@dataclass
class Played:
    """The events of a demo by the receivers' logs, in Unix seconds."""

    tasks: dict[str, Task] = field(default_factory=dict)
    started_at: float = 0.0
    late_at: float = 0.0
    quota_at: float = 0.0
    stopped_at: float = 0.0
    webhook: Follower | None = None
    rest: Follower | None = None
    rival: Follower | None = None
    rival_late_at: float = 0.0
    rival_late_id: str = ""
    rival_stopped_at: float = 0.0


Show = Callable[[Played, str], None]


async def play(folder: Path, say: Say, show: Show) -> Played:
    """Play the whole demo in `folder`; call `show` a few times a second while pushes flow."""
    played = Played()
    say("writing the audiences: Parquet and CSV files")
    write_all(folder)
    settings = load({"broker": "embedded", "data_dir": folder / "store", "slots": SLOTS})
    await _ours(folder, settings, played, say, show)
    rival_settings = load({"broker": "embedded", "data_dir": folder / "rival", "slots": SLOTS})
    await _rival(folder, rival_settings, played, say, show)
    return played


async def _ours(folder: Path, settings: Settings, played: Played, say: Say, show: Show) -> None:
    log = folder / "webhook.jsonl"
    played.webhook = Follower(log)
    async with connect(settings) as backend:
        for campaign in BACKLOG:
            say(f"submitting {campaign.name}: {campaign.pushes:,} {campaign.level} pushes")
            await _submit(backend, settings, campaign, folder, played)
        with running(log, SINK_MS) as url:
            async with _dispatcher(settings, f"webhook:{url}") as process:
                await _first_arrival(played.webhook, process)
                await _watch(backend, settings, folder, played, show)
        played.webhook.read()  # what was in flight at the stop
        say("sending the rest to a file at full speed, so that every push is accounted for")
        played.rest = Follower(folder / "rest.jsonl")
        async with _dispatcher(settings, f"log:{folder / 'rest.jsonl'}", "--drain") as process:
            while process.returncode is None:
                await _wait(process, _LOOK_EVERY_S)
                played.rest.read()
                show(played, "the rest")
        played.rest.read()


async def _watch(
    backend: Backend, settings: Settings, folder: Path, played: Played, show: Show
) -> None:
    """Follow the webhook's log; submit the late task and set the new quota at their times."""
    webhook = played.webhook
    assert webhook is not None
    played.started_at = webhook.arrivals[0].at_s if webhook.arrivals else time.time()
    while (elapsed := time.time() - played.started_at) < STOP_AT_S:
        if elapsed >= LATE_AT_S and not played.late_at:
            played.late_at = time.time()
            await _submit(backend, settings, LATE_TASK, folder, played)
        if elapsed >= QUOTA_AT_S and not played.quota_at:
            task = played.tasks[QUOTA_TASK]
            await backend.registry.change(task.id, task_transitions.set_quota(NEW_QUOTA))
            played.quota_at = time.time()
        webhook.read()
        show(played, "webhook")
        await asyncio.sleep(_LOOK_EVERY_S)
    played.stopped_at = time.time()


async def _submit(
    backend: Backend, settings: Settings, campaign: Campaign, folder: Path, played: Played
) -> None:
    request = SubmitRequest(
        source=campaign.path(folder),
        level=campaign.level,
        name=campaign.name,
        title=campaign.title,
        body=campaign.body,
    )
    result = await submit(backend, settings, request)
    played.tasks[campaign.name] = result.task


async def _rival(folder: Path, settings: Settings, played: Played, say: Say, show: Show) -> None:
    """Do the same work on one queue a level, until the late task is through or the time is up."""
    say("now the same work with one queue a level, first in first out")
    log = folder / "rival.jsonl"
    played.rival = rival = Follower(log)
    async with connect(settings) as backend:
        queues = await write_queues(backend)
        with running(log, SINK_MS) as url:
            async with _dispatcher(settings, f"webhook:{url}") as process:
                await _first_arrival(rival, process)
                await asyncio.sleep(LATE_AT_S)
                played.rival_late_at = time.time()
                played.rival_late_id = await queues.add_late()
                while not _rival_is_over(played, rival):
                    rival.read()
                    show(played, "one queue a level")
                    await asyncio.sleep(_LOOK_EVERY_S)
    played.rival_stopped_at = time.time()


def _rival_is_over(played: Played, rival: Follower) -> bool:
    is_through = rival.counts[played.rival_late_id] >= LATE_TASK.pushes
    return is_through or time.time() - played.rival_late_at > RIVAL_LIMIT_S


async def _first_arrival(follower: Follower, process: asyncio.subprocess.Process) -> None:
    while process.returncode is None and not follower.read():
        await _wait(process, _LOOK_EVERY_S / 10)


async def _wait(process: asyncio.subprocess.Process, most_s: float) -> None:
    """Wait until the process ends or the time is up."""
    try:
        async with asyncio.timeout(most_s):
            await process.wait()
    except TimeoutError:
        return


@asynccontextmanager
async def _dispatcher(
    settings: Settings, sink: str, *more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `pushlane dispatch` as a user would, and stop it gently in the end."""
    command = ["-m", "pushlane", "dispatch", "--sink", sink, "--slots", str(settings.slots), *more]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--data-dir", str(settings.data_dir), "--broker", "embedded"
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
    if process.returncode:
        raise RuntimeError(f"the dispatcher ended with exit code {process.returncode}")
