"""Which readers the broker is asked about, when, and what is done for those that are stalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pushlane.backends.pulsar.stalls import StallWatch, Topic
from pushlane.core.errors import Unreachable


@dataclass(eq=False)
class Reader:
    lane: str = "lane"
    given: int = 0
    is_idle: bool = True

    @property
    def consumer_name(self) -> str:
        return f"consumer of {self.lane}"


@dataclass
class Broker:
    """Has `unsent` messages of each lane, or fails; `done` is what was done about them."""

    unsent: int | Exception = 0
    asked: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    now_s: float = 0.0
    on_ask: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.watch = StallWatch[Reader](Topic(self._unsent, self._unload), lambda: self.now_s)

    async def _unsent(self, lane: str, consumer: str) -> int:
        assert consumer == f"consumer of {lane}"
        self.asked.append(lane)
        self.on_ask()
        if isinstance(self.unsent, Exception):
            raise self.unsent
        return self.unsent

    async def _unload(self, lane: str) -> None:
        self.done.append(f"unload {lane}")

    async def _reopen(self, reader: Reader) -> None:
        self.done.append(f"reopen {reader.lane}")

    def pass_s(self, seconds: int, readers: list[Reader]) -> None:
        """Let the time pass, with a look each second."""
        for _ in range(seconds):
            self.now_s += 1
            idle = [reader for reader in readers if reader.is_idle]
            asyncio.run(self.watch.look(idle, self._reopen))


def test_a_lane_on_which_nothing_is_left_is_asked_about_ever_less_often() -> None:
    broker = Broker()

    broker.pass_s(3_600, [Reader()])

    assert 10 <= len(broker.asked) <= 20  # an hour, and 300 s at most between two
    assert broker.done == []


def test_a_stalled_one_is_read_anew_and_then_its_topic_unloaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, broker = Reader(), Broker(unsent=7)

    broker.pass_s(8, [reader])
    assert broker.done == ["reopen lane"]
    broker.pass_s(22, [reader])
    assert broker.done == ["reopen lane", "unload lane"]
    assert "the broker has 7 messages and has sent none for" in caplog.text


def test_what_was_sent_between_two_looks_is_no_stall() -> None:
    reader = Reader()

    def arrive() -> None:
        reader.given += 1

    broker = Broker(unsent=7, on_ask=arrive)
    broker.pass_s(600, [reader])

    assert broker.asked
    assert broker.done == []


def test_one_look_is_not_believed() -> None:
    broker = Broker()

    def turn() -> None:
        broker.unsent = 0 if len(broker.asked) % 2 == 0 else 7

    broker.on_ask = turn
    broker.pass_s(3_600, [Reader()])

    assert len(broker.asked) > 10
    assert broker.done == []


def test_one_that_has_pushes_in_hand_is_not_asked_about() -> None:
    broker = Broker(unsent=7)

    broker.pass_s(60, [Reader(is_idle=False)])

    assert broker.asked == []


def test_of_thousands_a_few_a_second_are_asked_about_those_asked_least_first() -> None:
    broker = Broker()
    many = [Reader(f"lane-{number}") for number in range(1_000)]
    broker.pass_s(60, many)
    first = broker.asked.copy()
    assert len(set(first)) == len(first) <= 8 * 60

    broker.pass_s(120, [Reader("new"), *many])

    assert set(broker.asked[: len(many) + 1]) == {"new", *(one.lane for one in many)}


def test_a_broker_that_does_not_answer_is_asked_again_later() -> None:
    reader, broker = Reader(), Broker(unsent=Unreachable("it is away"))

    broker.pass_s(60, [reader])
    asked = len(broker.asked)
    broker.unsent = 7
    broker.pass_s(120, [reader])

    assert 0 < asked < 5
    assert broker.done[0] == "reopen lane"
