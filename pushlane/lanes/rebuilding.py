"""A registry that is a copy of a journal, where the two differ: what is to become of that."""

from __future__ import annotations

from enum import Enum

import msgspec

MOST_LOST = 10
MOST_LOST_PART = 0.01


class Beside(Enum):
    """What a rebuild does with tasks that the journal lacks."""

    REFUSED = "refused"
    """They go while few of them are unfinished; else nothing is done."""
    REMOVED = "removed"
    KEPT = "kept"
    """They are journalled again."""


class TaskCount(msgspec.Struct, frozen=True):
    tasks: int = 0
    unfinished: int = 0


class RegistryGap(msgspec.Struct, frozen=True):
    """What the journal and the registry have. `some` are ids of what the registry alone has.

    Those of unfinished tasks come first.
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
        return is_loss(
            self.registry_alone.unfinished,
            self.registry.unfinished,
            is_journal_empty=not self.journal.tasks,
        )


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
        f"the journal has {unfinished - lost:,} of the {unfinished:,} unfinished tasks that Redis "
        f"at {where} has: the registry is not filled from it, as the other {lost:,} would be lost. "
        "Either the journal's topic was made anew, or this Redis is an old copy. Look first: "
        "`pushlane registry rebuild --dry-run`; then journal again what Redis has "
        "(`pushlane registry rebuild --keep`), or let it go (`pushlane registry rebuild "
        "--accept-loss`)"
    )
