"""Sinks as a program gives them: a text, a function, a module, an object, or several by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, cast

from pushlane.core.errors import BadInput
from pushlane.core.names import DEFAULT_SINK, SINK_NAME
from pushlane.core.ports import Sink
from pushlane.dispatcher.sinks import KINDS, open_sink
from pushlane.dispatcher.sinks.named import open_sinks
from pushlane.dispatcher.sinks.processor import (
    ProcessorSink,
    TypeSink,
    function_name,
    is_module,
    marked_in,
)
from pushlane.model.targets import PlainTarget
from pushlane.settings import Settings
from pushlane.util.conversion import kind_of

OneSink = Sink | Callable[..., Any] | ModuleType | str
"""A sink as a program gives it: an object with `deliver`, a function of one push, sync or async, a
module of functions marked with `@on` or its name, or a text as `--sink` takes it."""

AnySink = OneSink | Mapping[str, OneSink]
"""One of these, or several by name."""

_CAN_BE = (
    "give a function of one push, a module with @on functions or its name, a text like "
    "webhook:URL, or an object with `deliver`"
)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class GivenSinks(NamedTuple):
    """The sinks by name, and those of them that were made here: who asked for them closes these."""

    by_name: dict[str, Sink]
    made: list[Sink]


def given_sinks(
    given: AnySink | None, settings: Settings, *, retry_timeouts: bool = False
) -> GivenSinks:
    """Return the sinks that a program gives; of None those of the settings.

    Raises BadInput for what can be no sink; says what can be given.
    """
    if given is None:
        return _of_settings(settings, retry_timeouts)
    found = GivenSinks({}, [])
    for name, one in _by_name(given).items():
        sink = _sink(one, settings.of_sink(name), retry_timeouts)
        found.by_name[name] = sink
        if sink is not one:
            found.made.append(sink)
    return found


def _of_settings(settings: Settings, retry_timeouts: bool) -> GivenSinks:
    if settings.served == (DEFAULT_SINK,) and settings.sink == "null":
        raise BadInput(f"no sink is given, and the settings have none; {_CAN_BE}")
    sinks = open_sinks(settings, retry_timeouts=retry_timeouts)
    return GivenSinks(sinks, list(sinks.values()))


def _by_name(given: AnySink) -> Mapping[str, OneSink]:
    if not isinstance(given, Mapping):
        return {DEFAULT_SINK: given}
    if not given:
        raise BadInput("sink is an empty mapping; give at least one sink by its name")
    for name in given:
        if not isinstance(name, str) or not SINK_NAME.fullmatch(name):
            shown = f"{name[:40]!r}" if isinstance(name, str) else kind_of(name)
            raise BadInput(
                f"a sink's name is {shown}; it has up to 32 lower-case letters, digits, - and _, "
                "and begins with a letter"
            )
    return given


def _sink(given: OneSink, settings: Settings, retry_timeouts: bool) -> Sink:
    how = settings.slots, settings.sink_timeout_s, retry_timeouts
    if isinstance(given, str):
        spec = f"on:{given}" if _names_module(given) else given
        slots, timeout_s, _ = how
        return open_sink(spec, slots=slots, timeout_s=timeout_s, retry_timeouts=retry_timeouts)
    if isinstance(given, ModuleType):
        sink: Any = TypeSink(marked_in(given), *how)
        sink.target = PlainTarget("on", "", (given.__name__,))
        return cast(Sink, sink)
    if not isinstance(given, type) and callable(getattr(given, "deliver", None)):
        return cast(Sink, given)
    if not callable(given):
        raise BadInput(f"sink is {kind_of(given)}; {_CAN_BE}, or several of them by name")
    sink = ProcessorSink(given, *how)
    sink.target = PlainTarget("processor", "", (function_name(given),))
    return cast(Sink, sink)


def _names_module(given: str) -> bool:
    """Tell whether a text is the name of a module that is there, and of no kind of sink."""
    if given in KINDS or not _MODULE.fullmatch(given):
        return False
    return "." in given or is_module(given)
