"""Delivers through a function of the user's own, given as `package.module:callable`.

The function takes one `Push` (or, with `@batch(size)`, a list of them), sync or async. It answers
None or True for delivered, False for dead, or an `Outcome`; for a batch one answer for all or a
list of them. What it raises is retried; its messages are never kept, as they may hold a recipient.
A function that finds its provider down answers `Outcome.throttled(reason)`: no push loses by it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome
from pushlane.dispatcher.sinks.raised_log import RaisedLog
from pushlane.dispatcher.sinks.threads import Threads
from pushlane.lanes.ports import Delivery
from pushlane.lanes.suggestions import did_you_mean
from pushlane.model.targets import PlainTarget
from pushlane.util.texts import Raised, raised

Function = TypeVar("Function", bound=Callable[..., Any])


def batch(size: int, *, mixes_tasks: bool = False) -> Callable[[Function], Function]:
    """Marks a processor that takes a list of up to `size` pushes, of one task unless `mixes_tasks`.

    Raises:
        BadInput: a size under 1.
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

    Raises:
        BadInput: no such module or name in it, not a function, or its import raises.
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
        self._is_async = _is_async(function)
        self._timeout_s = timeout_s
        timed_out = f"timed out after {timeout_s:g} s"
        kind = Kind.RETRY if retry_timeouts else Kind.DEAD
        self._timed_out = Outcome(kind, timed_out, arrival=Arrival.UNKNOWN, is_silent=True)
        self._most_hung = slots
        self._threads = Threads(2 * slots)
        self._raised = RaisedLog(_name(function))

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        if self._threads.hung >= self._most_hung:
            return [_hangs(self._threads.hung)] * len(batch)
        pushes = [delivery.push for delivery in batch]
        argument = pushes if self._takes_list else pushes[0]
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
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
        answer = await self._threads.run(self._function, argument)
        return await answer if inspect.isawaitable(answer) else answer


def _outcomes(answer: Any, count: int) -> list[Outcome]:
    if not isinstance(answer, list):
        return [_outcome(answer)] * count
    if len(answer) != count:
        wrong = f"the processor returned {len(answer)} outcomes for {count} pushes; mend it, resume"
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
        return _unheard(f"processor raised {answer}")
    return Outcome.pause(
        f"the processor returned a {type(answer).__name__}, not None, True, False or an Outcome; "
        "mend it, then resume",
        arrival=Arrival.UNKNOWN,
    )


def _unheard(reason: str) -> Outcome:
    return Outcome.retry(reason, arrival=Arrival.UNKNOWN)


def _hangs(count: int) -> Outcome:
    return Outcome.pause(
        f"{count} calls of the processor never came back; restart the dispatcher, then resume"
    )


def _require_one_argument(function: Callable[..., Any]) -> None:
    """Raise BadInput for what cannot be called with a push, or a list of them, alone."""
    name, what = _name(function), "push" if _size(function) is None else "pushes"
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
        raise BadInput(
            f"processor {name} takes {_shown(signature)}, but is called with one argument, {of}; "
            f"{wanted}"
        ) from None


def _name(function: Any) -> str:
    """Return the function's name as in the settings; of an object, that of its class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None)
    return f"{module}:{named.__qualname__}" if module else str(named.__qualname__)


def _shown(signature: inspect.Signature) -> str:
    """Return the names of its parameters, without defaults, which may be secrets."""
    return f"({', '.join(signature.parameters)})"


def _size(function: Any) -> int | None:
    size: int | None = getattr(function, "batch_size", None)
    return size


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def import_module(name: str) -> Any:
    """Import a module of the user's; the current folder is searched as well. Raises BadInput."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
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
