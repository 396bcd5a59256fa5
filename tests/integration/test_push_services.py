"""A dispatcher with two push services behind one sink, of which one is down, or refuses our key."""

from __future__ import annotations

from pathlib import Path

from pushlane.core.task import Progress, State
from pushlane.dispatcher.sinks.webpush import WebPushOptions
from tests.core.support import (
    add_task,
    backend_in,
    dispatching,
    until,
    until_state,
)
from tests.emulators.http2_server import Answer
from tests.emulators.webpush import WebPushEmulator

PUSHES, HALF, SLOTS = 60, 30, 8


def sink_to(emulator):
    return WebPushOptions(
        vapid_key=emulator.vapid_text,
        subject="mailto:push@example.com",
        hosts=("127.0.0.1", "localhost"),
        allow=("127.0.0.1", "localhost"),
        only_http2=True,
    ).open(SLOTS, 60.0, False)


def addresses(emulator):
    """Odd pushes go to the one service and even ones to the other, at its other name."""
    texts = [one.subscription(emulator.url) for one in emulator.browsers.values()]
    others = [one.replace("127.0.0.1", "localhost") for one in texts]
    return lambda seq: {"": (texts, others)[seq % 2 == 0][seq % len(texts)]}


class TwoServices(WebPushEmulator):
    """One server under two names, which answers `told` at the second one, `localhost`."""

    def __init__(self, told):
        super().__init__(count=3)
        self.told = told
        self.asked = 0

    def _answer(self, request):
        if not request.headers[":authority"].startswith("localhost"):
            return super()._answer(request)
        self.asked += 1
        return self.told


async def test_while_one_is_down_the_other_goes_on_and_nothing_is_lost(tmp_path: Path):
    emulator = TwoServices(Answer(503))
    async with emulator.running(), backend_in(tmp_path) as (backend, settings):
        sink = sink_to(emulator)
        task = await add_task(backend, pushes=PUSHES, addresses=addresses(emulator))
        async with dispatching(backend, sink, settings):
            await until(lambda: len(emulator.delivered) >= HALF)
            emulator.told = Answer(201)
            await until_state(backend, task, State.DONE)
        await sink.close()
        [progress] = await backend.registry.progress([task.id])

    assert progress == Progress(task.id, delivered=PUSHES)


async def test_one_that_refuses_our_key_is_left_alone_and_the_other_goes_on(tmp_path: Path):
    emulator = TwoServices(Answer(403))
    async with emulator.running(), backend_in(tmp_path) as (backend, settings):
        sink = sink_to(emulator)
        task = await add_task(backend, pushes=PUSHES, addresses=addresses(emulator))
        async with dispatching(backend, sink, settings):
            await until(lambda: len(emulator.delivered) >= HALF)
        await sink.close()
        [progress] = await backend.registry.progress([task.id])

    assert emulator.asked <= SLOTS + 3  # three hold it, and those were on their way
    assert progress == Progress(task.id, delivered=HALF)
