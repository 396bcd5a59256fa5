"""Delivers through a function of the user's own, named by itself or found by a push's type.

The function, `package.module:callable`, takes one `Push` (or, with `@batch(size)`, a list of them),
sync or async. It answers None or True for delivered, False for dead, or an `Outcome`; for a batch
one answer for all or a list of them. What it raises is retried; its messages are never kept, as
they may hold a recipient. A function that finds its provider down answers
`Outcome.throttled(reason)`: no push loses by it.

With `on:package.module` the type, `data["type"]`, says which function of those marked with `@on`: a
full type goes before a prefix like `order.*`, a longer prefix before a shorter one, and `@on()` has
what is left.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, NO_SPAN, Arrival, Kind, Outcome, Push
from pushlane.model.targets import PlainTarget
from pushlane.util.log_ids import AtHand, ids_at_hand
from pushlane.util.texts import Raised, did_you_mean, raised
from pushlane.util.threads import Threads
from pushlane.util.trace_context import current_in_opentelemetry, read_traceparent
from pushlane.util.tracestate import kept_tracestate

log = logging.getLogger("pushlane.processor")

_EVERY_S = 60.0
_MOST = 50


class RaisedLog:
    """Counts errors by type and place; of more than `_MOST` the rest is counted together.

    It logs each at once, then one line a minute.
    """

    def __init__(self, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now_s = now_s
        self._told_s: dict[Raised, float] = {}
        self._untold: dict[Raised, int] = {}

    def hear(self, error: Raised) -> None:
        if error not in self._told_s and len(self._told_s) >= _MOST:
            error = Raised("other errors")
        now_s, told_s = self._now_s(), self._told_s.get(error)
        if told_s is None:
            self._told_s[error] = now_s
            self._tell(error, "")
            return
        self._untold[error] = self._untold.get(error, 0) + 1
        if now_s - told_s >= _EVERY_S:
            self._tell_count(error, now_s)

    def tell_rest(self) -> None:
        """Log what was counted since the last line of each error."""
        for error in list(self._untold):
            self._tell_count(error, self._now_s())

    def _tell_count(self, error: Raised, now_s: float) -> None:
        count = self._untold.pop(error)
        times = "once more" if count == 1 else f"{count:,} more times"
        self._tell(error, f"; {times} in the last {max(1.0, now_s - self._told_s[error]):.0f} s")
        self._told_s[error] = now_s

    def _tell(self, error: Raised, count: str) -> None:
        ids = {} if count else ids_at_hand()  # a line that counts is about many
        extra = {"action": "processor_raised", **ids}
        log.warning("processor %s raised %s%s", self._name, error.told, count, extra=extra)


Function = TypeVar("Function", bound=Callable[..., Any])


def batch(size: int, *, mixes_tasks: bool = False) -> Callable[[Function], Function]:
    """Marks a processor that takes a list of up to `size` pushes, of one task unless `mixes_tasks`.

    Raises BadInput for a size under 1.
    """
    if size < 1:
        raise BadInput(f"batch size {size} is less than 1")

    def mark(function: Function) -> Function:
        function.batch_size = size  # type: ignore[attr-defined]
        function.mixes_tasks = mixes_tasks  # type: ignore[attr-defined]
        return function

    return mark


def load(spec: str) -> Callable[..., Any]:
    """The function that a spec names. The current folder is searched as well.

    Raises BadInput when there is no such module, or no function of the name in it, or its import
    raises.
    """
    module_name, _, path = spec.partition(":")
    found: Any = import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise BadInput(
                f"processor {spec!r}: {module_name} has no {path!r}{did_you_mean(part, dir(found))}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise BadInput(f"processor {spec!r} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


class ProcessorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a processor: the function, as `package.module:callable`."""

    function: str

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> ProcessorSink:
        """Return the sink. Raises BadInput when there is no such function."""
        return ProcessorSink(load(self.function), slots, timeout_s, retry_timeouts)

    def target(self) -> PlainTarget:
        """Return the function, by its name."""
        return PlainTarget("processor", "", (self.function,))


class ProcessorSink:
    """Calls the function, each call for at most `timeout_s`.

    A sync function runs in threads, up to twice `slots` of them. A thread that hangs cannot be
    stopped: it is replaced, until as many hang as there are slots; then tasks are paused.
    """

    name = "processor"
    hosts_code = True

    def __init__(
        self,
        function: Callable[..., Any],
        slots: int,
        timeout_s: float,
        retry_timeouts: bool = False,
    ) -> None:
        _require_one_argument(function)
        size = _size(function)
        self.batch_size: int = size or 1
        self.mixes_tasks: bool = getattr(function, "mixes_tasks", False)
        self._takes_list = size is not None
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        self._is_async = any(map(inspect.iscoroutinefunction, (function, call)))
        self._timeout_s = timeout_s
        timed_out = f"timed out after {timeout_s:g} s"
        kind = Kind.RETRY if retry_timeouts else Kind.DEAD
        self._timed_out = Outcome(kind, timed_out, arrival=Arrival.UNKNOWN, is_silent=True)
        self._most_hung = slots
        self._threads = Threads(2 * slots, "pushlane-processor")
        self._raised = RaisedLog(function_name(function))

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        if (hung := self._threads.hung) >= self._most_hung:
            told = f"{hung} calls of the processor never came back"
            why = f"{told}; restart the dispatcher, then resume"
            return [Outcome.pause(why)] * len(batch)
        pushes = [delivery.push for delivery in batch]
        argument = pushes if self._takes_list else pushes[0]
        with AtHand(batch):
            try:
                async with asyncio.timeout(self._timeout_s) as deadline:
                    with _trace_of(batch):
                        answer = await self._call(argument)
            except Exception as error:  # noqa: BLE001 - somebody else's code
                if deadline.expired():
                    return [self._timed_out] * len(batch)
                answer = raised(error)
            if isinstance(answer, Raised):
                self._raised.hear(answer)
        return _outcomes(answer, len(batch))

    async def close(self) -> None:
        self._threads.close()
        self._raised.tell_rest()

    async def _call(self, argument: Any) -> Any:
        if self._is_async:
            return await self._function(argument)
        run = copy_context().run  # so that the thread goes on in our trace
        answer = await self._threads.run(lambda: run(self._answer, argument))
        return await answer if inspect.isawaitable(answer) else answer

    def _answer(self, argument: Any) -> Any:
        """Return what the function answers, or the `Raised` of what it raised."""
        try:
            return self._function(argument)
        except BaseException as error:  # noqa: BLE001 - somebody else's code, even its sys.exit
            return raised(error)


