"""Makes all checks on a deployment, for `doctor` and `stats-dump`: nothing is sent or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pushlane.diagnosis import host, setup
from pushlane.diagnosis.host import Host
from pushlane.diagnosis.setup import Setup
from pushlane.dispatcher.sinks.named import open_sinks
from pushlane.lanes.checks import Check, Examination, combined, examined
from pushlane.lanes.errors import BadInput, PushlaneError
from pushlane.lanes.inspection import Bounds, Inspection, Live, examiner_of, examiners
from pushlane.lanes.settings import Settings


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
        examined(setup.CHECKS, Setup(settings, inspection.live, sinks)),
        inspection.examination,
        examined(host.CHECKS, Host(settings, root)),
    )
    return combined(parts), inspection


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
