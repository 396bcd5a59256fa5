"""The sinks that need no network: null, print and log, and how a sink is named."""

import errno
import json
import os
import sys
from contextlib import suppress

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.sinks.plain import LogSink

RECIPIENT = "somebody@example.com"


def deliveries(count, first=1):
    return [
        Delivery(Push("task", seq, RECIPIENT, "secret title", "secret body"), Level.HIGH)
        for seq in range(first, first + count)
    ]


def opened(spec):
    return open_sink(spec, slots=2, timeout_s=1.0)


async def test_null_delivers_every_push_of_a_batch():
    outcomes = await opened("null").deliver(deliveries(3))
    assert outcomes == [Outcome.delivered()] * 3


async def test_print_shows_each_push_on_a_line_in_the_order_of_delivery(capsys):
    pushes = [
        Delivery(Push("task", 1, RECIPIENT, "Sale", "ends\ntonight\x1b[2J"), Level.HIGH),
        Delivery(Push("task", 2, RECIPIENT, data={"order": 7}), Level.LOW, address="device-2"),
        Delivery(Push("task", 3, RECIPIENT, "Hi"), Level.LOW, payload={"aps": 1}),
    ]

    outcomes = await opened("print").deliver(pushes)

    assert outcomes == [Outcome.delivered()] * 3
    assert capsys.readouterr().out.splitlines() == [
        f"high    task-1  {RECIPIENT}  Sale: ends tonight [2J",
        'low     task-2  device-2  {"data":{"order":7}}',
        f'low     task-3  {RECIPIENT}  Hi  {{"payload":{{"aps":1}}}}',
    ]


async def test_print_cuts_a_long_line_with_a_sign(capsys):
    await opened("print").deliver([Delivery(Push("task", 1, "x" * 1_000), Level.HIGH)])

    [line] = capsys.readouterr().out.splitlines()
    assert (len(line), line[-1]) == (501, "…")


@pytest.fixture
def unread_pipe():
    """A pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    out = open(writing, "w")  # noqa: SIM115 - its close fails, too
    yield out
    with suppress(BrokenPipeError):
        out.close()


async def test_print_loses_nothing_when_its_reader_is_gone(unread_pipe, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", unread_pipe)
        outcomes = await opened("print").deliver(deliveries(2))

    refused = Outcome.retry("standard output is closed", arrival=Arrival.REFUSED)
    assert outcomes == [refused] * 2


async def test_log_appends_a_line_a_push_in_the_order_of_delivery(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text('{"task":"earlier"}\n')
    sink = opened(f"log:{path}")

    assert [*await sink.deliver(deliveries(2)), *await sink.deliver(deliveries(1, first=3))] == [
        Outcome.delivered()
    ] * 3
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("seq") for line in lines] == [None, 1, 2, 3]
    assert lines[1].keys() == {"task", "seq", "attempt", "level", "at_ms"}
    assert (lines[1]["task"], lines[1]["attempt"], lines[1]["level"]) == ("task", 1, "high")


async def test_log_never_holds_a_recipient_or_content(tmp_path):
    path = tmp_path / "out.jsonl"
    await opened(f"log:{path}").deliver(deliveries(1))
    assert RECIPIENT not in path.read_text()
    assert "secret" not in path.read_text()


async def test_a_full_disk_is_named_and_every_push_is_retried(tmp_path, monkeypatch):
    sink = LogSink(tmp_path / "out.jsonl")

    def full(file, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    outcomes = await sink.deliver(deliveries(2))
    assert outcomes == [Outcome.retry("log file: disk full", arrival=Arrival.REFUSED)] * 2


async def test_a_write_cut_short_delivers_its_whole_lines_and_the_torn_one_is_ended(
    tmp_path, monkeypatch
):
    path = tmp_path / "out.jsonl"
    sink = LogSink(path)
    write = os.write

    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:-5]))
    first = await sink.deliver(deliveries(2))
    monkeypatch.setattr(os, "write", write)
    again = await sink.deliver(deliveries(1, first=2))

    assert [outcome.kind for outcome in first] == [Kind.DELIVERED, Kind.RETRY]
    assert again == [Outcome.delivered()]
    lines = path.read_text().splitlines()
    assert (json.loads(lines[0])["seq"], json.loads(lines[2])["seq"]) == (1, 2)


def test_a_log_that_cannot_be_opened_is_refused_at_once(tmp_path):
    with pytest.raises(BadInput, match="cannot be opened: No such file"):
        opened(f"log:{tmp_path}/none/out.jsonl")


@pytest.mark.parametrize("spec", ["nul", "", "log", "log:", "webhook", "mail", "null:x", "print:x"])
def test_an_unknown_sink_lists_those_there_are(spec):
    with pytest.raises(BadInput, match="is not one of null, print, log:PATH, webhook:URL"):
        opened(spec)


def test_a_mistyped_sink_is_told_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'webhook'"):
        opened("webhok")


@pytest.mark.parametrize(
    "spec",
    [
        "webhok:https://push.test/send?token=hush-hush",
        "webhok:https://me:hush-hush@push.test/send",
        "webhok:https://push.test/hush-hush",
        "htps://push.test/hush-hush",
        "null:hush-hush",
    ],
)
def test_a_mistyped_sink_is_named_without_what_may_be_a_token(spec: str) -> None:
    with pytest.raises(BadInput, match="is not one of") as refused:
        open_sink(spec, slots=1, timeout_s=1.0)

    assert "hush-hush" not in str(refused.value)
