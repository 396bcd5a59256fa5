"""Reads words on the command line that stand for levels, states and delivery modes.

Read here rather than by typer, so that a wrong one is answered with the nearest right one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.core.errors import BadInput
from pushlane.core.task import Level, State, Task
from pushlane.diagnosis.task_status import SCHEDULED, SHOWN_STATES
from pushlane.util.conversion import one_of

STATES = (*(state.value for state in State), *SHOWN_STATES)


def parse_level(word: str) -> Level:
    """Return the level of this word. Raises BadInput for a word that is no level."""
    return Level(parse_word(word, "level", tuple(Level)))


def shown_state(task: Task, now_ms: int) -> str:
    """Return the task's state; a running task whose start is still to come is scheduled."""
    waits = task.state is State.RUNNING and task.is_scheduled(now_ms)
    return SCHEDULED if waits else task.state.value


def parse_names(given: str | None) -> tuple[str, ...]:
    """Return the names in a text like `a,b`, each once."""
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in (given or "").split(",")))))


def parse_pairs(given: Sequence[str], flag: str) -> dict[str, str]:
    """Return the pairs. Raises BadInput for a text that is not NAME=VALUE, without its value."""
    pairs = [text.partition("=") for text in given]
    bad = next((name for name, equals, _ in pairs if not (name and equals)), None)
    if bad is not None:
        raise BadInput(f"{flag} {bad!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}


def parse_key(given: str | None) -> str:
    """Return the key, empty where none was given. Raises BadInput for one that is blank."""
    if given is not None and not given.strip():
        raise BadInput(
            f"--key {given!r} is blank: is the variable that it comes from set? Without --key, "
            "each run makes another task"
        )
    return given or ""


def pushes_text(number: int) -> str:
    return "1 push" if number == 1 else f"{number:,} pushes"


def rows_text(number: int, what: str = "row") -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def parse_word(word: str, what: str, known: Sequence[str]) -> str:
    """Return the known word that this one is. Raises BadInput for a word that is none."""
    return one_of(what, word, list(map(str, known)))
