"""Plays the demo: a backlog, a late urgent task, a sink that rests, a new quota, then a rival.

Everything goes through what a user would use: files, submit, settings with two sinks, `pushlane
dispatch` as a process, webhooks, or a provider's emulator. The figures come from the logs of these
alone. The rival is one first-in-first-out queue a level, on the same broker.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.receiver import Follower, Provider, RunningReceiver, emulated, receiving, running
from pushlane.backends.backend import Backend, connect
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings, load

APP, MAIL = "app", "mail"
"""The demo's sinks."""

TAGS = ("task", "seq", "level")
"""The columns by which the emulator of a provider, told nothing else, knows a push again."""

LARGE = 100_000
MIDDLE = 20_000
LATE = 1_000


@dataclass(frozen=True)
class Campaign:
    """One task of the demo."""

    name: str
    level: Level
    pushes: int
    suffix: str
    title: str
    body: str
    sink: str = APP

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}{self.suffix}"


BACKLOG = (
    Campaign("flash-sale", Level.HIGH, LARGE, ".parquet", "Flash sale", "{name}, it ends tonight"),
    Campaign("digest", Level.MEDIUM, MIDDLE, ".csv", "Your week", "{name}, 5 stories for you"),
    Campaign("friends", Level.MEDIUM, MIDDLE, ".csv", "New friends", "{name}, 3 people follow you"),
    Campaign("newsletter", Level.LOW, LARGE, ".parquet", "Newsletter", "Hello {name}"),
)
TO_MAIL = (
    Campaign("invoices", Level.HIGH, 8_000, ".csv", "Invoice", "{name}, it is due", MAIL),
    Campaign("tips", Level.LOW, 4_000, ".csv", "Tips", "{name}, did you know?", MAIL),
)
LATE_TASK = Campaign(
    "security-alert", Level.HIGH, LATE, ".csv", "Security", "{name}, was this you?"
)

ALL = (*BACKLOG, *TO_MAIL, LATE_TASK)


def write_all(folder: Path, with_tags: bool) -> None:
    import pyarrow as pa
    from pyarrow.csv import write_csv
    from pyarrow.parquet import write_table

    for campaign in ALL:
        numbers = range(1, campaign.pushes + 1)
        columns: dict[str, list[Any]] = {
            "recipient": [f"device-{n}" for n in numbers],
            "name": [f"user {n}" for n in numbers],
        }
        if with_tags:
            level = campaign.level.value
            tags = ([campaign.name] * len(numbers), list(numbers), [level] * len(numbers))
            columns |= dict(zip(TAGS, tags, strict=True))
        write = write_table if campaign.suffix == ".parquet" else write_csv
        write(pa.table(columns), campaign.path(folder))


_AT_ONCE = 8_192


@dataclass(frozen=True)
class Queues:
    """The lanes `queue-high`, `queue-medium` and `queue-low`."""

    backend: Backend

    async def add(self, campaign: Campaign) -> str:
        """Put a task's pushes at the end of its level's queue; returns its id."""
        lane = f"queue-{campaign.level}"
        task_id = new_task_id()
        task = Task(id=task_id, name=campaign.name, level=campaign.level, lane=lane)
        await self.backend.broker.open_lane(lane)
        await self.backend.registry.add(task)
        await self.backend.registry.change(task_id, task_changes.start)
        for first in range(1, campaign.pushes + 1, _AT_ONCE):
            seqs = range(first, min(first + _AT_ONCE, campaign.pushes + 1))
            bodies = [encode(_push(campaign, task_id, seq)) for seq in seqs]
            await self.backend.broker.publish(lane, bodies)
        await self.backend.registry.change(task_id, task_changes.seal(campaign.pushes))
        return task_id


def _push(campaign: Campaign, task_id: str, seq: int) -> Push:
    text = campaign.body.format(name=f"user {seq}")
    return Push(
        task_id, seq, f"device-{seq}", campaign.title, text, submitted_at_ms=task_changes.now_ms()
    )


