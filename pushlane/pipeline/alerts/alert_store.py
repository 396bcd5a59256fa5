"""Keeps alert rules, and of each which groups fire and what is still to be told of them.

It needs no package of the extra `pipeline`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.pipeline.alerts.alert_rule import AlertRule, decode_rule
from pushlane.util.errors import NotFound
from pushlane.util.texts import Once, did_you_mean

log = logging.getLogger("pushlane.shelf")

_RULE = "alert"
_STATE = "alert-state"
_KNOWN = "alert-known"
_LOOK = "alert-look"
_ALL = "all"
_TRIES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_RULES = 1_000


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON that a webhook gets.

    `since_ms` is when the threshold was first crossed, `at_ms` when this message was made.
    """

    id: str
    alert: str
    status: str
    metric: str
    when: str
    value: float
    n: int
    group: dict[str, str]
    window_s: int
    since_ms: int
    at_ms: int
    text: str


class AlertGroup(msgspec.Struct, frozen=True):
    """The state of a group that is alarming, or was until its recovery is told.

    `told` says that its firing was announced, or is about to be, so that its recovery must be
    announced too.
    """

    since_ms: int
    told: bool = False
    told_at_ms: int = 0
    pending: AlertMessage | None = None

    @property
    def fires(self) -> bool:
        return self.told and not self.is_over

    @property
    def is_over(self) -> bool:
        return self.pending is not None and self.pending.status == "recovered"


AlertState = dict[str, AlertGroup]


class Acknowledgement(msgspec.Struct, frozen=True):
    """Somebody has said at `at_ms` that they know of a group that is alarming since `since_ms`.

    It is of that time alone: once the group has recovered, and fires again, nobody knows of it.
    """

    since_ms: int
    by: str
    at_ms: int
    reason: str = ""

    def is_of(self, group: AlertGroup) -> bool:
        return self.since_ms == group.since_ms


Acknowledgements = Mapping[str, Acknowledgement]
NOTHING_KNOWN: Acknowledgements = {}
_Known = dict[str, Acknowledgement]


class StoredAlertState(NamedTuple):
    """The state of a rule with its version in the store, which the next write has to name."""

    state: AlertState
    version: int | None


Check = Callable[[AlertRule | None], None]
"""Raises what keeps a change from the alert that is there, None for none."""


def every(rule: AlertRule) -> bool:
    """Let all alerts be seen."""
    return True


def anything(there: AlertRule | None) -> None:
    """Let every alert be changed."""


_PATIENCE_MS = 60_000
_MOST_PROBLEMS, _LONGEST_PROBLEM = 100, 300


class AlertLook(msgspec.Struct, frozen=True):
    """The last look at all alerts, of a process that looks every `every_s` seconds; 0 is once.

    `problems` says by alert what could not be measured, or which webhook was not told.
    """

    at_ms: int
    every_s: float = 0.0
    problems: dict[str, str] = {}

    def is_overdue(self, now_ms: int) -> bool:
        """Tell whether the next look should have come by now."""
        return bool(self.every_s) and now_ms > self.at_ms + 2_000 * self.every_s + _PATIENCE_MS


