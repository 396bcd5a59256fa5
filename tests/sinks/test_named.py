"""Sinks of the settings: opened by name, and anew when a file of theirs changes."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.named import NamedSink, open_sinks
from pushlane.settings import Settings
from tests.web_server import Server

SECRET = "hush-hush"


def settings(**sinks: dict[str, Any]) -> Settings:
    return Settings(sinks=sinks)


def webhook(**options: Any) -> dict[str, Any]:
    return {"kind": "webhook", **options}


async def delivered_by(sink: Any, seq: int = 1) -> None:
    push = Push("task", seq, "somebody")
    assert await sink.deliver([Delivery(push, Level.HIGH, "somebody")]) == [DELIVERED]


def rewrite(path: Path, text: str) -> None:
    """As Kubernetes renews a secret: a new file in the old one's place."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


async def test_a_token_that_changes_on_disk_is_used_from_the_next_look_on(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer old\n")
    async with Server().running() as server:
        named = settings(sms=webhook(url=server.url, authorization_file=str(token)))
        sink = open_sinks(named)["sms"]
        assert isinstance(sink, NamedSink)

        await delivered_by(sink)
        assert not sink.look()
        rewrite(token, "Bearer new\n")
        assert sink.look()
        await delivered_by(sink, 2)
        assert not sink.look()
        await sink.close()

    sent = [head.partition("authorization: ")[2].partition("\r\n")[0] for head in server.heads]
    assert sent == ["bearer old", "bearer new"]


@pytest.mark.parametrize(
    "change",
    [
        os.unlink,
        lambda path: Path(path).write_bytes(b"\xff\xfe"),
        lambda path: Path(path).write_text("\n"),
    ],
)
async def test_a_file_that_cannot_be_read_any_more_leaves_the_sink_as_it_was(
    tmp_path: Path, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pushlane")  # commands before may have set another
    token = tmp_path / "token"
    token.write_text(SECRET)
    async with Server().running() as server:
        named = settings(sms=webhook(url=server.url, authorization_file=str(token)))
        sink = open_sinks(named)["sms"]
        assert isinstance(sink, NamedSink)
        change(token)

        assert not sink.look()
        await delivered_by(sink)
        await sink.close()

    assert SECRET in server.heads[0]
    [warned] = caplog.records
    assert warned.getMessage().endswith("it keeps its old options")
    assert SECRET not in caplog.text


async def test_one_that_was_opened_anew_just_now_is_closed_as_well(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer old")
    async with Server().running() as server:
        named = settings(sms=webhook(url=server.url, authorization_file=str(token)))
        sink = open_sinks(named)["sms"]
        assert isinstance(sink, NamedSink)
        deliver_by_old = sink.deliver
        rewrite(token, "Bearer new")
        assert sink.look()
        await sink.close()
        [outcome] = await deliver_by_old([Delivery(Push("task", 1, "r"), Level.HIGH, "r")])

    assert outcome.kind is Kind.RETRY
    assert server.heads == []


async def test_it_has_the_slots_and_the_time_of_its_table(tmp_path: Path) -> None:
    log = {"kind": "log", "path": str(tmp_path / "out.jsonl")}
    sinks = open_sinks(settings(file=log, nothing={"kind": "null"}))

    assert {name: sink.name for name, sink in sinks.items()} == {
        "file": "file",
        "nothing": "nothing",
    }
    assert (sinks["file"].batch_size, sinks["nothing"].batch_size) == (64, 256)
    await delivered_by(sinks["file"])
    for sink in sinks.values():
        await sink.close()


async def test_only_those_that_are_to_be_served_are_opened() -> None:
    named = settings(a={"kind": "null"}, b=webhook(authorization_file="none"))

    assert list(open_sinks(named, ("a",))) == ["a"]


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (webhook(url="http://h/p", authorisation=SECRET), "did you mean 'authorization'"),
        (webhook(url="http://h/p", key=SECRET), "the kind webhook has no option 'key'"),
        (webhook(authorization=SECRET), "^sink sms: a webhook needs the option url, or to_address"),
        (webhook(url=7), "^sink sms, of the kind webhook: url is a whole number; give a text$"),
        (webhook(url=f"ftp://{SECRET}"), "^sink sms: the webhook's URL"),
        (webhook(url="http://h/p", headers={"a b": SECRET}), "^sink sms: the header 'a b'"),
        (webhook(url="http://h/p", headers={"X-Key": f"{SECRET}\n"}), "header"),
        (webhook(url="http://h/p", headers=SECRET), "headers is a text; give a table"),
        (webhook(url="http://h/p", authorization_file=f"none/{'x' * 3}"), "authorization_file"),
        (
            webhook(url="http://h/p", key_file="none/x"),
            "has no option 'key'",
        ),  # sooner than the file
        (webhook(url="http://h/p", max_attempts=2), "no option 'max_attempts'"),
        ({"kind": "null", "path": SECRET}, "it has none"),
        ({"kind": "null", "rate_pers": 5}, "did you mean 'rate_per_s'"),
        ({"kind": "processor", "function": "no_such_module_of_ours:send"}, "no_such_module"),
        ({"kind": "on", "module": "no_such_module_of_ours"}, "no_such_module"),
        ({"kind": "webhok", "url": SECRET}, "did you mean 'webhook'"),
    ],
)
def test_bad_options_are_named_without_a_value(table: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named) as refused:
        open_sinks(settings(sms=table))

    assert SECRET not in str(refused.value)


def test_a_sink_that_the_settings_do_not_have_lists_those_they_have() -> None:
    named = settings(fcm={"kind": "null"}, sms={"kind": "null"})

    with pytest.raises(BadInput, match=r"no sink 'fmc'; the settings have: fcm, sms; .*'fcm'"):
        open_sinks(named, ("fmc",))


async def test_a_file_that_no_header_can_hold_is_said_without_its_text_and_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer old")
    named = settings(sms=webhook(url="http://127.0.0.1:9/", authorization_file=str(token)))
    sink = open_sinks(named)["sms"]
    assert isinstance(sink, NamedSink)

    rewrite(token, f"Bearer {SECRET}\nand more")
    assert not sink.look()
    rewrite(token, "Bearer good")
    assert sink.look()
    await sink.close()

    assert "keeps its old options" in caplog.text
    assert SECRET not in caplog.text


async def test_a_file_that_others_can_read_is_said_once_and_read_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "pushlane")  # commands before may have set another
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o644)
    looks = asyncio.Semaphore(3)

    async def next_look(_: float) -> None:
        await looks.acquire()
        if looks.locked():
            raise asyncio.CancelledError

    named = settings(sms=webhook(url="http://127.0.0.1:9/", authorization_file=str(token)))
    sink = open_sinks(named)["sms"]
    assert isinstance(sink, NamedSink)
    monkeypatch.setattr("asyncio.sleep", next_look)
    with pytest.raises(asyncio.CancelledError):
        await sink.watch(lambda name: None)
    monkeypatch.undo()
    await sink.close()

    assert [record.getMessage() for record in caplog.records] == [
        f"sink sms: authorization_file {token} can be read by others than its owner; fix it with "
        f"chmod 600 {token}"
    ]
