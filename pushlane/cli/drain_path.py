"""Answers `/drain`: how long the backlog takes, as the dispatcher that leads has found it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any

import msgspec

from pushlane.cli.health_server import HealthReply
from pushlane.cli.parsing import parse_names
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.dispatcher import Dispatcher
from pushlane.model.presence import DrainFigures

DRAIN = "/drain"
_LONGEST_S = 5.0


def drain_path(
    dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop
) -> Callable[[Mapping[str, str]], HealthReply]:
    """Return what answers a request for the figures of all sinks, or of those in `sinks=a,b`.

    It is called on another thread than the dispatcher's loop.
    """

    def answer(query: Mapping[str, str]) -> HealthReply:
        sinks = parse_names(query.get("sinks", ""))
        if unknown := sorted(set(query) - {"sinks"}):
            return HealthReply.of_lines(400, f"unknown parameter {unknown[0]!r}; use sinks=NAME,…")
        try:
            figures = _answer_to(dispatcher.drain(sinks), loop)
        except BadInput as error:
            return HealthReply.of_lines(400, str(error))
        except PushlaneError as error:
            return HealthReply.of_lines(503, str(error))
        return HealthReply(200, msgspec.json.encode(figures) + b"\n", "application/json")

    return answer


def _answer_to(
    question: Coroutine[Any, Any, DrainFigures], loop: asyncio.AbstractEventLoop
) -> DrainFigures:
    """Have the loop answer. The server outlives it: nobody answers any more while it ends.

    Raises:
        PushlaneError: what it answers instead, or that it does not.
    """
    try:
        asked = asyncio.run_coroutine_threadsafe(question, loop)
    except RuntimeError as error:
        question.close()
        raise PushlaneError("the dispatcher has ended") from error
    try:
        return asked.result(_LONGEST_S)
    except CancelledError as error:
        raise PushlaneError("the dispatcher ends") from error
    except NoAnswer as error:
        asked.cancel()
        raise PushlaneError(f"the dispatcher has not answered for {_LONGEST_S:g} s") from error
