"""`dispatch` in this process: it drains, and refuses what it cannot do."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

import pushlane
from pushlane.cli.workers import WorkerPool
from tests.command import Command


def test_drain_delivers_everything_once_and_ends(command: Command) -> None:
    task = command.submit("high", 200)
    log = command.folder / "out.jsonl"

    ran = command("dispatch", "--drain", "--sink", f"log:{log}")

    assert ran.exit_code == 0, ran.stderr
    delivered = Counter((line["task"], line["seq"]) for line in map(json.loads, log.open()))
    assert delivered == Counter((task, seq) for seq in range(1, 201))
    assert command("task", "show", task, "--json").json["state"] == "done"


LONG_RUNNING = (
    "dispatch --sink null",
    "dispatch --sink null --workers 2",
    "rules serve",
    "pipeline run",
    "alerts run",
)


@pytest.mark.parametrize("words", LONG_RUNNING)
def test_a_metrics_port_in_use_is_an_error(command: Command, words: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        ran = command(*words.split(), "--metrics-port", str(port))

    assert ran.exit_code == 1
    assert f"127.0.0.1:{port}" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("words", LONG_RUNNING)
def test_a_metrics_port_out_of_range_is_wrong_usage(command: Command, words: str) -> None:
    ran = command(*words.split(), "--metrics-port", "70000")

    assert ran.exit_code == 2
    assert "1<=x<=65535" in ran.stderr


def test_a_host_for_metrics_without_a_port_is_an_error(command: Command) -> None:
    ran = command("dispatch", "--sink", "null", "--metrics-host", "0.0.0.0")

    assert ran.exit_code == 1
    assert "give --metrics-port, too" in ran.stderr


def test_there_are_not_more_workers_than_a_machine_can_have(command: Command) -> None:
    ran = command("dispatch", "--sink", "null", "--workers", "100000")

    assert ran.exit_code == 2
    assert "1<=x<=256" in ran.stderr


def test_without_a_sink_nothing_is_thrown_away(command: Command) -> None:
    task = command.submit("high", 3)

    ran = command("dispatch", "--drain")

    assert ran.exit_code == 1
    assert "no sink is given; name one, as --sink webhook:URL" in ran.stderr
    assert command("task", "show", task, "--json").json["state"] == "running"


def test_a_sink_that_throws_pushes_away_may_be_set(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_SINK", "null")
    task = command.submit("high", 3)

    assert command("dispatch", "--drain").exit_code == 0
    assert command("task", "show", task, "--json").json["state"] == "done"


def test_an_unknown_sink_is_an_error(command: Command) -> None:
    ran = command("dispatch", "--sink", "webhok:http://127.0.0.1:1")

    assert ran.exit_code == 1
    assert ran.stderr.splitlines()[-1].startswith("error: ")


def test_settings_given_by_flags_reach_the_workers_outside_their_command_line() -> None:
    url = "redis://:secret@127.0.0.1:1/0"
    settings, sockets = {"redis_url": url, "slots": None}, Path("/run/sockets")
    crew = WorkerPool(2, settings, None, drain=True, retry_timeouts=False, sockets=sockets)

    assert crew.environment()["PUSHLANE_REDIS_URL"] == url
    assert "secret" not in " ".join(crew.command(1, 7))
    assert crew.command(1, 7)[-3:] == ["--metrics-socket", "/run/sockets/1", "--drain"]


def test_workers_import_from_the_folder_that_holds_the_package() -> None:
    workers = WorkerPool(2, {}, None, drain=True, retry_timeouts=False)

    first = workers.environment()["PYTHONPATH"].split(os.pathsep)[0]

    assert Path(first) / "pushlane" / "__init__.py" == Path(pushlane.__file__)


@pytest.mark.parametrize("given", ["0", "4", "OFF", "-1"])
def test_a_patience_that_is_too_short_is_refused_and_told_how_to_switch_it_off(
    command: Command, given: str
) -> None:
    ran = command("dispatch", "--sink", "null", "--loop-patience", given)

    assert ran.exit_code == 1
    assert f"loop_patience_s='{given}' (from flag)" in ran.stderr
    assert "give a number from 5 to 86,400 or `off`" in ran.stderr


def test_one_worker_cannot_end_together_with_others(command: Command) -> None:
    ran = command("dispatch", "--sink", "null", "--workers-together")

    assert ran.exit_code == 1
    assert "give --workers N, too" in ran.stderr