SLOTS = 100
MAIL_SLOTS = 10
SINK_MS = 20.0
LATE_AT_S = 3.0
REST_AT_S = 5.0
QUOTA_AT_S = 7.0
GO_ON_AT_S = 8.0
STOP_AT_S = 13.0
NEW_QUOTA = 3
QUOTA_TASK = "digest"
RIVAL_LIMIT_S = 45.0
_LOOK_EVERY_S = 0.25


@dataclass(eq=False, repr=False)
class Played:
    """The events of a demo by the receivers' logs, in Unix seconds; 0 for what is to come."""

    folder: Path
    provider: Provider | None
    tasks: dict[str, Task] = field(default_factory=dict)
    started_at: float = 0.0
    late_at: float = 0.0
    rest_at: float = 0.0
    quota_at: float = 0.0
    go_on_at: float = 0.0
    stopped_at: float = 0.0
    rival_late_at: float = 0.0
    rival_late_id: str = ""
    rival_stopped_at: float = 0.0

    def __post_init__(self) -> None:
        logs = (Follower(self.folder / f"{of}.jsonl") for of in ("app", "mail", "rest", "rival"))
        self.app, self.mail, self.rest, self.rival = logs

    def of_sink(self, name: str) -> Follower:
        """The log of a sink's receiver."""
        return self.mail if name == MAIL else self.app

    @property
    def is_rival_through(self) -> bool:
        return self.rival.counts[self.rival_late_id] >= LATE_TASK.pushes


Say = Callable[[str], None]
Sinks = Mapping[str, Mapping[str, object]]
Show = Callable[[Played, str], None]


async def play(folder: Path, say: Say, show: Show, provider: Provider | None = None) -> Played:
    """Play the whole demo in `folder`; call `show` a few times a second while pushes flow."""
    played = Played(folder, provider)
    say("writing the audiences: Parquet and CSV files")
    write_all(folder, with_tags=provider is not None)
    await _ours(played, say, show)
    await _rival(played, say, show)
    return played


async def _ours(played: Played, say: Say, show: Show) -> None:
    with _app(played) as app, receiving(played.mail.path, SINK_MS) as mail:
        sinks: Sinks = {APP: app, MAIL: {"kind": "webhook", "url": mail.url, "slots": MAIL_SLOTS}}
        settings = _settings(played.folder / "store").but(sinks=sinks)
        async with connect(settings) as backend:
            for campaign in (*BACKLOG, *TO_MAIL):
                say(f"submitting {campaign.name}: {campaign.pushes:,} {campaign.level} pushes")
                await _submit(backend, settings, campaign, played)
            serving = _serving(played.folder / "pushlane.toml", sinks)
            async with _dispatcher(settings, *serving) as process:
                await _first_arrivals(process, played.app, played.mail)
                await _watch(backend, settings, played, mail, show)
    for log in (played.app, played.mail):
        log.read()  # what was in flight at the stop
    say("sending the rest to a file at full speed, to account for every push")
    await _send_rest(settings, played, show)


@contextmanager
def _app(played: Played) -> Iterator[Mapping[str, object]]:
    """Run what the sink app sends to; give the sink's options."""
    if played.provider is None:
        with receiving(played.app.path, SINK_MS) as app:
            yield {"kind": "webhook", "url": app.url}
    else:
        with emulated(played.provider, played.folder, played.app.path, SINK_MS) as options:
            yield options


async def _send_rest(settings: Settings, played: Played, show: Show) -> None:
    to_file = {name: {"kind": "log", "path": str(played.rest.path)} for name in (APP, MAIL)}
    serving = _serving(played.folder / "rest.toml", to_file)
    async with _dispatcher(settings, *serving, "--drain") as process:
        while process.returncode is None:
            await _wait(process, _LOOK_EVERY_S)
            played.rest.read()
            show(played, "the rest")
    played.rest.read()


