"""`sinks accept`: what it believes, how that is taken back, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.core.errors import BadInput
from pushlane.model.presence import SinkTarget
from pushlane.model.targets import note_delivered
from pushlane.operations.sinks import new_targets
from tests.command import Command
from tests.core.support import backend_in

URL = "http://127.0.0.1:9/psuh"


def with_webhook(command: Command) -> None:
    command.file("pushlane.toml", f'[sinks.sms]\nkind = "webhook"\nurl = "{URL}"\n')


def test_accepted_answers_are_told_with_the_way_back(command: Command) -> None:
    with_webhook(command)

    accepted = command("sinks", "accept", "sms")
    undone = command("sinks", "accept", "sms", "--undo")

    assert (accepted.exit_code, undone.exit_code) == (0, 0)
    assert "webhook at 127.0.0.1:9 until it delivers" in accepted.stderr
    assert "pushlane sinks accept sms --undo" in accepted.stderr
    assert "in a row, it rests" in undone.stderr
    assert "psuh" not in accepted.stderr + undone.stderr


def test_a_sink_that_delivers_nothing_has_no_answers_to_accept(command: Command) -> None:
    ran = command("sinks", "accept", "default")

    assert ran.exit_code == 1
    assert "in these settings it is null, which delivers nothing" in ran.stderr


def test_a_sink_that_there_is_not_is_refused(command: Command) -> None:
    with_webhook(command)

    ran = command("sinks", "accept", "smss")

    assert ran.exit_code == 1
    assert "there is no sink 'smss'" in ran.stderr


async def test_of_the_targets_of_a_rollout_the_new_ones_are_accepted(tmp_path: Path) -> None:
    old, new = (SinkTarget("webhook", "push.example.com", number) for number in ("01", "02"))
    async with backend_in(tmp_path) as (backend, _):
        await note_delivered(backend.documents, old.hash, 1)

        assert await new_targets(backend.documents, "default", [old, new]) == [new]
        with pytest.raises(BadInput, match="has delivered before"):
            await new_targets(backend.documents, "default", [old])