def _trace_of(batch: Sequence[Delivery]) -> AbstractContextManager[Any]:
    """Let what is instrumented go on in the trace of a push; many pushes have no one trace."""
    told = batch[0].traceparent or batch[0].push.trace_id
    if not told or len(batch) > 1:
        return NO_SPAN
    push = batch[0].push
    return current_in_opentelemetry(
        read_traceparent(told), kept_tracestate(push.trace_id, push.tracestate)
    )


def _outcomes(answer: Any, count: int) -> list[Outcome]:
    if not isinstance(answer, list):
        return [_outcome(answer)] * count
    if len(answer) != count:
        wrong = f"the processor returned {len(answer)} outcomes for {count} pushes; fix it, resume"
        return [Outcome.pause(wrong, arrival=Arrival.UNKNOWN)] * count
    return [_outcome(each) for each in answer]


def _outcome(answer: Any) -> Outcome:
    if answer is None or answer is True:
        return DELIVERED
    if isinstance(answer, Outcome):
        return answer
    if answer is False:
        return Outcome.dead("processor returned False")
    if isinstance(answer, Raised):
        return Outcome.retry(f"processor raised {answer}", arrival=Arrival.UNKNOWN)
    return Outcome.pause(
        f"the processor returned a {type(answer).__name__}, not None, True, False or an Outcome; "
        "fix it, then resume",
        arrival=Arrival.UNKNOWN,
    )


def _require_one_argument(function: Callable[..., Any]) -> None:
    """Raise BadInput for what cannot be called with a push, or a list of them, alone."""
    name, what = function_name(function), "push" if _size(function) is None else "pushes"
    wanted = f"write it as `def {name.rpartition('.')[2].rpartition(':')[2]}({what})`"
    if inspect.isclass(function):
        raise BadInput(f"processor {name} is a class, not a function; {wanted}")
    if not callable(function):
        raise BadInput(f"processor {name} cannot be called; {wanted}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # one of C may have none
        return
    try:
        signature.bind(None)
    except TypeError:
        of = "the push" if what == "push" else "a list of pushes"
        # Their names, without defaults, which may be secrets.
        shown = ", ".join(signature.parameters)
        raise BadInput(
            f"processor {name} takes ({shown}), but is called with one argument, {of}; {wanted}"
        ) from None


def function_name(function: Any) -> str:
    """Return the function's name as in the settings; of an object, that of its class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None)
    return f"{module}:{named.__qualname__}" if module else str(named.__qualname__)


def _size(function: Any) -> int | None:
    return cast("int | None", getattr(function, "batch_size", None))


def import_module(name: str) -> Any:
    """Import a module of the user's; the current folder is searched as well. Raises BadInput."""
    here = _search_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"processor module {name!r} cannot be imported: there is no module {error.name!r} in "
            f"{here} or among the installed packages"
        ) from error
    except Exception as error:
        told = raised(error)
        places = f", at {', called from '.join(told.places[:2])}" if told.places else ""
        raise BadInput(f"processor module {name!r} raised {told.kind} on import{places}") from error


def is_module(name: str) -> bool:
    """Tell whether a module of this name, without dots, is there; it is not imported."""
    _search_here()
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _search_here() -> str:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return here


_MARK = "_pushlane_types"
_MOST_NAMED = 20


def on(*types: str) -> Callable[[Function], Function]:
    """Marks the processor of pushes of these types; `order.*` stands for all that begin so.

    Without any it is the processor of all pushes that no other one takes. Raises BadInput for an
    empty type, or a `*` that is not at its end.
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

    Raises BadInput when there is no such module, none is marked, or two are for the same type.
    """
    return marked_in(import_module(module_name))


def marked_in(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The same of a module that is loaded."""
    module_name = module.__name__
    marked: dict[int, Callable[..., Any]] = {
        id(member): member
        for member in vars(module).values()
        if callable(member) and isinstance(getattr(member, _MARK, None), tuple)
    }
    found: dict[str, Callable[..., Any]] = {}
    for function in marked.values():
        for name in dict.fromkeys(getattr(function, _MARK)):
            if name in found:
                mark = f"@on({name!r})" if name else "@on()"
                raise BadInput(
                    f"processor module {module_name!r}: {found[name].__name__} and "
                    f"{function.__name__} are both marked with {mark}; leave one"
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
