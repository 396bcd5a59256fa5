"""The watchdog counts its own ticks, and says where all threads are before it ends the process."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane.cli.errors import HUNG
from pushlane.cli.health import STUCK_S, Health, loop_patience_s
from pushlane.cli.signals import Watchdog, ended_if_hung, leave, stacks
from pushlane.settings import Settings
from tests.backends.test_contact import Clock

PATIENCE_S = 5.0


class Loop:
    """The last beat of an event loop, None while it does not run."""

    def __init__(self) -> None:
        self.beat_s: float | None = 0.0
        self.watchdog = Watchdog(lambda: self.beat_s, PATIENCE_S)

    def ticks(self, count: int) -> list[bool]:
        return [self.watchdog.tick() for _ in range(count)]


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_loop_that_does_not_turn_is_found_after_as_many_ticks(loop: Loop) -> None:
    loop.ticks(1)

    assert loop.ticks(5) == [False] * 4 + [True]


def test_a_loop_that_turns_at_times_is_not_found(loop: Loop) -> None:
    for beat_s in range(10):
        loop.beat_s = float(beat_s)
        assert not any(loop.ticks(5))


def test_before_the_loop_runs_and_after_it_nothing_is_judged(loop: Loop) -> None:
    loop.beat_s = None

    assert not any(loop.ticks(100))


async def test_a_process_that_was_stopped_for_an_hour_has_not_hung() -> None:
    clock = Clock()
    health = Health(STUCK_S, None, clock)
    watchdog = Watchdog(lambda: health.last_beat_s, PATIENCE_S)
    async with health.beating():
        await asyncio.sleep(0)
        watchdog.tick()
        clock.now_s += 3_600  # neither the loop nor the watchdog went on meanwhile

        assert not watchdog.tick()


def settings(**given: object) -> Settings:
    return Settings(data_dir=Path("store")).but(**given)


@pytest.mark.parametrize(
    ("given", "stuck_s", "patience_s"),
    [(None, 40.0, 60.0), (None, 130.0, 130.0), (20.0, 130.0, 20.0), ("off", 40.0, None)],
)
def test_it_is_as_patient_as_livez_unless_told_otherwise(
    given: object, stuck_s: float, patience_s: float | None
) -> None:
    assert loop_patience_s(settings(loop_patience_s=given), stuck_s) == patience_s


def test_off_starts_no_thread_and_the_end_of_the_block_ends_it() -> None:
    def watching() -> Iterator[threading.Thread]:
        return (one for one in threading.enumerate() if one.name == "watchdog")

    with ended_if_hung(Health(STUCK_S, None), None):
        assert not list(watching())
    with ended_if_hung(Health(STUCK_S, None), PATIENCE_S):
        [thread] = watching()
    thread.join()


class Waiting:
    """Threads that wait in a function whose argument and name nobody may learn."""

    def __init__(self, count: int) -> None:
        self.go_on = threading.Event()
        self._there = threading.Barrier(count + 1)
        self.threads = [
            threading.Thread(target=self._wait, args=("device-42",), name="device-42")
            for _ in range(count)
        ]

    def __enter__(self) -> Waiting:
        for thread in self.threads:
            thread.start()
        self._there.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        for thread in self.threads:
            thread.join()

    def _wait(self, recipient: str) -> None:
        self._there.wait()
        self.go_on.wait()


def in_waiting(found: list[str]) -> list[str]:
    return [text for text in found if "Waiting._wait" in text]


def test_stacks_are_places_without_a_value_the_loop_first() -> None:
    with Waiting(1) as waiting:
        found = stacks(sys._current_frames(), waiting.threads[0].ident)

    assert found[0].startswith("the event loop is at\n")
    assert f"{__file__}:" in found[0]
    assert "Waiting._wait" in found[0]
    assert "device-42" not in "".join(found)
    assert f" {threading.current_thread().name}" not in "".join(found)


def test_threads_at_one_place_are_told_once() -> None:
    with Waiting(1) as waiting:
        frame = sys._current_frames()[waiting.threads[0].ident or 0]
        found = stacks({-1: frame, -2: frame, -3: frame}, None)

    assert len(found) == 1
    assert found[0].startswith("3 other threads are at\n")


def test_it_tells_and_leaves_with_a_code_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    codes: list[int] = []

    with caplog.at_level(logging.CRITICAL), pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "shutdown", lambda: None)  # pytest's own handlers live on
        leave(61.0, threading.get_ident(), codes.append)

    assert codes == [HUNG]
    assert caplog.messages[0].startswith("the event loop has not turned for 61 s: this process")
    assert caplog.records[0].__dict__["action"] == "loop_hung"


def test_a_log_that_fails_keeps_nobody_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []

    def fail() -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(logging, "shutdown", fail)

    with pytest.raises(OSError, match="full"):
        leave(61.0, None, codes.append)

    assert codes == [HUNG]


def test_a_log_that_takes_nothing_delays_the_end_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = threading.Event()
    monkeypatch.setattr("pushlane.cli.signals._TELL_S", 0.0)
    monkeypatch.setattr(logging, "shutdown", left.wait)  # until the process is left

    leave(61.0, None, lambda code: left.set())

    assert left.is_set()
