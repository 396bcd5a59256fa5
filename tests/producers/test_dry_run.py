"""A dry run does all of a submit but make anything; both refuse a sink that nobody knows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import connect
from pushlane.backends.ports import listed
from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.push import encode
from pushlane.core.task import Level
from pushlane.model.presence import Process
from pushlane.producers.dry_run import DryRun, dry_run
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings

ROWS = [{"recipient": f"user-{number}", "name": "Ann" * number} for number in range(9)]
LIVE = Process(id="d", kind="dispatcher", pid=7, version="1", serves=("mail",))


def request_of(source: Any = ROWS, **options: Any) -> SubmitRequest:
    return SubmitRequest(**{"source": source, "level": Level.HIGH, "body": "Hi {name}", **options})


async def tried(settings: Settings, source: Any = ROWS, **options: Any) -> DryRun:
    async with connect(settings) as backend:
        return await dry_run(backend, settings, request_of(source, **options), lambda _: None)


@pytest.fixture
def named(settings: Settings) -> Settings:
    """Settings with two named sinks."""
    return settings.but(sinks={name: {"kind": "null"} for name in ("fcm", "sms")})


async def test_it_makes_nothing(settings: Settings) -> None:
    ran = await tried(settings, key="k")

    async with connect(settings) as backend:
        assert await listed(backend.registry) == []
        assert ran.task.lane not in await backend.broker.lanes()
    assert (ran.accepted, ran.rejected, ran.existing) == (9, 0, None)


async def test_it_counts_bytes_and_shows_the_first_the_middle_and_the_last(
    settings: Settings,
) -> None:
    ran = await tried(settings)

    assert [push.seq for push in ran.samples] == [1, 5, 9]
    assert [push.body for push in ran.samples] == ["Hi " + "Ann" * n for n in (0, 4, 8)]
    assert ran.least_bytes == len(encode(ran.samples[0]))
    assert ran.most_bytes == len(encode(ran.samples[2]))
    assert ran.total_bytes == 9 * (ran.least_bytes + ran.most_bytes) // 2


async def test_one_row_is_one_sample(settings: Settings) -> None:
    assert [push.seq for push in (await tried(settings, ROWS[:1])).samples] == [1]


async def test_pushes_are_counted_at_the_first_sink_that_they_have_an_address_for(
    named: Settings,
) -> None:
    rows = [
        {"recipient": "a", "token": "t" if number < 3 else "", "phone": 1} for number in range(8)
    ]
    places = ("fcm=token", "sms=phone")

    ran = await tried(named, rows, sink=("fcm", "sms"), address=places, body="Hi")

    assert ran.by_sink == {"fcm": 3, "sms": 5}


async def test_rows_are_refused_or_left_out_as_by_a_submit(settings: Settings, tmp_path) -> None:
    rows = [{"recipient": ""}, {"recipient": "a"}]
    with pytest.raises(BadInput, match="has no recipient"):
        await tried(settings, rows, body="Hi")

    listed_in = tmp_path / "rejects.jsonl"
    ran = await tried(settings, rows, body="Hi", bad_rows="skip", rejects=listed_in)

    assert (ran.accepted, ran.rejected, ran.rejects) == (1, 1, listed_in)


async def test_a_key_that_is_taken_is_told_or_refused(settings: Settings) -> None:
    async with connect(settings) as backend:
        made = (await submit(backend, settings, request_of(key="k"))).task

    again = await tried(settings, key="k")

    assert again.existing == made
    with pytest.raises(TaskConflict, match="key 'k'"):
        await tried(settings, key="k", title="another")


async def test_a_sink_that_nobody_knows_is_refused(named: Settings) -> None:
    for act in (submit, dry_run):
        async with connect(named) as backend:
            await backend.presence.announce(LIVE, 60.0)
            with pytest.raises(BadInput) as caught:
                await act(backend, named, request_of(sink=("fcm", "smss")), lambda _: None)
            assert await listed(backend.registry) == []
        assert str(caught.value) == (
            "no sink is named 'smss', neither in the settings nor by a live process; did you mean "
            "'sms'?; known are: fcm, sms, mail"
        )


async def test_a_sink_of_the_settings_or_of_a_live_process_will_do(named: Settings) -> None:
    async with connect(named) as backend:
        await backend.presence.announce(LIVE, 60.0)
        for sink in (("fcm",), ("mail",), ("fcm", "mail")):
            await submit(backend, named, request_of(sink=sink))


async def test_a_live_process_that_serves_the_sink_default_makes_it_one(named: Settings) -> None:
    async with connect(named) as backend:
        for act in (submit, dry_run):
            with pytest.raises(BadInput, match=r"name a sink with --sink \(fcm, sms\), or set"):
                await act(backend, named, request_of(), lambda _: None)
        await backend.presence.announce(replace(LIVE, serves=("default",)), 60.0)

        await submit(backend, named, request_of())


async def test_a_submit_goes_on_when_the_processes_of_its_sink_are_gone(settings: Settings) -> None:
    to_mail = request_of(sink=("mail",), key="k")
    async with connect(settings) as backend:
        await backend.presence.announce(LIVE, 60.0)
        made = await submit(backend, settings, to_mail)
        await backend.presence.leave(LIVE.id)

        again = await submit(backend, settings, to_mail)

    assert (again.already_done, again.task.id) == (True, made.task.id)
