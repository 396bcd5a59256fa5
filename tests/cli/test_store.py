"""Which store a command looks at: one that reads never makes one, and each names its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pushlane.cli import parsing
from tests.command import Command

HI = ("--level", "high", "--title", "Hi")
_READING = (
    ["tasks"],
    ["tasks", "--json"],
    ["task", "show", "spring"],
    ["why", "spring"],
    ["processes"],
    ["formats"],
    ["sinks", "list"],
    ["limits"],
    ["levels"],
    ["pool"],
    ["dead", "list"],
    ["dead", "purge", "--all", "--yes"],
    ["suppress", "count"],
    ["tokens", "dead"],
    ["pause", "spring"],
    ["resume", "spring"],
    ["cancel", "spring", "--yes"],
    ["promote", "spring"],
    ["quota", "spring", "3"],
    ["quota", "--app", "shop"],
    ["limit", "app/shop", "--none"],
    ["forget", "spring", "--yes"],
    ["replay", "spring", "--since", "1h"],
    ["clone", "spring"],
    ["rules", "list"],
    ["alerts", "list"],
    ["doctor"],
    ["stats-dump", "dump.json.gz"],
)
_WRITING = (
    ["dispatch", "--drain", "--sink", "null"],
    ["levels", "5:3:1"],
    ["pool", "4"],
    ["limit", "app/shop", "--rate", "9/s"],
    ["quota", "--app", "shop", "3"],
    ["suppress", "add", "rows.csv"],
)


@pytest.fixture
def nowhere(command: Command) -> Command:
    """Commands in a folder where no store was made."""
    shutil.rmtree(command.folder / "data")
    command.file("rows.csv", "recipient\nuser-1\n")
    return command


@pytest.mark.parametrize("words", _READING, ids=" ".join)
def test_a_command_that_reads_makes_no_store(nowhere: Command, words: list[str]) -> None:
    ran = nowhere(*words)

    assert not (nowhere.folder / "data").exists()
    if words[0] != "stats-dump":
        assert ran.exit_code == 3, ran.stderr
        assert f"no pushlane store in {nowhere.folder / 'data'}" in ran.stdout + ran.stderr
        assert "PUSHLANE_DATA_DIR" in ran.stdout + ran.stderr


@pytest.mark.parametrize("words", _WRITING, ids=" ".join)
def test_a_command_that_sets_something_makes_one(nowhere: Command, words: list[str]) -> None:
    ran = nowhere(*words)

    assert ran.exit_code == 0, ran.stderr
    assert (nowhere.folder / "data" / "pushlane.db").exists()


def test_submit_says_once_where_it_made_the_store(nowhere: Command) -> None:
    first = nowhere("submit", "rows.csv", "--level", "high", "--title", "Hi")
    second = nowhere("submit", "rows.csv", "--level", "high", "--title", "Hi")

    assert f"made a new store in {nowhere.folder / 'data'}" in first.stderr
    assert "made a new store" not in second.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit", "none.csv", *HI], "none.csv does not exist; check the path"),
        (["submit", "none.csv", *HI, "--spool", "spool"], "none.csv does not exist"),
        (["submit", "data.csv", *HI], "data.csv is a folder; give a file"),
        (["submit", "rows.txt", *HI], "the format of rows.txt is not clear"),
        (["submit", "-", *HI], "add --format csv, jsonl or parquet"),
        (["submit", "rows.csv", *HI, "--recipient", "mail"], "add --recipient user"),
        (["submit", "rows.csv", *HI, "--recipient", "user", "--quota", "0"], "quota 0"),
        (["suppress", "add", "none.csv"], "none.csv does not exist"),
        (["suppress", "add", "rows.csv", "--column", "users"], "did you mean 'user'?"),
        (["suppress", "add", "rows.csv", "--app", "a", "--sink", "b"], "give one"),
        (["tokens", "register", "none.csv", "--sink", "fcm"], "none.csv does not exist"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_cannot_be_used_is_refused_before_a_store_is_made(
    nowhere: Command, words: list[str], said: str
) -> None:
    (nowhere.folder / "data.csv").mkdir()
    for name in ("rows.csv", "rows.txt"):
        nowhere.file(name, "user\nuser-1\n")
    before = sorted(nowhere.folder.iterdir())

    ran = nowhere(*words)

    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert said in ran.stderr
    assert sorted(nowhere.folder.iterdir()) == before


def test_a_dry_run_needs_no_store_and_makes_none(nowhere: Command) -> None:
    ran = nowhere("submit", "rows.csv", "--level", "high", "--title", "Hi", "--dry-run")

    assert ran.exit_code == 0, ran.stderr
    assert f"no store in {nowhere.folder / 'data'} yet" in ran.stderr
    assert not (nowhere.folder / "data").exists()


def test_an_empty_folder_holds_no_store(nowhere: Command) -> None:
    (nowhere.folder / "data").mkdir()

    assert nowhere("tasks").exit_code == 3
    assert list((nowhere.folder / "data").iterdir()) == []


def test_the_default_folder_is_named_with_its_user(
    nowhere: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUSHLANE_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(nowhere.folder / "share"))
    monkeypatch.setenv("LOGNAME", "ana")

    ran = nowhere("tasks")

    assert f"{nowhere.folder / 'share' / 'pushlane'} (the default of user ana)" in ran.stderr
    assert "--data-dir DIR" in ran.stderr


def test_completion_makes_no_store(nowhere: Command) -> None:
    assert parsing.complete_task(SimpleNamespace(params={}), "") == []  # type: ignore[arg-type]
    assert not (nowhere.folder / "data").exists()


@pytest.mark.parametrize(
    "words", [["tasks"], ["processes"], ["limits"], ["dead", "list"], ["task", "show", "spring"]]
)
def test_an_answer_of_nothing_names_the_store(command: Command, words: list[str]) -> None:
    assert f" in {command.folder / 'data'}" in command(*words).stderr


def test_what_programs_read_does_not_change(command: Command) -> None:
    assert command("tasks", "--json").json == []


def test_a_tilde_is_the_home_of_the_user(nowhere: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(nowhere.folder / "home"))
    monkeypatch.setenv("PUSHLANE_DATA_DIR", "~/x")

    assert f"no pushlane store in {nowhere.folder / 'home' / 'x'}" in nowhere("tasks").stderr
    assert nowhere("levels", "5:3:1", "--data-dir", "~/y").exit_code == 0
    assert (nowhere.folder / "home" / "y").is_dir()
    assert not Path("~").exists()


def test_a_home_that_is_not_there_is_refused(command: Command) -> None:
    ran = command("tasks", "--data-dir", "~nobody-of-this-name/x")

    assert ran.exit_code == 1
    assert "setting data_dir" in ran.stderr
