"""Tells which entries a partition's topic holds, and how positions in it relate. Pure.

A position is the ledger and entry to be read next. The broker begins a new ledger now and then,
removes an empty one when it closes, and the oldest ones when they are over.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from pushlane.lanes.pulsar.positions import LedgerSegment, Position, TopicStats


class Extent(NamedTuple):
    """The ledgers of a topic, oldest first, and the position that its subscription reads next."""

    ledgers: list[LedgerSegment]
    cursor: Position

    @classmethod
    def of(cls, stats: TopicStats, subscription: str) -> Self:
        """Read the extent from stats; the ledger still written to ends at its confirmed entry."""
        confirmed = Position.parse(stats.confirmed)
        closed = [*stats.ledgers]
        if closed and closed[-1].name == confirmed.ledger:
            closed[-1] = LedgerSegment(confirmed.ledger, confirmed.entry + 1)
        marked = Position.parse(stats.cursors[subscription].marked)
        return cls(closed, Position(marked.ledger, marked.entry + 1))

    @property
    def first(self) -> Position:
        return Position(self.ledgers[0].name, 0) if self.ledgers else Position(0, 0)

    def count_from(self, start: Position) -> int:
        """Count the entries from here on."""
        return sum(
            max(0, ledger.entries - (start.entry if ledger.name == start.ledger else 0))
            for ledger in self.ledgers
            if ledger.name >= start.ledger
        )

    def after(self, start: Position, count: int) -> Position:
        """Return the position so many entries further, which must be there."""
        position, left = start, count
        for ledger in self.ledgers:
            if not left:
                break
            if ledger.name < start.ledger:
                continue
            begin = start.entry if ledger.name == start.ledger else 0
            step = min(left, max(0, ledger.entries - begin))
            if step:
                position, left = Position(ledger.name, begin + step), left - step
        return position

    def holds(self, start: Position, committed: Position | None) -> bool:
        """Return whether everything from here on is still there.

        A ledger that is gone had been read to its end, or had nothing on it, when the cursor stands
        there still; or when it stands at a beginning, which no removal leads to.
        """
        if any(ledger.name == start.ledger for ledger in self.ledgers) or self.cursor == start:
            return True
        is_beginning = self.cursor.entry == 0
        return is_beginning and (start.entry == 0 or start == committed)
