"""Keeps rules and their histories in the backend's document store, changed by compare and set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.model.documents import DocumentStore
from pushlane.pipeline.rules.history import History, decode_history
from pushlane.pipeline.rules.rule import Rule, decode_rule
from pushlane.util.errors import NotFound
from pushlane.util.texts import Once, did_you_mean

log = logging.getLogger("pushlane.shelf")

LEASE = "rules"
"""Held by the process that makes the runs of rules."""

_RULE = "rule"
_HISTORY = "rule-history"
_MOST_TRIES = 100
T = TypeVar("T")
Check = Callable[[Rule | None], None]
"""Raises what keeps a change from the rule that is there, None for none."""


def every(rule: Rule) -> bool:
    """Let all rules be seen."""
    return True


def anything(there: Rule | None) -> None:
    """Let every rule be changed."""


class RuleRecord(NamedTuple):
    """A rule with the history of its runs."""

    rule: Rule
    history: History


class Changed(NamedTuple):
    """A rule before and after a change."""

    before: Rule
    after: Rule


class RuleStore:
    """Rules by name, each with its history. One that is not `seen` is as if it were not there."""

    def __init__(self, documents: DocumentStore, is_seen: Callable[[Rule], bool] = every) -> None:
        self._documents = documents
        self._is_seen = is_seen
        self._once = Once(log)

    async def records(self) -> list[RuleRecord]:
        """Return all rules by name, except those that only a newer version understands."""
        rules = await self._documents.list(_RULE)
        kept = {one.name: one.body for one in await self._documents.list(_HISTORY)}
        records: list[RuleRecord] = []
        for name, _, body in rules:
            try:
                rule = decode_rule(name, body)
                if self._is_seen(rule):
                    history = decode_history(name, kept[name]) if name in kept else History()
                    records.append(RuleRecord(rule, history))
            except UnknownFormat as error:
                self._once.tell(name, error)
        return records

    async def record(self, name: str) -> RuleRecord:
        """Return the rule of this name; raises NotFound, with a similar name, if there is none."""
        found = await self._documents.get(_RULE, name)
        rule = decode_rule(name, found.body) if found else None
        if rule is None or not self._is_seen(rule):
            raise await self._unknown(name)
        return RuleRecord(rule, await self.history(name))

    async def history(self, name: str) -> History:
        found = await self._documents.get(_HISTORY, name)
        return decode_history(name, found.body) if found else History()

    async def add(self, rule: Rule) -> None:
        """Store a new rule; raises BadInput if there is a rule of this name."""
        if await self._documents.get(_RULE, rule.name) is None:
            await self._documents.remove(_HISTORY, rule.name)  # of one that was removed
        if await self._documents.put(_RULE, rule.name, rule.encode(), None) is None:
            raise BadInput(
                f"there is a rule {rule.name!r} already; to change it replace it (--replace), or "
                "choose another name"
            )

    async def replace(self, rule: Rule, check: Check = anything) -> Rule | None:
        """Store the rule in place of one of this name, or as a new one if there is none.

        Return the one that was there. `check` is asked in the step that changes it.
        """
        if await self._documents.get(_RULE, rule.name) is None:
            check(None)
            await self.add(rule)
            return None
        return (await self.change(rule.name, rule.replacing, check)).before

    async def change(
        self, name: str, edit: Callable[[Rule], Rule], check: Check = anything
    ) -> Changed:
        """Apply `edit` to the stored rule; raises NotFound, with a similar name, for no rule."""

        def edited(body: bytes | None) -> tuple[Changed | None, bytes | None]:
            old = decode_rule(name, body) if body else None
            if old is None or not self._is_seen(old):
                return None, None
            check(old)
            rule = edit(old)
            return Changed(old, rule), rule.encode() if rule != old else None

        changed = await self._change(_RULE, name, edited)
        if changed is None:
            raise await self._unknown(name)
        return changed

    async def change_history(self, name: str, edit: Callable[[History], History]) -> History:
        """Apply `edit` to the stored history and return the result; it may be applied twice."""

        def edited(body: bytes | None) -> tuple[History, bytes | None]:
            old = decode_history(name, body) if body else History()
            history = edit(old)
            return history, history.encode() if history != old else None

        return await self._change(_HISTORY, name, edited)

    async def remove(self, name: str) -> None:
        """Remove the rule and its history; raises NotFound if there is no such rule."""
        if not await self._documents.remove(_RULE, name):
            raise await self._unknown(name)
        await self._documents.remove(_HISTORY, name)

    async def _change(
        self, kind: str, name: str, edited: Callable[[bytes | None], tuple[T, bytes | None]]
    ) -> T:
        """Store the body that `edited` makes of the stored one, and return its other result.

        It is called again with a newer body if another process was faster. A body of None means
        that nothing is to be stored.
        """
        for attempt in range(_MOST_TRIES):
            found = await self._documents.get(kind, name)
            result, body = edited(found.body if found else None)
            version = found.version if found else None
            if body is None or await self._documents.put(kind, name, body, version):
                return result
            await asyncio.sleep(min(0.001 * 2**attempt, 0.1))  # who was faster is done soon
        raise TaskConflict(
            f"rule {name!r} is being changed by other processes; see which still run, then try "
            "again"
        )

    async def _unknown(self, name: str) -> NotFound:
        hint = did_you_mean(name, [one.rule.name for one in await self.records()])
        return NotFound(f"there is no rule {name[:64]!r}{hint} (`pushlane rules list` lists them)")
