"""The live line of `dispatch`: it stands below all that is written, and garbles none of it."""

from __future__ import annotations

import io
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane.cli.live import LiveLine, LiveText, live_line
from pushlane.cli.logs import set_up_logs
from pushlane.core.push import Kind
from pushlane.dispatcher.progress import DispatchProgress
from tests.command import Command

ROOT = Path(__file__).parents[2]


def screen(written: str) -> list[str]:
    """What a terminal shows of this, line by line; it knows to go back and to clear."""
    lines, column = [""], 0
    for part in written.replace("\x1b[K", "\x00"):
        line = lines[-1]
        if part == "\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x00":
            lines[-1] = line[:column]
        else:
            lines[-1] = line[:column] + part + line[column + 1 :]
            column += 1
    return lines


class Terminal(io.TextIOWrapper):
    """A terminal, of whose encoding a test decides; stdout and stderr lead to the same."""

    def __init__(self, shown: io.BytesIO, encoding: str = "utf-8") -> None:
        super().__init__(shown, encoding, line_buffering=True, newline="")

    def isatty(self) -> bool:
        return True


class Shown:
    """stdout and stderr of this process on one terminal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bytes = io.BytesIO()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", Terminal(self._bytes))
        monkeypatch.setattr(sys, "stderr", Terminal(self._bytes))

    def lines(self) -> list[str]:
        return screen(self._bytes.getvalue().decode())


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, root.level = before
    logging.getLogger("pushlane").setLevel(logging.NOTSET)


def shown_line(live: LiveLine | None) -> LiveLine:
    assert live is not None
    live.show("3 delivered")
    return live


def test_it_stands_below_what_is_printed_and_logged_and_is_gone_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Shown(monkeypatch)
    set_up_logs("text")
    with live_line(wanted=True) as live:
        shown_line(live)
        print("one", 1)
        sys.stdout.buffer.write(b"two\n")
        print("three", file=sys.stderr)
        logging.getLogger("pushlane.some").warning("four", extra={"action": "said"})
        *above, line = shown.lines()
        assert line == "3 delivered"

        live.show("4")
        assert shown.lines() == [*above, "4"]

    print("five")
    assert [one.rsplit(": ")[-1] for one in shown.lines()] == [
        "one 1",
        "two",
        "three",
        "four",
        "five",
        "",
    ]


def test_half_a_line_is_shown_when_it_is_flushed_and_the_live_line_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Shown(monkeypatch)
    with live_line(wanted=True) as live:
        shown_line(live)
        print("asking", end="")
        assert shown.lines() == ["3 delivered"]
        print("…", end="", flush=True)
        shown_line(live)
        assert shown.lines() == ["asking…"]
        print(" done")
        assert shown.lines() == ["asking… done", "3 delivered"]
        print("not ended", end="")

    assert shown.lines() == ["asking… done", "not ended"]


def test_lines_of_many_threads_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)

    def work(number: int) -> None:
        for _ in range(200):
            sys.stdout.write(f"line of thread {number}\n")

    with live_line(wanted=True) as live:
        shown_line(live)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    expected = [f"line of thread {number}" for number in range(4) for _ in range(200)]
    assert sorted(shown.lines()) == ["", *expected]


def test_a_long_line_is_cut_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    with live_line(wanted=True) as live:
        assert live is not None
        live.show("x" * 200)

        assert shown.lines() == ["x" * 79]


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_clear_a_line_has_none(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    Shown(monkeypatch)
    monkeypatch.setenv("TERM", term)
    with live_line(wanted=True) as live:
        assert live is None


def test_no_color_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    Shown(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    with live_line(wanted=True) as live:
        assert live is not None


def test_there_is_none_where_it_is_not_wanted_or_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Shown(monkeypatch)
    with live_line(wanted=False) as live:
        assert live is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with live_line(wanted=True) as live:
        assert live is None


def test_output_that_goes_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stdout", pipe)
    with live_line(wanted=True) as live:
        shown_line(live)
        print("for a program")

    assert pipe.getvalue() == "for a program\n"
    assert shown.lines() == [""]


class Going:
    """What a dispatcher has done, as a test says; `at_s` is the time."""

    def __init__(self) -> None:
        self.at_s = 50.0
        self.delivered = self.dead = self.again = 0
        self.left: int | None = None
        self.resting: tuple[str, ...] = ()
        self.text = LiveText(self.look, lambda: self.at_s)

    def look(self) -> DispatchProgress:
        counts = {
            Kind.DELIVERED: self.delivered,
            Kind.DEAD: self.dead,
            Kind.RETRY: self.again,
            Kind.EXPIRED: 0,
        }
        return DispatchProgress(
            outcomes=counts, died_of={}, in_flight=0, resting=self.resting, left=self.left
        )


def test_it_says_what_was_done_how_fast_it_goes_and_what_is_left() -> None:
    going = Going()
    assert going.text() == ("0 delivered", "0/s")

    going.at_s, going.delivered, going.dead, going.again, going.left = 52.0, 3_294, 33, 12, 1_673
    assert going.text() == ("3,294 delivered", "33 dead", "12 again", "1,664/s", "1,673 left")

    going.resting = ("sink default rests",)
    for _ in range(6):
        going.at_s += 1.0
        parts = going.text()
    assert parts[3:] == ("0/s", "1,673 left", "sink default rests")


def test_parts_are_separated_in_letters_that_the_terminal_has() -> None:
    shown = {}
    for encoding in ("utf-8", "ascii"):
        written = io.BytesIO()
        line = LiveLine(Terminal(written, encoding))
        line.show_parts(["1 delivered", "2/s"])
        shown[encoding] = screen(written.getvalue().decode(encoding))

    assert shown == {"utf-8": ["1 delivered · 2/s"], "ascii": ["1 delivered, 2/s"]}


def dispatched_on_a_terminal(command: Command, *more: str, **environment: str) -> str:
    """What `dispatch --drain` writes to a terminal, all of it."""
    mine, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pushlane", "dispatch", "--drain", *more],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    written = b""
    while True:
        try:
            some = os.read(mine, 65_536)
        except OSError:  # EIO: the process has closed it
            some = b""
        if not some:
            break
        written += some
    os.close(mine)
    assert process.wait(60) == 0
    return written.decode().replace("\r\n", "\n")


def test_a_dispatcher_on_a_terminal_shows_it_and_prints_whole_lines(command: Command) -> None:
    command.submit("high", 100)

    written = dispatched_on_a_terminal(command, "--sink", "print")

    assert "\r0 delivered · 0/s" in written
    *lines, last = screen(written)
    assert last == ""
    assert sum(line.startswith("high    ") and line.endswith("  Hi") for line in lines) == 100
    assert not any(" delivered · " in line for line in lines)


@pytest.mark.parametrize(
    ("more", "environment"),
    [(["--log-format", "json"], {}), ([], {"TERM": "dumb"}), (["--workers", "2"], {})],
    ids=["json", "dumb", "workers"],
)
def test_it_shows_none_for_programs_on_a_dumb_terminal_and_for_several_workers(
    command: Command, more: list[str], environment: dict[str, str]
) -> None:
    command.submit("high", 3)

    written = dispatched_on_a_terminal(command, "--sink", "null", *more, **environment)

    assert "stopped" in written
    assert "\x1b[K" not in written