class AlertStore:
    """Alert rules by name, each with the state of its alerts, and which of them somebody knows of.

    The state is written by what looks after alerts, what is known by people: each has a document of
    its own. A rule that is not seen is as if it were not there, but for its name, which is taken.
    """

    def __init__(
        self, documents: DocumentStore, is_seen: Callable[[AlertRule], bool] = every
    ) -> None:
        self._documents = documents
        self._is_seen = is_seen
        self._once = Once(log)

    async def rules(self) -> list[AlertRule]:
        """Return all rules by name, except those that only a newer version understands."""
        rules: list[AlertRule] = []
        for name, _, body in await self._documents.list(_RULE):
            try:
                rule = decode_rule(name, body)
            except UnknownFormat as error:
                self._once.tell(name, error)
            else:
                rules += [rule] if self._is_seen(rule) else []
        return rules

    async def rule(self, name: str) -> AlertRule:
        """Return the rule of this name; raises NotFound, with a similar name, if there is none."""
        found = await self._documents.get(_RULE, name)
        rule = decode_rule(name, found.body) if found else None
        if rule is None or not self._is_seen(rule):
            raise await self._unknown(name)
        return rule

    async def add(
        self, rule: AlertRule, *, replace: bool = False, check: Check = anything
    ) -> AlertRule | None:
        """Store a rule, whose alerts begin without a past even if it replaces an older rule.

        Return the one that was there; `check` is asked before that is replaced. Raises BadInput if
        there is a rule of this name, the name cannot be one, or there are too many.
        """
        found = await self._documents.get(_RULE, rule.name)
        before = decode_rule(rule.name, found.body) if found else None
        if before is not None and not (replace and self._is_seen(before)):
            more = "to change it replace it (--replace), or " if self._is_seen(before) else ""
            raise BadInput(f"there is an alert {rule.name!r} already; {more}choose another name")
        if before is None:
            _require_name(rule.name)
        check(before)
        if not found and len(await self._documents.list(_RULE)) >= MOST_RULES:
            raise BadInput(f"there are {MOST_RULES:,} alerts already; remove some")
        await self._forget_past(rule.name)
        version = found.version if found else None
        if await self._documents.put(_RULE, rule.name, rule.encode(), version) is None:
            raise TaskConflict(f"the alert {rule.name!r} is being changed elsewhere; try again")
        return before

    async def remove(self, name: str) -> None:
        """Remove the rule and its state; raises NotFound if there is no such rule."""
        if not await self._documents.remove(_RULE, name):
            raise await self._unknown(name)
        await self._forget_past(name)

    async def _forget_past(self, name: str) -> None:
        for kind in (_STATE, _KNOWN):
            await self._documents.remove(kind, name)

    async def load_state(self, name: str) -> StoredAlertState:
        """Return the stored state of a rule, which is empty for a rule that was never checked."""
        found = await self._documents.get(_STATE, name)
        state = msgspec.json.decode(found.body, type=AlertState) if found else {}
        return StoredAlertState(state, found.version if found else None)

    async def states(self) -> dict[str, AlertState]:
        """Return the state of each alert that has one."""
        found = await self._documents.list(_STATE)
        return {one.name: msgspec.json.decode(one.body, type=AlertState) for one in found}

    async def known(self, name: str) -> Acknowledgements:
        """Return by group what somebody knows of; it may be of an earlier time."""
        return _decode_known(await self._documents.get(_KNOWN, name))

    async def all_known(self) -> dict[str, Acknowledgements]:
        """Return the same of all alerts."""
        return {one.name: _decode_known(one) for one in await self._documents.list(_KNOWN)}

    async def change_known(
        self, name: str, edit: Callable[[Acknowledgements], Acknowledgements]
    ) -> Acknowledgements:
        """Keep what `edit` makes of what is known, and return it; it may be asked twice."""
        for _ in range(_TRIES):
            found = await self._documents.get(_KNOWN, name)
            known = edit(_decode_known(found))
            body = as_json(f"what is known of alert {name!r}", known, _Known)
            version = found.version if found else None
            if await self._documents.put(_KNOWN, name, body, version) is not None:
                return known
        raise TaskConflict(f"the alert {name!r} is being changed elsewhere; try again")

    async def save_state(
        self, name: str, state: AlertState, known: StoredAlertState
    ) -> StoredAlertState | None:
        """Store the state and return it with its version; None if another process was faster."""
        if state == known.state:
            return known
        body = as_json(f"the state of alert {name!r}", state, AlertState)
        version = await self._documents.put(_STATE, name, body, known.version)
        return None if version is None else StoredAlertState(state, version)

    async def last_look(self) -> AlertLook | None:
        """Return the last look of whatever process; None if there was none yet."""
        found = await self._documents.get(_LOOK, _ALL)
        return msgspec.json.decode(found.body, type=AlertLook) if found else None

    async def note_look(self, look: AlertLook) -> None:
        """Keep the last look; where another process has noted its own just now, that one stays."""
        told = [*look.problems.items()][:_MOST_PROBLEMS]
        cut = {name: why[:_LONGEST_PROBLEM] for name, why in told}
        body = as_json("the last look at alerts", replace(look, problems=cut), AlertLook)
        found = await self._documents.get(_LOOK, _ALL)
        await self._documents.put(_LOOK, _ALL, body, found.version if found else None)

    async def _unknown(self, name: str) -> NotFound:
        hint = did_you_mean(name, [rule.name for rule in await self.rules()])
        return NotFound(f"there is no alert {name[:64]!r}{hint} (`pushlane alerts list`)")


def _decode_known(found: Document | None) -> Acknowledgements:
    return msgspec.json.decode(found.body, type=_Known) if found else {}


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"alert name {name[:80]!r} cannot be used; take up to 64 letters, digits, dots, dashes "
            "and underscores, like failing"
        )
