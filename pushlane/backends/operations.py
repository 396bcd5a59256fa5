"""What an adapter says about the backend that the settings name: for `doctor` and `stats-dump`.

Each adapter has a module `examiner` with the functions of `Examiner`. It asks, and makes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from pushlane.core.errors import UnknownFormat
from pushlane.model.presence import Process
from pushlane.settings import Settings
from pushlane.settings.adapters import ADAPTERS, adapter_of
from pushlane.util.checks import Check, Examination, Fact, Finding

MOST_TOPICS = 50
MOST_UNREAD = 1_000
NO_STORE = "store-missing"
"""The check whose error says that there is no embedded store to look at."""


class Bounds(NamedTuple):
    """How much is looked at: topics, a second look at processes after some seconds.

    `bookie` is the URL of a bookie's web server, empty for none.
    """

    most_topics: int = MOST_TOPICS
    look_again_s: float = 6.0
    bookie: str = ""


@dataclass(frozen=True)
class Live:
    """The processes that are live, seen twice where there are any, and the lowest format.

    `newer` names those of a newer version than ours. `unread` tells of each task and limit that
    cannot be read.
    """

    processes: Fact[list[Process]]
    later: Fact[list[Process]]
    min_format: Fact[int]
    newer: Fact[Sequence[str]] = field(default_factory=lambda: Fact([]))
    unread: Fact[Sequence[UnknownFormat]] = field(default_factory=lambda: Fact([]))

    @staticmethod
    def unseen(why_not: str) -> Live:
        """Return nothing but the reason why nothing of it could be seen."""
        none: Fact[Any] = Fact(why_not=why_not)
        return Live(none, none, none, none, none)


@dataclass(frozen=True)
class Inspection:
    """What was found in a backend, who is live on it, and what it said of itself.

    `said` is for a dump: plain values by the name of a document, without secrets.
    """

    examination: Examination
    live: Live
    said: dict[str, Any] = field(default_factory=dict)


class Examiner(Protocol):
    """The module `examiner` of an adapter."""

    CHECKS: Sequence[Check[Any]]

    async def inspect(self, settings: Settings, bounds: Bounds) -> Inspection:
        """Look at the backend. A service that does not answer is a finding."""

    async def mend(self, settings: Settings, finding: Finding) -> str:
        """Mend a finding that can be fixed; return a sentence of what was done.

        Raises:
            PushlaneError: it could not be done.
        """


def examiner_of(settings: Settings) -> Examiner:
    """Load the examiner of the adapter that the settings name."""
    return _load(adapter_of(settings).package)


def examiners() -> list[Examiner]:
    """Load the examiners of all adapters."""
    return [_load(package) for package in dict.fromkeys(one.package for one in ADAPTERS.values())]


def _load(package: str) -> Examiner:
    return cast(Examiner, import_module(f"{package}.examiner"))
