"""Keeps rules and their histories in the backend's document store, changed by compare and set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from pushlane.lanes.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.lanes.once import Once
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.suggestions import did_you_mean
from pushlane.pipeline.rules.history import History, decode_history
from pushlane.pipeline.rules.rule import Rule, decode_rule

log = logging.getLogger("pushlane.shelf")

_RULE = "rule"
_HISTORY = "rule-history"
_MOST_TRIES = 100


class RuleRecord(NamedTuple):
    """A rule with the history of its runs."""

    rule: Rule
    history: History


class RuleStore:
    """Rules by name, each with its history."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._once = Once(log)

    async def records(self) -> list[RuleRecord]:
        """Return all rules by name, except those that only a newer version understands."""
        rules = await self._documents.list(_RULE)
        kept = {one.name: one.body for one in await self._documents.list(_HISTORY)}
        records: list[RuleRecord] = []
        for name, _, body in rules:
            try:
                history = decode_history(name, kept[name]) if name in kept else History()
                records.append(RuleRecord(decode_rule(name, body), history))
            except UnknownFormat as error:
                self._once.tell(name, error)
        return records

    async def record(self, name: str) -> RuleRecord:
        """Return the rule of this name; raises BadInput, with a similar name, if there is none."""
        found = await self._documents.get(_RULE, name)
        if found is None:
            raise await self._unknown(name)
        return RuleRecord(decode_rule(name, found.body), await self.history(name))

    async def history(self, name: str) -> History:
        found = await self._documents.get(_HISTORY, name)
        return decode_history(name, found.body) if found else History()

    async def add(self, rule: Rule) -> None:
        """Store a new rule; raises BadInput if there is a rule of this name."""
        if await self._documents.get(_RULE, rule.name) is None:
            await self._documents.remove(_HISTORY, rule.name)  # of one that was removed
        if await self._documents.put(_RULE, rule.name, rule.encode(), None) is None:
            raise BadInput(
                f"there is a rule {rule.name!r} already; add --replace to change it, or choose "
                "another name"
            )

    async def replace(self, rule: Rule) -> None:
        """Store the rule in place of one of this name, or as a new one if there is none."""
        if await self._documents.get(_RULE, rule.name) is None:
            await self.add(rule)
        else:
            await self.change(rule.name, rule.replacing)

    async def change(self, name: str, edit: Callable[[Rule], Rule]) -> Rule:
        """Apply `edit` to the stored rule and return the result; raises BadInput for no rule."""
        for attempt in range(_MOST_TRIES):
            found = await self._documents.get(_RULE, name)
            if found is None:
                raise await self._unknown(name)
            old = decode_rule(name, found.body)
            rule = edit(old)
            if rule == old or await self._documents.put(_RULE, name, rule.encode(), found.version):
                return rule
            await _pause(attempt)
        raise _crowded(name)

    async def change_history(self, name: str, edit: Callable[[History], History]) -> History:
        """Apply `edit` to the stored history and return the result.

        `edit` runs again if another process was faster; what it raises is passed on.
        """
        for attempt in range(_MOST_TRIES):
            found = await self._documents.get(_HISTORY, name)
            old = decode_history(name, found.body) if found else History()
            new = edit(old)
            version = found.version if found else None
            if new == old or await self._documents.put(_HISTORY, name, new.encode(), version):
                return new
            await _pause(attempt)
        raise _crowded(name)

    async def remove(self, name: str) -> None:
        """Remove the rule and its history; raises BadInput if there is no such rule."""
        if await self._documents.get(_RULE, name) is None:
            raise await self._unknown(name)
        await self._documents.remove(_RULE, name)
        await self._documents.remove(_HISTORY, name)

    async def _unknown(self, name: str) -> BadInput:
        known = [one.name for one in await self._documents.list(_RULE)]
        return BadInput(
            f"there is no rule {name!r}{did_you_mean(name, known)} (`pushlane rules list` lists "
            "them)"
        )


async def _pause(attempt: int) -> None:
    """Wait a little before the next attempt, since the process that was faster is done soon."""
    await asyncio.sleep(min(0.001 * 2**attempt, 0.1))


def _crowded(name: str) -> TaskConflict:
    return TaskConflict(
        f"rule {name!r} is under change by other processes; see which still run, then try again"
    )
