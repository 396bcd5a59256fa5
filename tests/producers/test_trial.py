"""A test of a submit: its first rows as they are, but to the addresses of testers alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.backends.ports import listed
from pushlane.core.errors import BadInput
from pushlane.core.push import Push, decode
from pushlane.core.task import Level, State, Task
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings
from pushlane.wire import bodies_of

ROWS = [
    {"mail": f"real{number}@shop", "name": f"Name{number}", "token": f"token-{number}"}
    for number in range(1, 4)
]
GIVEN: dict[str, Any] = {
    "source": ROWS,
    "recipient": "mail",
    "title": "Hi {name}",
    "body": "to {mail}",
    "data": ("token",),
    "level": Level.MEDIUM,
    "name": "sale",
    "key": "k",
}


async def sent_to(backend: Backend, *addresses: str, **options: Any) -> tuple[Task, list[Push]]:
    request = SubmitRequest(**{**GIVEN, "test_to": addresses, **options})
    task = (await submit(backend, Settings(), request)).task
    pages = backend.broker.replay(task.lane)
    bodies = [body async for page in pages for message in page for body in bodies_of(message)]
    return task, [decode(body) for body in bodies]


async def test_the_first_row_goes_to_the_tester_alone() -> None:
    async with MemoryBackend().connect() as backend:
        task, [push] = await sent_to(backend, "me@corp")

    assert (push.recipient, push.title, push.body) == ("me@corp", "Hi Name1", "to me@corp")
    assert push.data == {"token": "token-1"}
    assert (task.name, task.key, task.level, task.total) == ("test of sale", "", Level.MEDIUM, 1)


async def test_each_of_several_gets_a_row_of_its_own_as_long_as_there_are_any() -> None:
    async with MemoryBackend().connect() as backend:
        _, pushes = await sent_to(backend, *"abcde")

    assert [(push.recipient, push.title) for push in pushes] == [
        *(("a", "Hi Name1"), ("b", "Hi Name2"), ("c", "Hi Name3")),
        *(("d", "Hi Name1"), ("e", "Hi Name2")),
    ]


async def test_an_address_that_is_given_twice_gets_one() -> None:
    async with MemoryBackend().connect() as backend:
        _, pushes = await sent_to(backend, "a", " a ")

    assert [push.recipient for push in pushes] == ["a"]


async def test_columns_of_addresses_are_the_testers_too() -> None:
    settings = Settings(sinks={"fcm": {"kind": "null"}, "sms": {"kind": "null"}})  # type: ignore[dict-item]
    async with MemoryBackend().connect() as backend:
        request = SubmitRequest(
            **{**GIVEN, "sink": "fcm,sms", "address": ("fcm=token", "sms=mail")}, test_to=("me",)
        )
        task = (await submit(backend, settings, request)).task
        [[message]] = [page async for page in backend.broker.replay(task.lane)]
        [push] = map(decode, bodies_of(message))

    assert (push.recipient, push.addresses) == ("me", {"fcm": "me", "sms": "me"})
    assert (task.sinks, push.data) == (("fcm", "sms"), {"token": "me"})


async def test_it_goes_now_and_leaves_the_key_to_the_real_submit() -> None:
    hold: dict[str, Any] = {
        "paused": True,
        "rate_per_s": 1,
        "in_flight": 1,
        "not_before_ms": "2h",
        "expires_at_ms": "3h",
        "quiet": "00:00-23:59",
        "zone": "Europe/Berlin",
    }
    async with MemoryBackend().connect() as backend:
        task, _ = await sent_to(backend, "me", **hold)
        assert (task.state, task.not_before_ms, task.quiet) == (State.RUNNING, 0, "")
        assert await backend.documents.list("limit") == []

        real = (await submit(backend, Settings(), SubmitRequest(**{**GIVEN, **hold}))).task
        assert (real.state, real.key, real.total) == (State.PAUSED, "k", 3)
        assert {one.id for one in await listed(backend.registry)} == {task.id, real.id}


async def test_no_more_of_the_file_is_read_than_is_sent(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a test of a large file takes no longer, and a bad row far behind is for the real one."""
    path = tmp_path / "sale.jsonl"
    path.write_text('{"mail": "a@b", "name": "A", "token": "t"}\nno row\n')
    async with MemoryBackend().connect() as backend:
        task, [push] = await sent_to(backend, "me", source=path, name="")

    assert (task.name, push.title) == ("test of sale", "Hi A")


async def test_a_row_that_cannot_be_used_is_told_without_the_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with MemoryBackend().connect() as backend:
        with pytest.raises(BadInput, match="no field 'nam'") as refused:
            await sent_to(backend, "me@corp.example", title="{nam}")

    request = SubmitRequest(**{**GIVEN, "test_to": "me@corp.example"})
    assert "me@corp" not in f"{refused.value} {caplog.text} {request!r}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "an address to test with is empty"),
        (("a", " "), "an address to test with is empty"),
        ([f"a{number}" for number in range(21)], "21 addresses to test with; give at most 20"),
        ((7,), "one of test_to is of type int; give a text"),
    ],
)
def test_what_is_no_address_is_refused(given: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        SubmitRequest(**{**GIVEN, "test_to": given})
