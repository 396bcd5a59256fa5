"""`config`, `--version` and the texts that hide secrets."""

from __future__ import annotations

import pytest

from pushlane.util.texts import masked
from tests.command import Command


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.file("pushlane.toml", 'batch = 16\nslots = 7\nnamespace = "a/b"\n')
    monkeypatch.setenv("PUSHLANE_SLOTS", "8")
    monkeypatch.setenv("PUSHLANE_NAMESPACE", "c/d")

    shown = command("config", "--json", "--namespace", "e/f").json

    assert shown["namespace"] == {"value": "e/f", "from": "flag"}
    assert shown["slots"] == {"value": 8, "from": "PUSHLANE_SLOTS"}
    assert shown["batch"] == {"value": 16, "from": "pushlane.toml"}
    assert shown["prefetch"]["from"] == "default"


def test_no_form_shows_a_secret(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHLANE_PULSAR_TOKEN", "s3cret")
    monkeypatch.setenv("PUSHLANE_REDIS_URL", "redis+sentinel://me:s3cret@127.0.0.1:26379/lanes")
    monkeypatch.setenv("PUSHLANE_REDIS_PASSWORD", "s3cret")
    monkeypatch.setenv("PUSHLANE_SINK", "webhook:https://example.com/hook?key=s3cret")

    text, document = command("config"), command("config", "--json")

    assert "s3cret" not in text.stdout + document.stdout
    assert document.json["pulsar_token"]["value"] == "***"
    assert document.json["redis_password"]["value"] == "***"
    shown_url = "redis+sentinel://me:***@127.0.0.1:26379/lanes"
    assert document.json["redis_url"]["value"] == shown_url


def test_sinks_are_shown_by_name_and_kind_on_one_line(command: Command) -> None:
    tables = (f'[sinks.sink-{n}]\nkind = "log"\npath = "{"x" * 90}"\n' for n in range(3))
    command.file("pushlane.toml", "".join(tables))

    lines = command("config").stdout.splitlines()

    [shown] = [line.split(maxsplit=1)[1] for line in lines if line.startswith("sinks ")]
    assert " ".join(shown.split()) == "sink-0 (log), sink-1 (log), sink-2 (log) pushlane.toml"


def test_a_setting_that_cannot_be_used_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_SLOTS", "none")

    ran = command("config")

    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: setting slots='none'")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("redis://:pw@host:1/0", "redis://:***@host:1/0"),
        ("redis://user:p@w@host", "redis://user:***@host"),
        ("redis://user:p/w@host/0", "redis://user:***@host/0"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("https://token@host/path", "https://***@host/path"),
        ("webhook:http://host/a?b=c&d=e", "webhook:http://host/a?b=***&d=***"),
        ("pulsar://127.0.0.1:6650", "pulsar://127.0.0.1:6650"),
    ],
)
def test_passwords_and_query_values_of_urls_are_masked(text: str, hidden: str) -> None:
    assert masked(text) == hidden


def test_version_prints_one_line(command: Command) -> None:
    ran = command("--version")

    assert ran.exit_code == 0
    assert ran.stdout.startswith("pushlane ")


def test_an_unknown_command_is_wrong_usage(command: Command) -> None:
    assert command("sumbit").exit_code == 2
