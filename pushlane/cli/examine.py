"""Makes all checks on a deployment, for `doctor` and `stats-dump`: nothing is sent or changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pushlane.backends.backend import connect
from pushlane.backends.operations import Bounds, Inspection, Live, examiner_of, examiners
from pushlane.cli.live_sinks import load_live
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.task import ACTIVE_STATES, Task
from pushlane.diagnosis import host, setup
from pushlane.diagnosis.host import Host
from pushlane.diagnosis.setup import Setup
from pushlane.dispatcher.sinks.named import open_sinks
from pushlane.lanes.search import TaskQuery
from pushlane.model.presence import SinkTarget
from pushlane.settings import Settings
from pushlane.util.checks import Check, Examination, Fact, combined, examined, fact_of
from pushlane.version import VERSION

_LOOKED_AT = 1_000
_WITHIN_S = 10.0


def all_checks() -> list[Check[Any]]:
    """Return every check that there is, in the order of the documents."""
    adapters = [check for examiner in examiners() for check in examiner.CHECKS]
    return [setup.SETTINGS, *setup.CHECKS, *adapters, *host.CHECKS]


async def examine(
    settings: Settings, bounds: Bounds, root: Path = Path("/")
) -> tuple[Examination, Inspection]:
    """Make all checks that fit these settings."""
    try:
        inspection = await examiner_of(settings).inspect(settings, bounds)
        problem = ""
    except PushlaneError as error:  # a URL or a file of the settings cannot be used
        problem = str(error)
        inspection = _nothing(problem)
    sinks = {name: await _opening_problem(settings, name) for name in settings.served}
    parts = (
        examined((setup.SETTINGS,), problem),
        examined(setup.CHECKS, await _setup(settings, inspection.live, sinks)),
        inspection.examination,
        examined(host.CHECKS, Host(settings, root)),
    )
    return combined(parts), inspection


async def _setup(settings: Settings, live: Live, sinks: Mapping[str, str]) -> Setup:
    """Add what only an opened backend tells, which is opened beside live processes alone.

    They have to be of this version, as opening a store may bring it up to date.
    """
    versions = {process.version for process in live.processes.get_or([])}
    if not versions:
        return Setup(settings, live, sinks)
    if versions != {VERSION}:
        why_not = "live processes are of other versions than this one"
        return Setup(settings, live, sinks, tasks=Fact(why_not=why_not))
    seen = await fact_of(_look(settings), _WITHIN_S, "the store")
    if seen.why_not:
        return Setup(settings, live, sinks, tasks=Fact(why_not=seen.why_not))
    mine, tasks = seen.get()
    return Setup(settings, live, sinks, mine, Fact(tasks))


async def _look(settings: Settings) -> tuple[Mapping[str, SinkTarget], list[Task]]:
    async with connect(settings) as backend:
        newest = await backend.registry.page(TaskQuery(ACTIVE_STATES), most=_LOOKED_AT)
        return (await load_live(backend, settings)).mine, newest.tasks


def refused(error: BadInput) -> Examination:
    """Return what is found where there are no settings to look at anything with."""
    return examined((setup.SETTINGS,), str(error))


def _nothing(problem: str) -> Inspection:
    return Inspection(Examination([], [], {}), Live.unseen(problem))


async def _opening_problem(settings: Settings, name: str) -> str:
    """Open a sink as a dispatcher would, and close it; return why it cannot be opened."""
    try:
        sink = open_sinks(settings, (name,))[name]
        await sink.close()
    except BadInput as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - its text may hold a secret
        return f"sink {name} cannot be opened ({type(error).__name__})"
    return ""
