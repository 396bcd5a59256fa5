"""Answers `/drain`: how long the backlog takes, as the dispatcher that leads has found it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as NoAnswer

import msgspec

from pushlane.cli.health_server import HealthReply
from pushlane.cli.parsing import parse_names
from pushlane.dispatcher import Dispatcher
from pushlane.lanes.errors import BadInput, PushlaneError

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
        asked = asyncio.run_coroutine_threadsafe(dispatcher.drain(sinks), loop)
        try:
            figures = asked.result(_LONGEST_S)
        except BadInput as error:
            return HealthReply.of_lines(400, str(error))
        except PushlaneError as error:
            return HealthReply.of_lines(503, str(error))
        except NoAnswer:
            asked.cancel()
            return HealthReply.of_lines(
                503, f"the dispatcher has not answered for {_LONGEST_S:g} s"
            )
        return HealthReply(200, msgspec.json.encode(figures) + b"\n", "application/json")

    return answer
