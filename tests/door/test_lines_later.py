"""Lines that nobody sends for hours: what is shown of their task, and how they are gone on with."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import pushlane.diagnosis.look
from pushlane import Dispatcher, Settings
from pushlane.backends.backend import Backend
from pushlane.core.ports import Source
from pushlane.core.push import DELIVERED, Outcome, Push
from pushlane.core.task import now_ms
from pushlane.model.states import RECEIVING, STALLED
from pushlane.producers import received
from pushlane.testing import MemoryBackend, Receiver, run_until_idle
from pushlane.util.texts import clock as clock_text
from tests.door.asking import Asking, asking
from tests.door.test_streams import lines, made, sent

ON_PULSAR = Settings(broker="pulsar://unused")
_HOURS_S = 3_600


class Forgetting:
    """A broker that forgets, when it is told to, what it has of each source."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._forgot = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def forget(self) -> None:
        self._forgot += 1

    async def publish(
        self, lane: str, messages: Sequence[bytes], *, source: Source | None = None, **more: Any
    ) -> None:
        if source is not None:
            source = source._replace(name=self._named(source.name))
        await self._broker.publish(lane, messages, source=source, **more)

    async def last_of(self, lane: str, source: str) -> int:
        return int(await self._broker.last_of(lane, self._named(source)))

    def _named(self, source: str) -> str:
        return f"{source}-{self._forgot}"


class Later:
    """A backend like one on Pulsar, whose clock is set on by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now_ms = now_ms()
        self.memory = MemoryBackend(lambda: self._now_ms)
        self.broker: Forgetting | None = None
        patch.setattr(received, "now_ms", lambda: self._now_ms)
        patch.setattr(pushlane.diagnosis.look, "_JUST_BEGUN_MS", 0)

    def wait(self, seconds: float) -> None:
        """Let so much time pass. After six hours the broker knows no source any more."""
        self._now_ms += round(seconds * 1000)
        self.memory.clock_was_set()
        if seconds > 6 * _HOURS_S and self.broker is not None:
            self.broker.forget()

    @asynccontextmanager
    async def connect(self, settings: Settings) -> AsyncIterator[Backend]:
        async with self.memory.connect(settings) as backend:
            self.broker = Forgetting(backend.broker)
            yield dataclasses.replace(backend, broker=self.broker)  # type: ignore[arg-type]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return Later(monkeypatch)


async def delivered(later: Later, receiver: Receiver, most: int) -> None:
    """Deliver what there is of a task that takes more: so many pushes."""
    enough = asyncio.Event()

    def answer(push: Push) -> Outcome:
        if len(receiver.pushes) >= most:
            enough.set()
        return DELIVERED

    receiver.answer = answer
    async with Dispatcher.open(sink=receiver, settings=Settings(), connect=later.memory.connect):
        await enough.wait()


@pytest.mark.parametrize("deliver", ["when_sealed", "at_once"])
async def test_what_was_cut_off_is_gone_on_with_seven_hours_later(
    later: Later, deliver: str
) -> None:
    receiver = Receiver()
    async with asking(ON_PULSAR, later.connect) as ask:
        task = await made(ask, deliver=deliver)
        cut = await sent(ask, task, lines(1, 2_500), b'{"recipient": "us', cut=True)
        if deliver == "at_once":
            await delivered(later, receiver, 2_500)
        later.wait(7 * _HOURS_S)
        safe = await ask("GET", f"/v1/tasks/{task}/pushes")
        rest = await sent(ask, task, lines(2_001, 4_000), first=2_001)
        sealed = await ask("POST", f"/v1/tasks/{task}/seal", {"total": 4_000})

        assert (cut.status, cut.json["safe_line"]) == (503, 2_500)
        assert safe.json["safe_line"] == 2_500
        assert (rest.json["safe_line"], sealed.json["total"]) == (4_000, 4_000)
        await run_until_idle(later.memory, receiver)

    assert Counter(receiver.recipients) == Counter(f"user-{n}" for n in range(1, 4_001))


async def test_a_task_says_since_when_lines_come_and_is_stalled_after_ten_minutes(
    later: Later,
) -> None:
    async with asking(ON_PULSAR, later.connect) as ask:
        task = await made(ask)
        created = (await ask("GET", f"/v1/tasks/{task}")).json["created_at_ms"]

        later.wait(received.WAITS_S - 1)
        await sent(ask, task, lines(1, 2))
        later.wait(received.WAITS_S - 1)
        assert await shown(ask, task) == (
            RECEIVING,
            f"it has taken lines since {clock_text(created)}",
        )
        listed = await ask("GET", "/v1/tasks", query={"state": RECEIVING})
        assert [one["id"] for one in listed.json] == [task]
        cause, *_ = (await ask("GET", f"/v1/tasks/{task}/why")).json["causes"]
        assert (cause["cause"], cause["do"]) == (
            RECEIVING,
            "send the rest of its lines, and close it",
        )

        later.wait(2)
        assert (await shown(ask, task))[0] == STALLED
        await sent(ask, task, lines(3, 3), first=3)
        assert (await shown(ask, task))[0] == RECEIVING


async def test_a_paused_task_that_takes_lines_is_shown_as_paused(later: Later) -> None:
    async with asking(ON_PULSAR, later.connect) as ask:
        task = await made(ask, deliver="at_once")
        await ask("POST", f"/v1/tasks/{task}/pause", {"reason": "wrong text"})

        assert await shown(ask, task) == ("paused", "wrong text")


async def shown(ask: Asking, task: str) -> tuple[str, str]:
    found = (await ask("GET", f"/v1/tasks/{task}")).json
    return found["shown_state"], found["shown_reason"]
