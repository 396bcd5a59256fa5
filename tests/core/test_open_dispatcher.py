"""`Dispatcher.open`: delivers beside other work, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from pushlane import BadInput, Client, Dispatcher, MemoryBackend, Outcome, Push, SubmitRequest, on
from pushlane.core.errors import PushlaneError, UserError
from pushlane.core.task import State
from pushlane.dispatcher import presence
from pushlane.settings import Settings
from tests.core.support import DEADLINE_S, MemorySink

ROWS = [{"recipient": f"user-{number}"} for number in range(20)]


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


async def submitted(memory: MemoryBackend, settings: Settings, **options: Any) -> str:
    async with Client(settings, connect=memory.connect) as client:
        given: dict[str, Any] = {"source": ROWS, "level": "high", "title": "Hi", **options}
        return (await client.submit(SubmitRequest(**given))).task.id


async def state_of(memory: MemoryBackend, settings: Settings, task_id: str) -> State:
    async with Client(settings, connect=memory.connect) as client:
        return (await client.task(task_id)).state


async def test_a_function_gets_what_is_submitted_before_and_meanwhile(memory, settings) -> None:
    sent: list[str] = []
    tasks = [await submitted(memory, settings)]

    async with (
        asyncio.timeout(DEADLINE_S),
        Dispatcher.open(
            sink=lambda push: sent.append(push.recipient),
            settings=settings,
            connect=memory.connect,
        ) as dispatcher,
    ):
        tasks.append(await submitted(memory, settings))
        await dispatcher.drained()
        assert sorted(sent) == sorted(2 * [row["recipient"] for row in ROWS])
        assert repr(dispatcher.stats) == "<Stats delivered 40>"

    assert [await state_of(memory, settings, one) for one in tasks] == [State.DONE] * 2


def paid_module() -> tuple[ModuleType, list[str]]:
    module, sent = ModuleType("paid_orders"), []

    @on()
    def paid(push: Push) -> None:
        sent.append(push.recipient)

    vars(module)["paid"] = paid
    return module, sent


@pytest.mark.parametrize("form", ["async", "object", "module", "name", "text", "several"])
async def test_each_form_of_a_sink_delivers(
    memory, settings, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, sent = paid_module()
    monkeypatch.setitem(sys.modules, "paid_orders", module)
    sink = MemorySink()

    async def send(push: Push) -> None:
        sent.append(push.recipient)

    forms: dict[str, Any] = {
        "async": send,
        "object": sink,
        "module": module,
        "name": "paid_orders",
        "text": "paid_orders:paid",
        "several": {"default": "null", "sms": send},
    }

    async with (
        asyncio.timeout(DEADLINE_S),
        Dispatcher.open(sink=forms[form], settings=settings, connect=memory.connect) as it,
    ):
        await submitted(memory, settings, sink="sms" if form == "several" else ())
        await it.drained()

    assert len(sent) + len(sink.received) == 20


def takes_two(push: Push, level: str) -> None: ...


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (5, "sink is of type int; give a function of one push, a module with @on functions"),
        (None, "no sink is given, and the settings have none; give a function of one push"),
        ({}, "sink is an empty mapping; give at least one sink by its name"),
        ({"Fcm": print}, "a sink's name is 'Fcm'; it has up to 32 lower-case letters"),
        ({5: print}, "a sink's name is of type int; it has up to 32"),
        ({"a": 5}, "sink is of type int; give"),
        (takes_two, r"takes_two takes \(push, level\), but is called with one argument, the push"),
        (MemorySink, "MemorySink is a class, not a function"),
        (ModuleType("empty_one"), "'empty_one' has no function that is marked with"),
        ("webhok", "sink 'webhok' is not one of null, print"),
    ],
)
async def test_what_can_be_no_sink_is_refused(memory, settings, sink: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        async with Dispatcher.open(sink=sink, settings=settings, connect=memory.connect):
            pytest.fail("it began")


async def test_what_is_in_flight_is_finished_and_the_store_closed_last(memory, settings) -> None:
    begun, held, ended = asyncio.Event(), asyncio.Event(), []
    task_id = await submitted(memory, settings, source=ROWS[:1])

    async def send(push: Push) -> None:
        begun.set()
        await held.wait()
        ended.append(push.recipient)

    async with asyncio.timeout(DEADLINE_S):
        async with Dispatcher.open(sink=send, settings=settings, connect=memory.connect):
            await begun.wait()
            asyncio.get_running_loop().call_soon(held.set)

    assert ended == ["user-0"]
    assert await state_of(memory, settings, task_id) == State.DONE


async def test_an_error_in_the_block_is_raised_alone(
    settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(DEADLINE_S), Dispatcher.open(sink=print, settings=settings):
            raise ZeroDivisionError

    assert caplog.messages == []


class Dies:
    """A sink of which the dispatcher dies, as it says no batch size that can be compared."""

    name = "dies"
    mixes_tasks = False
    hosts_code = False
    batch_size: Any = 1

    async def deliver(self, batch: Any) -> Any: ...

    async def close(self) -> None: ...


@pytest.fixture
def dying(memory: MemoryBackend, settings: Settings) -> Callable[[], Any]:
    sink = Dies()
    sink.batch_size = None

    def open_it() -> Any:
        return Dispatcher.open(sink=sink, settings=settings, connect=memory.connect)

    return open_it


@pytest.mark.parametrize("wait", ["drained", "stopped"])
async def test_an_error_of_the_dispatcher_ends_a_wait(memory, settings, dying, wait: str) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), dying() as dispatcher:
            await submitted(memory, settings)
            await getattr(dispatcher, wait)()
            pytest.fail("the wait ended well")

    with pytest.raises(PushlaneError, match="the dispatcher's loop task died with TypeError"):
        await run()


async def test_an_error_of_the_dispatcher_is_raised_at_the_end(memory, settings, dying) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), dying() as dispatcher:
            await submitted(memory, settings)
            with suppress(PushlaneError):
                await dispatcher.stopped()

    with pytest.raises(PushlaneError, match="the dispatcher's loop task died with TypeError"):
        await run()


async def test_what_is_refused_at_the_start_is_raised_before_the_block(
    memory, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "PATIENCE_S", 0.0)
    sinks: list[Any] = [MemorySink(), lambda push: None]

    async with Dispatcher.open(sink=sinks[0], settings=settings, connect=memory.connect):
        with pytest.raises(UserError, match="default"):
            async with Dispatcher.open(sink=sinks[1], settings=settings, connect=memory.connect):
                pytest.fail("it began")


async def test_a_wait_for_what_is_stopped_meanwhile_ends(memory, settings) -> None:
    async def send(push: Push) -> Outcome:
        dispatcher.stop()
        return Outcome.throttled("not now")

    await submitted(memory, settings)
    with pytest.raises(PushlaneError, match="was stopped, and something may be left"):
        async with (
            asyncio.timeout(DEADLINE_S),
            Dispatcher.open(sink=send, settings=settings, connect=memory.connect) as dispatcher,
        ):
            await dispatcher.drained()


async def test_it_takes_over_no_signal(memory, settings) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async with Dispatcher.open(sink=print, settings=settings, connect=memory.connect):
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


async def test_the_constructor_takes_a_function(memory, settings) -> None:
    sent: list[str] = []
    await submitted(memory, settings)

    async with asyncio.timeout(DEADLINE_S), memory.connect(settings) as backend:
        sink = lambda push: sent.append(push.recipient)  # noqa: E731
        await Dispatcher(backend, sink, settings, drain=True).run()

    assert len(sent) == 20
