"""The words between operators' commands and the adapter that carries them out: for `bootstrap`,
`doctor`, `stats-dump`, and `registry rebuild` of a registry that is a copy of a journal.

Each adapter has a module `examiner` with the functions of `Examiner`, which asks and makes nothing,
and a module `backup` with those of `Copies`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec

from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.model.presence import Process
from pushlane.settings import Settings
from pushlane.settings.adapters import ADAPTERS, package_of
from pushlane.util.checks import Check, Examination, Fact, Finding

_ROLE = re.compile(r"[\w.@=:/+-]{1,128}", re.ASCII)


class Roles(NamedTuple):
    """The names that dispatchers, writers and the pipeline have towards broker and registry."""

    dispatcher: str = "pushlane-dispatcher"
    writer: str = "pushlane-writer"
    pipeline: str = "pushlane-pipeline"

    def check(self) -> None:
        """Raise BadInput for a name that cannot be one, or stands for two roles."""
        for role, name in self._asdict().items():
            if not _ROLE.fullmatch(name):
                raise BadInput(
                    f"--{role}-role {name!r} is not a name of a role: use letters, digits and ._@-"
                )
        if len(set(self)) < len(self):
            raise BadInput("one name stands for two roles: give each its own")


class BootstrapStep(NamedTuple):
    """A thing that pushlane needs: what it is, how it is, and the command that makes it."""

    what: str
    state: Literal["there", "missing", "made"]
    command: str


class RoleLogin(NamedTuple):
    """A role's line for the registry's store, which an administrator gives a password."""

    role: str
    line: str


MOST_LOST = 10
MOST_LOST_PART = 0.01


class Beside(Enum):
    """How a rebuild treats tasks that the registry has and the journal lacks."""

    REFUSED = "refused"
    """They are removed if few of them are unfinished; else the whole rebuild is refused."""
    REMOVED = "removed"
    KEPT = "kept"
    """They stay in the registry, and are written to the journal."""


class TaskCount(msgspec.Struct, frozen=True):
    tasks: int = 0
    unfinished: int = 0


class RegistryGap(msgspec.Struct, frozen=True):
    """The difference between the journal and the registry, in numbers of tasks.

    `some` are a few ids of tasks that the registry alone has, unfinished ones first.
    """

    where: str
    journal: TaskCount
    registry: TaskCount
    registry_alone: TaskCount
    journal_alone: TaskCount
    some: list[str]

    @property
    def is_loss(self) -> bool:
        """True when a rebuild is refused that nobody has given a word on."""
        lost, unfinished = self.registry_alone.unfinished, self.registry.unfinished
        return is_loss(lost, unfinished, is_journal_empty=not self.journal.tasks)


def is_loss(lost: int, unfinished: int, *, is_journal_empty: bool) -> bool:
    """Tell whether so many lost of so many unfinished tasks need somebody's word.

    An empty journal is that of another registry, or was made anew: it takes none away.
    """
    if is_journal_empty:
        return lost > 0
    return lost > MOST_LOST and lost > unfinished * MOST_LOST_PART


def refusal(where: str, lost: int, unfinished: int) -> str:
    """Say why a registry is not filled, and which commands go on from there."""
    return (
        f"Redis at {where} has {unfinished:,} unfinished tasks, and the task topic on Pulsar only "
        f"{unfinished - lost:,} of them: the registry is not rebuilt, as the other {lost:,} would "
        "be lost. Either the topic was recreated, or this Redis is an old copy. Compare them: "
        "`pushlane registry rebuild --dry-run`. Then write Redis' tasks to the topic again "
        "(`pushlane registry rebuild --keep`), or drop them (`pushlane registry rebuild "
        "--accept-loss`)"
    )


MOST_TOPICS = 50
MOST_UNREAD = 1_000
NO_STORE = "store-missing"
"""The check whose error says that there is no embedded store to look at."""


class Bounds(NamedTuple):
    """The bounds of an examination.

    It looks at `most_topics` topics, and at the live processes again after `look_again_s`.
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
    """The result of an examination: findings, the live processes, and raw answers.

    `said` has these for a dump: plain values by the name of a document, without secrets.
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

        Raises PushlaneError when it could not be done.
        """


def examiner_of(settings: Settings) -> Examiner:
    """Load the examiner of the adapter that the settings name."""
    return _load(package_of(settings))


def examiners() -> list[Examiner]:
    """Load the examiners of all adapters."""
    return [_load(package) for package in dict.fromkeys(one.package for one in ADAPTERS.values())]


def _load(package: str) -> Examiner:
    return cast(Examiner, import_module(f"{package}.examiner"))


class Copies(Protocol):
    """The module `backup` of an adapter."""

    async def back_up(self, settings: Settings, file: Path) -> int:
        """Copy the registry into a new file, and return how many tasks it has."""

    async def restore(self, settings: Settings, file: Path) -> int:
        """Make the registry of a copy, where there is none; return how many tasks it has."""

    async def compare_registry(self, settings: Settings) -> RegistryGap:
        """Say what the journal and the registry have; neither is changed."""

    async def rebuild_registry(self, settings: Settings, beside: Beside) -> None:
        """Make the registry what the journal says."""


def copies_of(settings: Settings) -> Copies:
    """Load what copies and rebuilds the registry of the adapter that the settings name."""
    return cast(Copies, import_module(f"{package_of(settings)}.backup"))
