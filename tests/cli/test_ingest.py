"""`ingest`: what it refuses before it reads anything, and what `status` shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command, Ran


def ingest(command: Command, source: str, *more: str | Path) -> Ran:
    mapping = command.file("m.toml", 'recipient = "device"')
    return command("ingest", source, "--stream", "orders", "--mapping", mapping, *more)


@pytest.mark.parametrize(
    ("source", "more", "why"),
    [
        ("http://x/y", [], "'http://x/y' is no source; give kafka://HOST:PORT/TOPIC, or a folder"),
        ("kafka://b", [], "give kafka://HOST:PORT/TOPIC"),
        ("in", ["--kafka", "a=b"], "--kafka goes with a source kafka://HOST:PORT/TOPIC alone"),
        ("kafka://b/t", ["--kafka", "auto.offset.reset=earliest"], "see --from and --on-gap"),
        ("in", ["--mapping", "gone.toml"], "mapping gone.toml cannot be read"),
        ("in", [], "there is no stream 'orders'"),
    ],
)
def test_what_cannot_be_read_is_refused(
    command: Command, source: str, more: list[str], why: str
) -> None:
    ran = ingest(command, source, *more)

    assert ran.exit_code == 1
    assert why in ran.stderr


def test_a_folder_that_is_not_there_is_named(command: Command) -> None:
    command("streams", "put", "orders", "--level", "high", "--app", "shop")

    ran = ingest(command, "gone")

    assert ran.exit_code == 1
    assert "gone is no folder; give one with files that end in .jsonl" in ran.stderr


def test_status_of_a_stream_that_nothing_was_ingested_for(command: Command) -> None:
    command("streams", "put", "orders", "--level", "high", "--app", "shop")

    shown, listed = command("ingest", "status", "orders"), command("ingest", "status", "gone")

    assert "begin with: pushlane ingest SOURCE" in shown.stderr
    assert "there is no stream 'gone'" in listed.stderr
