"""Tells what the final answers of a sink are worth: what is known of its target. Pure.

A final answer, like HTTP 404, may be about its push, or about a URL with a mistake in it. A target
that has delivered is known to be right. One that never has is not, so a row of such answers is
counted, and told in words that hold nothing of a push.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto

import msgspec

from pushlane.dispatcher.reasons import as_label


class TargetStanding(Enum):
    """The knowledge of a sink's target, from all processes that ever delivered to it."""

    UNKNOWN = auto()
    """Nobody keeps it: its final answers are believed until it delivers here."""

    NEW = auto()
    """It has never delivered: a row of final answers makes the sink rest."""

    ACCEPTED = auto()
    """It has never delivered, and somebody has said that its final answers are right."""

    PROVEN = auto()
    """It has delivered."""


class TargetWords(msgspec.Struct, frozen=True):
    """The words for a target that may be the wrong one: what it is, and what to ask about it."""

    who: str = "it"
    question: str = "is it set up right?"


class FinalRow:
    """Final answers that may be about the sink, with nothing between. Each push counts once.

    `reasons` has them by the id of their push.
    """

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, push_id: str, reason: str) -> None:
        self.reasons[push_id] = reason

    def clear(self) -> None:
        self.reasons.clear()

    def told(self, words: TargetWords, *, quotes: bool) -> str:
        """Say what was answered; without `quotes` no reason is named, as it may hold anything."""
        count, all_of_them = len(self), f"to all {len(self)} pushes"
        [(most, times)] = Counter(
            as_label(reason, is_own_words=False) for reason in self.reasons.values()
        ).most_common(1)
        said = f"has given final answers {all_of_them}"
        if quotes:
            is_same = times == count
            said = f"has answered {most} {all_of_them}" if is_same else f"{said}, most often {most}"
        return f"{words.who} {said}: {words.question}"
