"""`sample` writes a file that `submit` takes, and `--sink print` shows what is delivered."""

from __future__ import annotations

from tests.command import Command


def test_a_sample_can_be_submitted_as_it_is(command: Command) -> None:
    ran = command("sample", "people.csv", "--rows", "5")

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "5 recipients in people.csv" in ran.stderr
    quiet = ("--quiet", "22:00-08:00", "--zone-column", "zone")
    submitted = command("submit", "people.csv", "--level", "high", "--title", "Hi {city}", *quiet)
    assert submitted.exit_code == 0
    assert "5 pushes on the lane" in submitted.stderr


def test_a_sample_can_be_written_in_other_ways(command: Command) -> None:
    written = ("--delimiter", "tab", "--encoding", "cp1252")
    quiet = ("--title", "Hi {city}", "--zone-column", "zone", "--quiet", "22:00-08:00")

    assert command("sample", "people.csv.gz", *written).exit_code == 0
    submitted = command("submit", "people.csv.gz", "--level", "high", *quiet, *written)
    refused = command("sample", "more.csv", "--encoding", "shift_jis")

    assert "20 pushes on the lane" in submitted.stderr
    assert refused.exit_code == 1
    assert "encoding 'shift_jis' has no ã, as in São Paulo; give another" in refused.stderr
    assert (command.folder / "people.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    assert not (command.folder / "more.csv").exists()


def test_a_file_that_is_there_is_kept(command: Command) -> None:
    path = command.file("people.csv", "mine")

    ran = command("sample", "people.csv")

    assert ran.exit_code == 1
    assert "people.csv exists already; give another name" in ran.stderr
    assert path.read_text() == "mine"


def test_a_folder_that_is_not_there_is_named(command: Command) -> None:
    ran = command("sample", "none/people.csv")

    assert ran.exit_code == 1
    assert "none/people.csv cannot be written: No such file" in ran.stderr


def test_what_is_delivered_is_printed_urgent_first(command: Command) -> None:
    command("sample", "people.csv")
    for level in ("low", "high"):
        command("submit", "people.csv", "--level", level, "--title", level, "--body", "Hi {city}")

    ran = command("dispatch", "--sink", "print", "--drain", "--slots", "1")

    assert ran.exit_code == 0
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines[:14]].count("high") == 12
    assert len(lines) == 40
    assert "São Paulo" in ran.stdout
