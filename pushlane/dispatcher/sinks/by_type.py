"""Delivers each push through the function for its type, given as `on:package.module`.

The type is `data["type"]`. All functions of the module that are marked with `@on` are taken: a full
type goes before a prefix like `order.*`, a longer prefix before a shorter one, and `@on()` has what
is left. What a function takes, may answer and may raise is as in `processor`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.push import Arrival, Outcome, Push
from pushlane.dispatcher.sinks.processor import ProcessorSink, import_module
from pushlane.lanes.ports import Delivery
from pushlane.model.targets import PlainTarget

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "_pushlane_types"
_MOST_NAMED = 20


def on(*types: str) -> Callable[[Function], Function]:
    """Marks the processor of pushes of these types; `order.*` stands for all that begin so.

    Without any it is the processor of all pushes that no other one takes.

    Raises:
        BadInput: an empty type, or a `*` that is not at its end.
    """
    for name in types:
        if not isinstance(name, str) or not name.rstrip("*") or "*" in name[:-1]:
            raise BadInput(
                f"type {name!r} is neither like 'order.paid' nor like 'order.*'; write @on() for "
                "all other types"
            )

    def mark(function: Function) -> Function:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), *(types or ("",))))
        return function

    return mark


def load_marked(module_name: str) -> dict[str, Callable[..., Any]]:
    """The functions of a module that are marked with `@on`, by type; an empty one is all others'.

    Raises:
        BadInput: no such module, none is marked in it, or two are for the same type.
    """
    marked: dict[int, Callable[..., Any]] = {
        id(member): member
        for member in vars(import_module(module_name)).values()
        if callable(member) and isinstance(getattr(member, _MARK, None), tuple)
    }
    found: dict[str, Callable[..., Any]] = {}
    for function in marked.values():
        for name in dict.fromkeys(getattr(function, _MARK)):
            if name in found:
                raise BadInput(
                    f"processor module {module_name!r}: {found[name].__name__} and "
                    f"{function.__name__} are both marked with {_marked_as(name)}; leave one"
                )
            found[name] = function
    if not found:
        raise BadInput(
            f"processor module {module_name!r} has no function that is marked with @on; mark some, "
            "like @on('order.paid')"
        )
    return found


class ByTypeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of processors by type: the module whose functions are marked with `@on`."""

    module: str

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> TypeSink:
        """Return the sink. Raises BadInput when no function of the module is marked."""
        return TypeSink(load_marked(self.module), slots, timeout_s, retry_timeouts)

    def target(self) -> PlainTarget:
        """Return the module, by its name."""
        return PlainTarget("on", "", (self.module,))


class TypeSink:
    """Calls of each function are as a `ProcessorSink` makes them, all functions at once.

    A batch is as large as the largest that a function takes; each gets its own part of it. Threads
    are each function's own, so that one that hangs stops no other.
    """

    name = "processor"
    hosts_code = True

    def __init__(
        self,
        functions: dict[str, Callable[..., Any]],
        slots: int,
        timeout_s: float,
        retry_timeouts: bool = False,
    ) -> None:
        by_function = {
            id(function): ProcessorSink(function, slots, timeout_s, retry_timeouts)
            for function in functions.values()
        }
        self._sinks = list(by_function.values())
        self.batch_size = max(sink.batch_size for sink in self._sinks)
        self.mixes_tasks = any(sink.mixes_tasks for sink in self._sinks)
        whole = {name: by_function[id(function)] for name, function in functions.items()}
        self._others = whole.pop("", None)
        prefixes = sorted((name for name in whole if name.endswith("*")), key=len, reverse=True)
        self._prefixes = [(name[:-1], whole.pop(name)) for name in prefixes]
        self._by_type = whole
        self._unhandled = _unhandled(name for name in functions if name)

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        if len(batch) == 1:
            sink = self._sink_of(batch[0].push)
            return [self._unhandled] if sink is None else await sink.deliver(batch)
        outcomes = [self._unhandled] * len(batch)
        calls = self._calls(batch)
        answers = await asyncio.gather(
            *(sink.deliver([batch[place] for place in places]) for sink, places in calls)
        )
        for (_, places), answered in zip(calls, answers, strict=True):
            for place, outcome in zip(places, answered, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def close(self) -> None:
        for sink in self._sinks:
            await sink.close()

    def _sink_of(self, push: Push) -> ProcessorSink | None:
        kind = push.data.get("type") if push.data else None
        if not isinstance(kind, str):
            return self._others
        if (sink := self._by_type.get(kind)) is not None:
            return sink
        for prefix, sink in self._prefixes:
            if kind.startswith(prefix):
                return sink
        return self._others

    def _calls(self, batch: Sequence[Delivery]) -> list[tuple[ProcessorSink, list[int]]]:
        """Return the calls that a batch is cut into, each with the places of its pushes."""
        groups: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        sinks: dict[int, ProcessorSink] = {}
        for place, delivery in enumerate(batch):
            if (sink := self._sink_of(delivery.push)) is None:
                continue
            sinks[id(sink)] = sink
            groups[id(sink), "" if sink.mixes_tasks else delivery.push.task_id].append(place)
        return [
            (sinks[known], places[start : start + sinks[known].batch_size])
            for (known, _), places in groups.items()
            for start in range(0, len(places), sinks[known].batch_size)
        ]


def _unhandled(types: Iterable[str]) -> Outcome:
    """Return the outcome of a push that no function takes: it names their types, not its own."""
    names = sorted(types)
    shown = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return Outcome.dead(
        f"no processor for the push's data['type']; there are some for: {shown}{more}",
        arrival=Arrival.REFUSED,
    )


def _marked_as(name: str) -> str:
    return f"@on({name!r})" if name else "@on()"
