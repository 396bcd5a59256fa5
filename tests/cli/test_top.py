"""`top --once` prints the view of now, beside the store and through a server."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest

from pushlane.operations.now import NowView
from tests.cli.test_main import loaded_by
from tests.command import Command

ROOT = Path(__file__).parents[2]
LEAVES = b"\x1b[?1049l"
"""How a terminal is told to show again what was there before."""


def test_once_says_how_it_stands_and_who_gets_what(command: Command) -> None:
    command.submit("high", 3, "--app", "shop", "--name", "sale")

    ran = command("top", "--once")

    assert ran.exit_code == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:3] == [
        "3 pushes of 1 task wait: no dispatcher runs.",
        "do: pushlane dispatch",
        "1 task: 1 waiting; 0 processes",
    ]
    assert [line for line in lines if line in ("Shares", "Tasks", "Sinks", "Held")] == [
        *("Shares", "Tasks", "Sinks", "Held")
    ]
    assert lines[-1] == "do for all: pushlane dispatch"
    assert "COMMAND" not in ran.stdout
    [row] = [line for line in lines if line.startswith("sale")]
    assert row.split()[:6] == ["sale", "shop", "high", "default", "1", "waiting"]


def test_once_as_json_is_the_view(command: Command) -> None:
    task = command.submit("high", 3, "--app", "shop")

    found = command("top", "--once", "--json").json

    assert found.keys() == {*NowView.__struct_fields__} - {"error"}
    assert [one["task"] for one in found["tasks"]] == [task]


def test_where_nothing_is_it_says_so(command: Command) -> None:
    ran = command("top", "--once")

    assert (ran.exit_code, ran.stdout.splitlines()[0]) == (0, "Nothing waits: no task runs.")


def test_names_steer_no_terminal(command: Command) -> None:
    command.submit("high", 1, "--name", "[bold]x[/]")

    assert "[bold]x[/]" in command("top", "--once").stdout


def test_json_is_of_one_look(command: Command) -> None:
    refused = command("top", "--json")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "give --once, too" in refused.stderr


def test_without_a_terminal_it_says_what_to_do(command: Command) -> None:
    refused = command("top")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "error: top needs a terminal; to print it once: pushlane top --once\n"
    )


def test_without_its_extra_it_says_what_to_install(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("pushlane.top")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)

    refused = command("top")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "error: top without --once needs the package textual, of the extra `top`: "
        "pip install 'pushlane[top]' (in a clone: pip install '.[top]')\n"
    )
    assert command("top", "--once").exit_code == 0


@pytest.mark.parametrize("words", [["top", "--once"], ["top", "--once", "--json"]])
def test_once_loads_no_screen(words: list[str], command: Command) -> None:
    command.submit("high", 1)

    assert "textual" not in loaded_by(command.folder, words)


def test_in_a_real_terminal_it_draws_and_q_leaves_it_as_it_was(command: Command) -> None:
    command.submit("high", 3, "--name", "sale")
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(ours)
    process = subprocess.Popen(
        [sys.executable, "-m", "pushlane", "top"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    while b"ENTITLED" not in written:
        written += os.read(ours, 65_536)
    os.write(ours, b"2")
    while b"sale" not in written:
        written += os.read(ours, 65_536)
    os.write(ours, b"q")
    while LEAVES not in written:
        written += os.read(ours, 65_536)

    assert process.wait(60) == 0
    assert termios.tcgetattr(ours) == before
    assert not re.search(rb"\x1b\[[0-9;]*(3[0-7]|[34]8;)[0-9;]*m", written), "no colour"
    os.close(ours)
