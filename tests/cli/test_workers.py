"""The parent of workers, played by small programs: who is started again, and who ends all."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pushlane.cli import workers
from pushlane.cli.errors import HUNG, INTERRUPTED
from pushlane.cli.workers import WorkerPool

WAIT = "sys.stdin.read()"
READY = "os.write(int(sys.argv[1]), b'1')"
KILLED = "os.kill(os.getpid(), 9)"


def exits(code: int) -> str:
    return f"os._exit({code})"


class Played(WorkerPool):
    """A pool whose worker i carries out `lives[i]`, the next one at each start."""

    def __init__(self, *lives: list[str], drain: bool = False, together: bool = False) -> None:
        super().__init__(len(lives), {}, None, drain, retry_timeouts=False, together=together)
        self._lives: list[Iterator[str]] = [iter(each) for each in lives]
        self.restarted: list[tuple[int, str]] = []
        self.ended: list[int] = []
        self.on_end = self.ended.append
        self.on_restart = lambda *told: self.restarted.append(told)

    def command(self, index: int, told: int) -> list[str]:
        life = next(self._lives[index])
        return [sys.executable, "-S", "-c", f"import os, sys; {life}", str(told)]


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_FIRST_S", 0.0)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (KILLED, "was killed by signal 9"),
        (exits(HUNG), f"hung (exit code {HUNG})"),
        (exits(1), "ended with exit code 1"),
        (exits(0), "ended with exit code 0"),
    ],
)
async def test_one_that_ends_once_it_did_its_work_is_started_again(end: str, told: str) -> None:
    pool = Played([f"{READY}; {end}", exits(2)])

    assert await pool.run() == 2

    assert pool.restarted == [(0, told)]


@pytest.mark.parametrize(
    ("life", "code"),
    [
        (KILLED, 1),
        (exits(1), 1),
        (exits(HUNG), HUNG),
        (f"{READY}; {exits(2)}", 2),
        (f"{READY}; {exits(3)}", 3),
    ],
)
async def test_one_that_was_never_ready_or_was_refused_ends_all(life: str, code: int) -> None:
    pool = Played([WAIT], [life])

    assert await pool.run() == code

    assert (pool.restarted, sorted(pool.ended)) == ([], [0, 1])


async def test_the_fifth_end_ends_all_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    pool = Played([WAIT], [f"{READY}; {KILLED}"] * 5)

    with caplog.at_level(logging.INFO):
        assert await pool.run() == 1

    assert len(pool.restarted) == 4
    last = next(one for one in caplog.messages if "stopping" in one)
    assert last.endswith(
        "was killed by signal 9 for the fifth time within ten minutes; stopping the others"
    )


async def test_together_the_first_end_ends_all() -> None:
    pool = Played([WAIT], [f"{READY}; {KILLED}"], together=True)

    assert await pool.run() == 1

    assert pool.restarted == []


async def test_one_that_cannot_be_started_again_ends_all(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    pool = Played([WAIT], [f"{READY}; {KILLED}"])
    no_program = str(tmp_path / "python")
    first: Callable[[int, int], list[str]] = pool.command

    def command(index: int, told: int) -> list[str]:
        return [no_program] if pool.restarted else first(index, told)

    pool.command = command  # type: ignore[method-assign]

    assert await pool.run() == 1
    assert any(
        "worker 1 cannot be started again: No such file or directory" in one
        for one in caplog.messages
    )


async def test_one_that_has_drained_is_not_started_again() -> None:
    pool = Played([f"{READY}; {exits(0)}"], [f"{READY}; {KILLED}", exits(0)], drain=True)

    assert await pool.run() == 0

    assert pool.restarted == [(1, "was killed by signal 9")]


async def test_one_that_says_why_it_cannot_drain_is_not_started_again() -> None:
    pool = Played([f"{READY}; {exits(1)}"], drain=True)

    assert await pool.run() == 1

    assert pool.restarted == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_ends_the_wait_for_a_restart_at_once(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(workers, "_FIRST_S", 3_600.0)
    pool = Played([f"{READY}; {KILLED}"], [f"{READY}; {WAIT}"])
    pool.on_restart = lambda *_: os.kill(os.getpid(), number)

    assert await pool.run() == 0


async def test_a_second_interrupt_leaves_those_that_run_at_once() -> None:
    deaf = "import signal; signal.signal(15, signal.SIG_IGN)"
    pool = Played([f"{READY}; {KILLED}", exits(2)], [f"{deaf}; {READY}; {WAIT}"])
    pool.on_restart = lambda *_: interrupt(pool)

    assert await pool.run() == INTERRUPTED


def interrupt(pool: Played) -> None:
    """Ctrl-C twice, once the other worker is deaf to SIGTERM."""
    select.select([pool._workers[1].told], [], [])
    pool._interrupt()
    pool._interrupt()


async def test_a_stop_while_workers_are_started_starts_no_more() -> None:
    pool = Played([WAIT], [WAIT], [WAIT])
    started: list[int] = []
    command: Callable[[int, int], list[str]] = pool.command

    def told_to_stop(index: int, told: int) -> list[str]:
        started.append(index)
        pool._stop()
        return command(index, told)

    pool.command = told_to_stop  # type: ignore[method-assign]

    assert (await pool.run(), started) == (0, [0])
