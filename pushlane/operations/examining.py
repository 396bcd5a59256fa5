"""What `doctor` looks at, and the operation that tells it of where it is asked.

A server looks at its own settings, host, store or broker, at most once in a minute, whoever asks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from pushlane.backends.backend import Backend, connect
from pushlane.backends.operations import Bounds, Inspection, Live, examiner_of, examiners
from pushlane.backends.ports import Registry, TaskQuery
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.core.task import ACTIVE_STATES, Task, now_ms
from pushlane.model.presence import SinkTarget, targets_by_sink
from pushlane.model.targets import SinkTargets
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.session import Session
from pushlane.settings import Settings
from pushlane.util.checks import SEVERITIES, Check, Examination, Fact, combined, examined, fact_of
from pushlane.version import VERSION

if TYPE_CHECKING:
    from pushlane.diagnosis.setup import Setup

_LOOKED_AT = 1_000
_WITHIN_S = 10.0
_ALL_WITHIN_S = 30.0
_KEPT_S = 60.0
_SHOWN = 100
_AT_ONCE = Bounds(look_again_s=0.0)


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is set up badly: an `error`, a `warning` or a `note`; `mend` is what mends it.

    `area` is where: pushlane, store, host or a service.
    """

    check: str
    area: str
    severity: str
    what: str
    why: str
    mend: str | None


class ExaminedView(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks found at `at_ms` (Unix ms), the worst first, and how many of each severity.

    `passed` are the checks that found nothing, `skipped` says why others could not be made.
    """

    at_ms: int
    findings: Sequence[FindingView]
    counts: Mapping[str, int]
    passed: Sequence[str]
    skipped: Mapping[str, str]


class Examine(Operation[ExaminedView], frozen=True, kw_only=True):
    """Say what is set up badly where this is asked: settings, host, store or broker, processes.

    A server looks at itself, once in a minute at most. Nothing is sent or changed.
    """

    method, path, role, of = "GET", "/doctor", Role.OPERATOR, Of.EVERYTHING

    async def run(self, at: Session) -> ExaminedView:
        looked = _looked.setdefault(at.backend.registry, _Looked())
        async with looked.lock:  # one look for all who ask
            if looked.view is None or time.monotonic() - looked.made_s > _KEPT_S:
                looked.view = await _examined(at.backend, at.settings)
                looked.made_s = time.monotonic()
        return looked.view


class _Looked:
    """The last examination of a backend."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.view: ExaminedView | None = None
        self.made_s = 0.0


_looked: WeakKeyDictionary[Registry, _Looked] = WeakKeyDictionary()


async def _examined(backend: Backend, settings: Settings) -> ExaminedView:
    at_ms = now_ms()
    try:
        async with asyncio.timeout(_ALL_WITHIN_S):
            found, _ = await examine(settings, _AT_ONCE, backend=backend)
    except TimeoutError:
        raise Unreachable(f"the checks did not end within {_ALL_WITHIN_S:g} s") from None
    counts = Counter(one.severity for one in found.findings)
    return ExaminedView(
        at_ms=at_ms,
        findings=[
            FindingView(
                check=one.check,
                area=one.area,
                severity=one.severity,
                what=one.what,
                why=one.why,
                mend=one.mend or None,
            )
            for one in found.findings[:_SHOWN]
        ],
        counts={severity: counts[severity] for severity in SEVERITIES},
        passed=found.passed,
        skipped=found.skipped,
    )


def all_checks() -> list[Check[Any]]:
    """Return every check that there is, in the order of the documents."""
    from pushlane.diagnosis import host, setup

    adapters = [check for examiner in examiners() for check in examiner.CHECKS]
    return [setup.SETTINGS, *setup.CHECKS, *adapters, *host.CHECKS]


async def examine(
    settings: Settings, bounds: Bounds, root: Path = Path("/"), backend: Backend | None = None
) -> tuple[Examination, Inspection]:
    """Make all checks that fit these settings. What only an opened backend tells is asked of this.

    Without one it is opened, beside live processes alone.
    """
    from pushlane.diagnosis import host, setup
    from pushlane.diagnosis.host import Host

    try:
        inspection = await examiner_of(settings).inspect(settings, bounds)
        problem = ""
    except PushlaneError as error:  # a URL or a file of the settings cannot be used
        problem = str(error)
        inspection = Inspection(Examination([], [], {}), Live.unseen(problem))
    sinks = {name: await _opening_problem(settings, name) for name in settings.served}
    parts = (
        examined((setup.SETTINGS,), problem),
        examined(setup.CHECKS, await _setup(settings, inspection.live, sinks, backend)),
        inspection.examination,
        examined(host.CHECKS, Host(settings, root)),
    )
    return combined(parts), inspection


async def _setup(
    settings: Settings, live: Live, sinks: Mapping[str, str], backend: Backend | None
) -> Setup:
    """Add what only an opened backend tells, which is opened beside live processes alone.

    They have to be of this version, as opening a store may bring it up to date.
    """
    from pushlane.diagnosis.setup import Setup

    versions = {process.version for process in live.processes.get_or([])}
    if not versions:
        return Setup(settings, live, sinks)
    why_not = "live processes have other versions than this one"
    if backend is not None or versions == {VERSION}:
        look = _look(backend, settings) if backend is not None else _open_and_look(settings)
        seen = await fact_of(look, _WITHIN_S, "the store")
        if not seen.why_not:
            mine, tasks = seen.get()
            return Setup(settings, live, sinks, mine, Fact(tasks))
        why_not = seen.why_not
    return Setup(settings, live, sinks, tasks=Fact(why_not=why_not))


async def _open_and_look(settings: Settings) -> tuple[Mapping[str, SinkTarget], list[Task]]:
    async with connect(settings) as backend:
        return await _look(backend, settings)


async def _look(
    backend: Backend, settings: Settings
) -> tuple[Mapping[str, SinkTarget], list[Task]]:
    newest = await backend.registry.page(TaskQuery(ACTIVE_STATES), most=_LOOKED_AT)
    return await targets_of(backend, settings), newest.tasks


async def targets_of(backend: Backend, settings: Settings) -> dict[str, SinkTarget]:
    """Return what the sinks of these settings deliver to, beside what live processes do.

    Nothing is written where no live process says what it delivers to.
    """
    from pushlane.dispatcher.sinks.named import target_in

    found: dict[str, SinkTarget] = {}
    if not targets_by_sink(await backend.presence.list()):
        return found
    targets = SinkTargets(backend.documents)
    await targets.load()
    for name in settings.served:
        try:
            mine = targets.of(target_in(settings, name))
        except BadInput:  # whoever opens the sink says what is wrong with it
            continue
        if mine is not None:
            found[name] = mine
    return found


async def _opening_problem(settings: Settings, name: str) -> str:
    """Open a sink as a dispatcher would, and close it; return why it cannot be opened."""
    from pushlane.dispatcher.sinks.named import open_sinks

    try:
        sink = open_sinks(settings, (name,))[name]
        await sink.close()
    except BadInput as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - its text may hold a secret
        return f"sink {name} cannot be opened ({type(error).__name__})"
    return ""
