"""Keeps alert rules and their states in the backend's document store."""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.lanes.once import Once
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.stored import as_json
from pushlane.lanes.suggestions import did_you_mean
from pushlane.pipeline.alerts.alert_rule import AlertRule, decode_rule
from pushlane.pipeline.alerts.firing import AlertState

log = logging.getLogger("pushlane.shelf")

_RULE = "alert"
_STATE = "alert-state"
MOST_RULES = 1_000


class StoredAlertState(NamedTuple):
    """The state of a rule with its version in the store, which the next write has to name."""

    state: AlertState
    version: int | None


class AlertStore:
    """Alert rules by name, and for each the state of its alerts."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._once = Once(log)

    async def rules(self) -> list[AlertRule]:
        """Return all rules by name, except those that only a newer version understands."""
        rules: list[AlertRule] = []
        for name, _, body in await self._documents.list(_RULE):
            try:
                rules.append(decode_rule(name, body))
            except UnknownFormat as error:
                self._once.tell(name, error)
        return rules

    async def rule(self, name: str) -> AlertRule:
        """Return the rule of this name; raises BadInput, with a similar name, if there is none."""
        found = await self._documents.get(_RULE, name)
        if found is None:
            raise await self._unknown(name)
        return decode_rule(name, found.body)

    async def add(self, rule: AlertRule, *, replace: bool = False) -> None:
        """Store a rule, whose alerts begin without a past even if it replaces an older rule.

        Raises:
            BadInput: there is a rule of this name, or there are too many.
        """
        found = await self._documents.get(_RULE, rule.name)
        if found and not replace:
            raise BadInput(
                f"there is an alert {rule.name!r} already; add --replace, or choose another name"
            )
        if not found and len(await self._documents.list(_RULE)) >= MOST_RULES:
            raise BadInput(f"there are {MOST_RULES:,} alerts already; remove some")
        await self._documents.remove(_STATE, rule.name)
        version = found.version if found else None
        if await self._documents.put(_RULE, rule.name, rule.encode(), version) is None:
            raise TaskConflict(f"the alert {rule.name!r} is being changed elsewhere; try again")

    async def remove(self, name: str) -> None:
        """Remove the rule and its state; raises BadInput if there is no such rule."""
        if not await self._documents.remove(_RULE, name):
            raise await self._unknown(name)
        await self._documents.remove(_STATE, name)

    async def load_state(self, name: str) -> StoredAlertState:
        """Return the stored state of a rule, which is empty for a rule that was never checked."""
        found = await self._documents.get(_STATE, name)
        if found is None:
            return StoredAlertState({}, None)
        return StoredAlertState(msgspec.json.decode(found.body, type=AlertState), found.version)

    async def save_state(
        self, name: str, state: AlertState, known: StoredAlertState
    ) -> StoredAlertState | None:
        """Store the state and return it with its version; None if another process was faster."""
        if state == known.state:
            return known
        version = await self._documents.put(
            _STATE, name, as_json(f"the state of alert {name!r}", state, AlertState), known.version
        )
        return None if version is None else StoredAlertState(state, version)

    async def _unknown(self, name: str) -> BadInput:
        names = [rule.name for rule in await self.rules()]
        return BadInput(
            f"there is no alert {name!r}{did_you_mean(name, names)} (`pushlane alerts list`)"
        )
