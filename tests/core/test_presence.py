"""A dispatcher is there while it runs, and starts only where it can read what lanes may hold."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace as with_other
from pathlib import Path

import msgspec
import pytest

from pushlane.backends.formats import min_format, require_format, set_min_format
from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat, Unreachable, UserError
from pushlane.core.lane import Lane, Why
from pushlane.core.push import FORMAT, Kind, Outcome
from pushlane.core.task import Level, now_ms
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.line_report import RecentRates
from pushlane.dispatcher.presence import PresenceAnnouncer
from pushlane.dispatcher.slow import Shares, Slow
from pushlane.dispatcher.stats import Stats
from pushlane.model.presence import Process, ServedSink, decode_all, encode
from tests.command import Command
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    until,
)

OLD = Process(id="old", kind="dispatcher", pid=7, version="0.1.0", format=1)
NEW = msgspec.structs.replace(OLD, id="new", format=FORMAT + 1)


async def test_a_dispatcher_is_there_while_it_runs_and_leaves_at_a_clean_stop(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until(lambda: dispatcher.reads("pool-0"))
            [process] = await backend.presence.list()
            assert (process.kind, process.pid, process.format) == (
                "dispatcher",
                os.getpid(),
                FORMAT,
            )
            assert (process.sinks, process.resting) == (("default",), ())
            assert process.started_at_ms
        assert await backend.presence.list() == []


async def test_it_says_which_lanes_are_slow_there(tmp_path: Path, monkeypatch) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        dispatcher = Dispatcher(backend, MemorySink(), settings)
        since_s = time.monotonic() - 60
        slow = [Slow(Lane(f"task-{n}", Level.LOW), float(n), since_s) for n in range(2, 102)]
        monkeypatch.setattr(Shares, "slow", lambda self: slow)
        before = now_ms()

        running = asyncio.create_task(dispatcher.run())
        while not (processes := await backend.presence.list()):
            await asyncio.sleep(0)
        dispatcher.stop()
        await running

        told = processes[0].slow
        assert [(one.lane, one.times) for one in told[:2]] == [("task-101", 101), ("task-100", 100)]
        assert len(told) == 50
        assert before - 61_000 < told[0].since_ms <= now_ms() - 60_000


async def test_it_says_how_each_sink_stands(tmp_path: Path) -> None:
    sinks = {"a": {"kind": "null", "slots": 3, "rate_per_s": 50, "cost": 2}, "b": {"kind": "null"}}
    async with backend_in(tmp_path, sinks=sinks) as (backend, settings):
        held = MemorySink()
        held.gate.clear()
        await add_task(backend, Level.HIGH, 20, sinks=("a",))
        both = {"a": held, "b": MemorySink(lambda _: Outcome.throttled("no connection"))}
        await add_task(backend, Level.LOW, 20, sinks=("b",))

        async with dispatching(backend, both, settings) as dispatcher:
            await held.until_received(3)
            await until(dispatcher.resting)
            a, b = dispatcher.as_process().served
            held.gate.set()
            await until(lambda: dispatcher.as_process().served[0].delivery_s > 0)

        assert (a.name, a.slots, a.in_flight, a.resting) == ("a", 3, 3, None)
        assert (a.rate_per_s, a.cost, a.most_in_flight) == (50, 2, None)
        assert a.lanes == {"high": 1, "low": 2}
        assert b.resting is not None
        assert b.resting.why.endswith("no connection")


async def test_it_names_some_of_the_lanes_that_wait_for_more_than_their_turn(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        for _ in range(60):
            await add_task(backend, Level.HIGH, 1)
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: len(dispatcher.lanes()) == 62)
            [line] = dispatcher._lines  # no other way to make so many lanes full
            for number, lane in enumerate(line.lanes.by_name.values()):
                if number % 3 == 1:
                    lane.set_later_full(True)
                else:
                    lane.block(Why.BUDGET if number % 3 else Why.CROWDED)
            process = dispatcher.as_process()
            sink.gate.set()
            for lane in line.lanes.by_name.values():
                lane.set_later_full(False)
                lane.unblock(Why.BUDGET)
                lane.unblock(Why.CROWDED)
            dispatcher.wake()

        assert len(process.waiting) == 50
        assert {one.why for one in process.waiting} == {"crowded", "delay-full", "budget"}
        assert {one.sink for one in process.waiting} == {"default"}
        assert len(encode(process)) < 8_192


def test_rates_are_of_the_last_seconds_and_times_of_the_last_deliveries() -> None:
    stats, now_s = Stats(), [0.0]
    rates = RecentRates(stats, lambda: now_s[0])

    def deliver(count: int, each_s: float) -> tuple[dict[str, float], float]:
        stats.outcomes[Level.HIGH, Kind.DELIVERED] += count
        stats.released += count
        stats.held_s += each_s * count
        now_s[0] += 5.0
        read = rates.read()
        return read.delivered_per_s, read.delivery_s

    assert deliver(0, 0) == ({}, 0.0)
    assert deliver(100, 0.25) == ({"high": 10.0}, 0.25)
    assert deliver(200, 0.75)[0] == {"high": 30.0}
    for _ in range(3):
        idle = deliver(0, 0)
    assert idle == ({}, pytest.approx(175 / 300))


def test_a_record_without_what_came_later_is_read() -> None:
    first = b'{"id":"old","kind":"dispatcher","pid":7,"version":"0.1.0"}'

    [process] = decode_all([first])

    assert (process.served, process.waiting) == ((), ())
    assert process.sink_names == ("default",)
    assert process.at("default").slots == 0


class Failing(Wrapped):
    """Presence that does not answer some times."""

    def __init__(self, real, times: int) -> None:
        super().__init__(real)
        self.left = times

    async def announce(self, process: Process, ttl_s: float) -> None:
        if self.left:
            self.left -= 1
            raise Unreachable("Redis is away")
        await self._real.announce(process, ttl_s)


async def test_what_cannot_be_said_is_said_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        failing = Failing(backend.presence, 2)
        announcer = PresenceAnnouncer(with_other(backend, presence=failing), lambda: OLD)
        running = asyncio.create_task(announcer.run())
        while await backend.presence.list() != [OLD]:
            await asyncio.sleep(0)
        running.cancel()
        assert failing.left == 0


async def test_a_dispatcher_that_cannot_read_what_may_come_refuses_to_start(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await set_min_format(backend.documents, backend.presence, 4, reads=4)

        with pytest.raises(UserError, match=r"format 4, and this version.*up to 3.*upgrade"):
            await Dispatcher(backend, MemorySink(), settings).run()

        assert await backend.presence.list() == []


async def test_it_is_raised_only_when_all_live_processes_read_it(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        assert await min_format(backend.documents) == 1
        await backend.presence.announce(NEW, 60.0)
        await backend.presence.announce(OLD, 60.0)
        with pytest.raises(TaskConflict, match=r"old \(pid 7\)"):
            await set_min_format(backend.documents, backend.presence, 2)
        assert await min_format(backend.documents) == 1

        await backend.presence.leave("old")
        await set_min_format(backend.documents, backend.presence, 2)

        assert await min_format(backend.documents) == 2
        await require_format(backend.documents, 2)
        with pytest.raises(UserError, match="format 2"):
            await require_format(backend.documents, 1)
        await set_min_format(backend.documents, backend.presence, 1)
        await require_format(backend.documents, 1)


class ComesLate(Wrapped):
    """Presence in which an older process turns up after the first look."""

    looks = 0

    async def list(self) -> list[Process]:
        self.looks += 1
        return [OLD] if self.looks > 1 else []


async def test_an_older_process_that_comes_meanwhile_takes_it_back(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        with pytest.raises(TaskConflict):
            await set_min_format(backend.documents, ComesLate(backend.presence), 2)
        assert await min_format(backend.documents) == 1


@pytest.mark.parametrize("number", [0, -1, 4])
async def test_a_format_that_this_process_does_not_read_is_refused(
    tmp_path: Path, number: int
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        with pytest.raises(BadInput, match=f"format {number} is not one from 1 to 3"):
            await set_min_format(backend.documents, backend.presence, number)


async def test_one_that_is_kept_in_a_way_not_known_stops_a_start(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await backend.documents.put("format", "min", b'{"pushes": 2}', None)
        with pytest.raises(UnknownFormat, match="upgrade"):
            await require_format(backend.documents, 1)


def test_a_process_of_a_newer_version_is_shown_as_far_as_it_is_known() -> None:
    served = ServedSink(name="default", lane_slots={"task-a": 3})
    new = msgspec.structs.replace(NEW, served=(served,))
    said = msgspec.json.decode(encode(new))
    said["served"][0]["later"] = {"task-a": 1}
    newer = msgspec.json.encode({**said, "later": 1})

    assert decode_all([newer, b'{"id": 7}', encode(OLD)]) == [new, OLD]


def test_a_process_that_does_not_say_its_slots_is_not_one_without_any() -> None:
    old = b'{"id":"a","kind":"dispatcher","pid":1,"version":"0.1","served":[{"name":"default"}]}'
    [process] = decode_all([old])
    assert process.at("default").lane_slots is None


def test_the_command_lists_processes(command: Command) -> None:
    async def work() -> None:
        async with backend_in(command.folder / "data") as (backend, _):
            await backend.presence.announce(NEW, 60.0)

    assert "no process dispatches" in command("processes").stderr

    asyncio.run(work())

    [shown] = command("processes", "--json").json
    assert (shown["id"], shown["format"], shown["resting"]) == ("new", 4, [])
    assert "new" in command("processes").stdout


def test_the_command_shows_formats_and_refuses_what_is_not_read(command: Command) -> None:
    assert command("formats", "--json").json == {
        "min_format": 1,
        "this_reads": 3,
    }
    ran = command("formats", "--min", "4")
    assert ran.exit_code == 1
    assert "format 4 is not one from 1 to 3" in ran.stderr
    assert command("formats", "--min", "2").exit_code == 0
    assert command("formats", "--json").json["min_format"] == 2
