"""Places in a topic, and what the admin REST tells of the topic by them."""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

import msgspec


class Place(msgspec.Struct):
    """The place of a message, as the broker names it."""

    ledger: int = msgspec.field(name="ledgerId")
    entry: int = msgspec.field(name="entryId")


class Position(NamedTuple):
    """A ledger and an entry, which grow along a topic; a text of them is `ledger:entry`."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Self:
        ledger, entry = text.split(":")[:2]
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


_Where = Annotated[str, msgspec.Meta(pattern=r"^-?\d+:-?\d+(:|$)")]


class LedgerSegment(msgspec.Struct):
    """A ledger of a topic; the one that is still written to shows no entries yet."""

    name: int = msgspec.field(name="ledgerId")
    entries: int


class _CursorStats(msgspec.Struct):
    marked: _Where = msgspec.field(name="markDeletePosition")


class TopicStats(msgspec.Struct):
    """The parts of the broker's internal stats of a topic that are looked at."""

    confirmed: _Where = msgspec.field(name="lastConfirmedEntry")
    ledgers: list[LedgerSegment]
    cursors: dict[str, _CursorStats]
