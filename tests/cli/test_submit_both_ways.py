"""What cannot be submitted is refused alike on a backend and through a server, before it is made.

The server alone has settings of the sinks; it tells of them before a row is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane.settings import Settings, load
from tests.command import Command, Ran
from tests.served import served

SINKS = """
[sinks.android]
kind = "fcm"
[sinks.ios]
kind = "apns"
[sinks.wake]
kind = "apns"
push_type = "background"
[sinks.own]
kind = "null"
"""
GOOD = "recipient,text\nada,Hi\nbob,Ho\n"
LONG = f"recipient,text\nada,Hi\nbob,{'x' * 5000}\n"
LACKING = "recipient,text\nada,Hi\n,Ho\n"
TEXT = ("--body", "{text}")
REFUSED = {
    "over a limit": (LONG, "android", TEXT),
    "over the limit of a fallback": (LONG, "own,ios", TEXT),
    "over a limit before a worse row": (LONG + ",\n", "android", TEXT),
    "no recipient": (LACKING, "android", TEXT),
    "nothing in it": ("recipient,text\nada,Hi\nbob,\n", "android", TEXT),
    "no such column": (GOOD, "android", ("--body", "{txt}")),
    "no rows": ("recipient,text\n", "android", TEXT),
    "a sink that nobody knows, and a bad row": (LONG, "androi", TEXT),
    "no sink, where none is the default": (LACKING, "", TEXT),
    "data over a limit, without texts": (LONG, "wake", ("--data", "text")),
}
TAKEN = {
    "texts are not sent by the sink": (LONG, "wake", TEXT),
    "no limit there": (LONG, "own", TEXT),
}


class BothWays:
    """Submits a file on a backend and through a server, each with a store of its own."""

    def __init__(self, command: Command, patch: pytest.MonkeyPatch, url: str, token: Path) -> None:
        self._command = command
        self._patch = patch
        self._server = {"PUSHLANE_URL": url, "PUSHLANE_TOKEN_FILE": str(token)}

    def here(self, rows: str, sink: str, more: tuple[str, ...]) -> Ran:
        return self._submitted(rows, sink, more)

    def there(self, rows: str, sink: str, more: tuple[str, ...]) -> Ran:
        with self._patch.context() as patch:
            (self._command.folder / "pushlane.toml").unlink()
            for name, value in self._server.items():
                patch.setenv(name, value)
            return self._submitted(rows, sink, more)

    def made(self) -> list[str]:
        """The ids of the tasks that there are, wherever."""
        with self._patch.context() as patch:
            here = self._command("tasks", "--all", "--json").json
            for name, value in self._server.items():
                patch.setenv(name, value)
            there = self._command("tasks", "--all", "--json").json
        return [task["id"] for task in (*here, *there)]

    def _submitted(self, rows: str, sink: str, more: tuple[str, ...]) -> Ran:
        path = self._command.file("rows.csv", rows)
        named = ("--sink", sink) if sink else ()
        return self._command("submit", path, "--level", "high", *named, *more)


@pytest.fixture
def both(command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[BothWays]:
    command.file("pushlane.toml", SINKS)
    at_server = load({}).but(data_dir=command.folder / "server")
    token = command.folder / "token"
    with served(at_server, token) as url:
        yield BothWays(command, monkeypatch, url, token)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_here_is_refused_there_in_the_same_words(both: BothWays, name: str) -> None:
    here, there = both.here(*REFUSED[name]), both.there(*REFUSED[name])

    assert (here.exit_code, here.stdout) == (1, "")
    assert there == here
    assert both.made() == []


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_here_is_taken_there(both: BothWays, name: str) -> None:
    here, there = both.here(*TAKEN[name]), both.there(*TAKEN[name])

    assert (here.exit_code, there.exit_code) == (0, 0), there.stderr


def test_bad_rows_are_left_out_alike(both: BothWays, command: Command) -> None:
    rejects = command.folder / "rows.csv.rejects.jsonl"
    case = (LONG, "android", (*TEXT, "--bad-rows", "skip"))

    here, listed_here = both.here(*case), rejects.read_text()
    rejects.unlink()
    there = both.there(*case)

    assert (here.exit_code, there.exit_code) == (0, 0), there.stderr
    assert rejects.read_text() == listed_here
    assert '"reason":"makes 5,000 bytes for the sink android' in listed_here


@pytest.mark.parametrize(
    ("bounds", "more", "told"),
    [
        (("--level", "low"), (), "may submit at low, not at high"),
        (("--sink", "own"), (), "may submit only to own"),
        (("--most-quota", "3"), ("--quota", "4"), "may ask for a quota up to 3, not 4"),
        (("--most-rate", "5"), ("--rate", "9/s"), "may ask for up to 5 pushes/s, not 9"),
    ],
)
def test_the_bounds_of_a_token_are_told_before_a_row_is_read(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    bounds: tuple[str, ...],
    more: tuple[str, ...],
    told: str,
) -> None:
    made = command("access", "create", "shop", "--role", "submitter", *bounds)
    token = command.file("shop-token", made.stdout)
    assert made.exit_code == 0, made.stderr
    settings = Settings(data_dir=command.folder / "data")
    with served(settings, command.folder / "token") as url:
        monkeypatch.setenv("PUSHLANE_URL", url)
        monkeypatch.setenv("PUSHLANE_TOKEN_FILE", str(token))
        rows = command.file("rows.csv", LACKING)
        ran = command("submit", rows, "--level", "high", *TEXT, *more)

    assert ran.exit_code == 1
    assert told in ran.stderr