async def _watch(
    backend: Backend, settings: Settings, played: Played, mail: RunningReceiver, show: Show
) -> None:
    """Follow the webhooks' logs, and let things happen at their times."""
    app = played.app
    played.started_at = app.arrivals[0].at_s if app.arrivals else time.time()
    while (elapsed := time.time() - played.started_at) < STOP_AT_S:
        if elapsed >= LATE_AT_S and not played.late_at:
            played.late_at = time.time()
            await _submit(backend, settings, LATE_TASK, played)
        if elapsed >= REST_AT_S and not played.rest_at:
            mail.rest()
            played.rest_at = time.time()
        if elapsed >= QUOTA_AT_S and not played.quota_at:
            task = played.tasks[QUOTA_TASK]
            await backend.set_quota(task.id, NEW_QUOTA)
            played.quota_at = time.time()
        if elapsed >= GO_ON_AT_S and not played.go_on_at:
            played.go_on_at = time.time()
            mail.go_on()
        app.read()
        played.mail.read()
        show(played, "webhooks")
        await asyncio.sleep(_LOOK_EVERY_S)
    played.stopped_at = time.time()


async def _submit(backend: Backend, settings: Settings, campaign: Campaign, played: Played) -> None:
    request = SubmitRequest(
        source=campaign.path(played.folder),
        level=campaign.level,
        name=campaign.name,
        title=campaign.title,
        body=campaign.body,
        sink=(campaign.sink,),
        data=TAGS if played.provider and campaign.sink == APP else (),
    )
    task = (await submit(backend, settings, request)).task
    played.tasks[campaign.name] = task
    played.app.ids[campaign.name] = task.id


async def _rival(played: Played, say: Say, show: Show) -> None:
    """Do the same work on one queue a level, until the late task is through or the time is up."""
    say("now the same work with one queue a level, first in first out")
    settings = _settings(played.folder / "rival")
    async with connect(settings) as backend:
        queues = Queues(backend)
        for campaign in BACKLOG:
            await queues.add(campaign)
        async with _sending(settings, played.rival):
            await asyncio.sleep(LATE_AT_S)
            played.rival_late_at = time.time()
            played.rival_late_id = await queues.add(LATE_TASK)
            until = played.rival_late_at + RIVAL_LIMIT_S
            while not played.is_rival_through and time.time() <= until:
                played.rival.read()
                show(played, "one queue a level")
                await asyncio.sleep(_LOOK_EVERY_S)
    played.rival_stopped_at = time.time()


def _settings(store: Path) -> Settings:
    return load({"broker": "embedded", "data_dir": store, "slots": SLOTS})


def _serving(path: Path, sinks: Sinks) -> list[str]:
    """Write a file of settings with these sinks; returns the flags that serve them."""
    lines = []
    for name, options in sinks.items():
        lines += [f"[sinks.{name}]", *(f"{k} = {json.dumps(v)}" for k, v in options.items())]
    path.write_text("\n".join(lines) + "\n")
    return ["--config", str(path), "--serve", ",".join(sinks)]


@asynccontextmanager
async def _sending(settings: Settings, follower: Follower) -> AsyncIterator[None]:
    """Dispatch to a webhook that writes the follower's log, from its first arrival on."""
    with running(follower.path, SINK_MS) as url:
        async with _dispatcher(settings, "--sink", f"webhook:{url}") as process:
            await _first_arrivals(process, follower)
            yield


async def _first_arrivals(process: Process, *followers: Follower) -> None:
    for follower in followers:
        while process.returncode is None and not (follower.arrivals or follower.read()):
            await _wait(process, _LOOK_EVERY_S / 10)


async def _wait(process: Process, most_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await process.wait()


@asynccontextmanager
async def _dispatcher(settings: Settings, *flags: str) -> AsyncIterator[Process]:
    """Run `pushlane dispatch` as a user would, and stop it gently in the end.

    What it says is in a file: on the terminal the demo draws. Raises RuntimeError with it when it
    fails.
    """
    command = ["-m", "pushlane", "dispatch", "--slots", str(settings.slots), *flags]
    said = settings.data_dir.with_suffix(".said")
    with said.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            *("--data-dir", str(settings.data_dir), "--broker", "embedded"),
            stderr=stderr,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
    if process.returncode:
        raise RuntimeError(
            f"the dispatcher ended with exit code {process.returncode}; it said:\n"
            f"{said.read_text(errors='replace')}"
        )
