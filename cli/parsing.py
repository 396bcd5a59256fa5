"""Words that stand for values on the command line: levels, states as shown, delivery modes.

Read here rather than by typer, so that a wrong one is answered with the nearest right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pushlane.lanes.errors import BadInput
from pushlane.lanes.suggestions import did_you_mean
from pushlane.lanes.task import DeliveryMode, Level, OnUnknown, State, Task

SCHEDULED = "scheduled"
STATES = (*(state.value for state in State), SCHEDULED)


def parse_level(word: str) -> Level:
    """Raises BadInput for a word that is no level."""
    return Level(_known(word, "level", [level.value for level in Level]))


def parse_state(word: str) -> str:
    """Raises BadInput for a word that is no state."""
    return _known(word, "state", STATES)


def shown_state(task: Task, now_ms: int) -> str:
    """Its state; a running task whose start is still to come is scheduled."""
    waits = task.state is State.RUNNING and task.is_scheduled(now_ms)
    return SCHEDULED if waits else task.state.value


def parse_delivery(word: str) -> DeliveryMode:
    """Raises BadInput for a word that is no delivery mode."""
    return DeliveryMode(_known(word, "delivery", [mode.value for mode in DeliveryMode]))


def parse_on_unknown(word: str) -> OnUnknown:
    """Raises BadInput for a word that says nothing of unknown pushes."""
    return OnUnknown(_known(word, "on-unknown", [word.value for word in OnUnknown]))


def parse_dedupe(word: str) -> Literal["recipient"]:
    """Raises BadInput for what pushes cannot be compared by."""
    _known(word, "dedupe", ["recipient"])
    return "recipient"


def parse_pairs(given: Sequence[str], flag: str) -> dict[str, str]:
    """Raises BadInput for what is not NAME=VALUE; of its value nothing is said."""
    pairs = [text.partition("=") for text in given]
    bad = next((name for name, equals, _ in pairs if not (name and equals)), None)
    if bad is not None:
        raise BadInput(f"{flag} {bad!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}


def pushes_text(number: int) -> str:
    return "1 push" if number == 1 else f"{number:,} pushes"


def _known(word: str, what: str, known: Sequence[str]) -> str:
    if word.lower() not in known:
        raise BadInput(
            f"unknown {what} {word!r}; use {', '.join(known)}{did_you_mean(word, known)}"
        )
    return word.lower()
