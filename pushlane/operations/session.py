"""Who asks, and what an operation works with: a backend, seen as far as the caller may see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from pushlane.backends.backend import Backend
from pushlane.backends.ports import TaskQuery, pages
from pushlane.core.errors import UnknownFormat
from pushlane.core.task import Task
from pushlane.model import audit
from pushlane.model.access import EVERYTHING, Access
from pushlane.operations.long_reads import LongReads
from pushlane.settings import Settings
from pushlane.util.errors import NotFound, Overtaken, UnknownTask
from pushlane.util.texts import MOST_NAMED, ambiguous_task

_TAG_DIGITS = 16


@dataclass
class Beside:
    """What goes beside an operation and its view, as headers do over HTTP.

    `seen` are the tags of the states from which the caller wants a value changed: None for any,
    empty where it has not said. `tag` is that of the value afterwards, `next` the cursor with which
    a list goes on: empty at its end. `unread` counts tasks that a list of them lacks, since they
    cannot be read. `traceparent` is the caller's place in a trace, empty for none.
    """

    seen: frozenset[str] | None = None
    tag: str = ""
    next: str = ""
    unread: int = 0
    traceparent: str = ""


def tag_of(subject: str, values: Mapping[str, Any]) -> str:
    """Return the tag of what operators have set of a subject: of other values it is another."""
    found = msgspec.json.encode([subject, values], order="sorted")
    return f'"{sha256(found).hexdigest()[:_TAG_DIGITS]}"'


Begun = Callable[[str], None]
"""Is told the id of a task that is made, before any push of it is there."""


def untold(task_id: str) -> None:
    """Do nothing: the caller need not know of a new task before it is complete."""


@dataclass(frozen=True)
class Caller:
    """Who asks, through which face (`cli`, `python`, `http`), and what of all is theirs."""

    name: str
    face: str
    access: Access = EVERYTHING


class Change(NamedTuple):
    """What has become of a subject, and the entries of the audit that are to have it."""

    subject: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    app: str
    name: str
    counts_into: str


@dataclass(frozen=True)
class Session:
    """One operation on a backend: what it works with, and what it notes for the audit."""

    backend: Backend
    settings: Settings
    caller: Caller
    begun: Begun = untold
    beside: Beside = field(default_factory=Beside)
    reads: LongReads = field(default_factory=LongReads)
    _noted: list[Change] = field(default_factory=list)

    @property
    def apps(self) -> frozenset[str] | None:
        """The apps that the caller sees; None for all."""
        return self.caller.access.apps

    def sees(self, app: str) -> bool:
        """Tell whether an app is one of the caller's."""
        return self.apps is None or app in self.apps

    async def task(self, word: str) -> Task:
        """Return the caller's task of this id, key or name. Raises UnknownTask, of several too."""
        if self.apps is None:
            return await self.backend.registry.get(word)
        found = await self._own_task(word)
        if found is None:
            raise UnknownTask(f"there is no task {word[:60]!r} of an app that you may see")
        return found

    async def _own_task(self, word: str) -> Task | None:
        """Look for an id, a key, a name, in this order, among the tasks of the caller's apps."""
        if not word:
            return None
        assert self.apps is not None
        for exact in (word, *(f"{app}/{word}" for app in sorted(self.apps))):
            found = await self._exactly(exact)
            if found is not None and self.sees(found.app):
                return found
        return await self._own_of_name(word)

    async def _own_of_name(self, name: str) -> Task | None:
        """Return the only task of this name that the caller sees. Raises UnknownTask for several.

        All tasks are looked through only where more than one has the name.
        """
        registry = self.backend.registry
        with suppress(UnknownFormat):
            try:
                found = await registry.get(name)
            except UnknownTask as error:
                if not error.several:
                    return None
            else:
                if name not in (found.id, found.key):
                    return found if self.sees(found.app) else None
        named: list[Task] = []
        async for page in pages(registry, TaskQuery(word=name)):
            named += [task for task in page if task.name == name and self.sees(task.app)]
            if len(named) > MOST_NAMED:
                break
        if len(named) > 1:
            raise ambiguous_task(name, named)
        return named[0] if named else None

    async def _exactly(self, word: str) -> Task | None:
        """Return the task of just this id or key, whosever it is."""
        try:
            found = await self.backend.registry.get(word)
        except (UnknownTask, UnknownFormat):
            return None
        return found if word in (found.id, found.key) else None

    def require_app(self, app: str) -> None:
        """Raise NotFound for an app that is not the caller's, whether it is there or not."""
        if not self.sees(app):
            raise NotFound(f"there is no app {app[:60]!r} that you may see")

    def require_seen(self, subject: str, values: Mapping[str, Any]) -> None:
        """Raise Overtaken where a subject's values are not as the caller has seen them.

        Call it in the step that changes them: in an edit, or before a put over their version.
        """
        tag = tag_of(subject, values)
        if self.beside.seen is not None and tag not in self.beside.seen:
            raise Overtaken(subject, values, tag)

    def show(self, subject: str, values: Mapping[str, Any]) -> None:
        """Note the tag of a subject's values, as the caller is shown them."""
        self.beside.tag = tag_of(subject, values)

    def changed(
        self,
        subject: str,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        app: str = "",
        counts_into: str = "",
    ) -> str:
        """Note what has become of a subject, such as `task/ID`: the audit has what differs.

        `app` is whose it is; without it only who sees all apps is shown the entry. Counts are added
        to the earlier entry `counts_into`, if that is there and alike. Returns the entry's name.
        """
        name, differing = audit.new_name(), audit.differences(before, after)
        self._noted.append(Change(subject, *differing, app, name, counts_into))
        return counts_into or name

    def revealed(self, push: str, app: str) -> None:
        """Note for the audit that the caller is shown what a push holds: the push, not whom."""
        self.changed(f"push/{push}", {}, {"revealed": "recipient and content"}, app)
