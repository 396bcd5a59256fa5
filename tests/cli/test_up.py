"""`up` and `down` as commands, around a stack that is only recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev import stack
from pushlane.core.errors import UserError
from tests.command import Command


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []

    def up(cache_dir: Path, on_step: Callable[[str], None], **given: Any) -> stack.StackUrls:
        made.append({"cache_dir": cache_dir, **given})
        on_step("starting")
        return given["ports"].urls

    def down(cache_dir: Path, on_step: Callable[[str], None], *, delete_data: bool) -> None:
        made.append({"cache_dir": cache_dir, "delete_data": delete_data})

    monkeypatch.setattr(stack, "up", up)
    monkeypatch.setattr(stack, "down", down)
    return made


def test_up_prints_only_what_a_shell_can_evaluate(command: Command, calls: list[Any]) -> None:
    ran = command("up", "--broker-port", "1650")

    assert ran.stdout.splitlines() == [
        "export PUSHLANE_BROKER=pulsar://127.0.0.1:1650",
        "export PUSHLANE_ADMIN_URL=http://127.0.0.1:8080",
        "export PUSHLANE_REDIS_URL=redis://127.0.0.1:6379/0",
    ]
    assert ran.stderr == "starting\n"


@pytest.mark.parametrize(
    ("flags", "prefer"), [([], "auto"), (["--docker"], "docker"), (["--local"], "local")]
)
def test_up_passes_on_which_way_is_preferred(
    command: Command, calls: list[dict[str, Any]], flags: list[str], prefer: str
) -> None:
    command("up", *flags)

    assert calls[0]["prefer"] == prefer


def test_docker_and_local_exclude_each_other(command: Command, calls: list[Any]) -> None:
    ran = command("up", "--docker", "--local")

    assert (ran.exit_code, calls) == (1, [])
    assert "--local" in ran.stderr


def test_what_is_missing_for_a_stack_is_an_error(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(*_: Any, **__: Any) -> None:
        raise UserError("there is no Java")

    monkeypatch.setattr(stack, "up", up)

    ran = command("up")

    assert ran.stdout == "false\n"  # so that `eval "$(pushlane up)"` fails too
    assert (ran.exit_code, ran.stderr) == (1, "error: there is no Java\n")


def test_a_cache_folder_is_named_in_full(command: Command, calls: list[dict[str, Any]]) -> None:
    command("up", "--cache-dir", "cache")

    assert calls[0]["cache_dir"] == Path("cache").absolute()


def test_a_cache_folder_that_cannot_be_made_is_named(
    command: Command, calls: list[dict[str, Any]]
) -> None:
    ran = command("up", "--cache-dir", "/dev/null/cache")

    assert (ran.exit_code, calls) == (1, [])
    assert "the folder /dev/null/cache cannot be made (Not a directory)" in ran.stderr


@pytest.mark.parametrize("delete", [False, True])
def test_down_deletes_data_only_when_told(
    command: Command, calls: list[dict[str, Any]], delete: bool
) -> None:
    ran = command("down", "--cache-dir", command.folder, *(["--delete-data"] if delete else []))

    assert ran.exit_code == 0
    assert calls == [{"cache_dir": command.folder, "delete_data": delete}]


def test_with_kafka_a_shell_gets_to_know_where_it_is(
    command: Command, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def up_kafka(cache_dir: Path, on_step: Callable[[str], None], port: int) -> str:
        return f"127.0.0.1:{port}"

    monkeypatch.setattr(stack, "up_kafka", up_kafka)
    ran = command("up", "--with", "kafka", "--kafka-port", "1092")
    without = command("up")

    assert ran.stdout.splitlines()[-1] == "export KAFKA_SERVERS=127.0.0.1:1092"
    assert "KAFKA" not in without.stdout
