"""Reads words on the command line, completes them for the shell, and tells unknown names.

Words are read here rather than by typer, so that a wrong one is answered with the nearest right
one. To complete ids only the embedded store is asked: a key press must not wait for a network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import typer

from pushlane import settings
from pushlane.backends.backend import connect
from pushlane.backends.ports import pages
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.task import DeliveryMode, Level
from pushlane.model.states import STATES
from pushlane.util.conversion import one_of


def parse_level(word: str) -> Level:
    """Return the level of this word. Raises BadInput for a word that is no level."""
    return Level(parse_word(word, "level", tuple(Level)))


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


def _completer(words: Iterable[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [str(word) for word in words if word.startswith(incomplete)]


complete_level = _completer(Level)
complete_state = _completer(STATES)
complete_delivery = _completer(DeliveryMode)


def complete_task(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the ids that begin like this, each with the task's name."""
    flags = {name: ctx.params.get(name) for name in ("broker", "data_dir")}
    try:
        return asyncio.run(_tasks(flags, incomplete))
    except PushlaneError:
        return []


async def _tasks(flags: dict[str, str | None], incomplete: str) -> list[tuple[str, str]]:
    chosen = settings.load(flags)
    if not chosen.capabilities.is_local or chosen.is_store_missing:
        return []
    async with connect(chosen, create=False) as backend:
        tasks = [task async for page in pages(backend.registry) for task in page]
    return [(task.id, task.name) for task in tasks if task.id.startswith(incomplete)]
