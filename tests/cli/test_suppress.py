"""`suppress`: who must not be sent to."""

from __future__ import annotations

import pytest

from tests.command import Command

LIST = "recipient\nanna@example.org\nbert@example.org\n"


def test_what_is_added_is_counted_and_found(command: Command) -> None:
    ran = command("suppress", "add", command.file("out.csv", LIST))

    assert ran.exit_code == 0
    assert "2 suppressed now, 0 had been before" in ran.stderr
    assert command("suppress", "count").stdout.splitlines()[1].split() == ["all", "-", "2"]
    assert command("suppress", "check", "anna@example.org").stdout == "suppressed: everywhere\n"
    assert command("suppress", "check", "carl@example.org").stdout == "not suppressed\n"


def test_the_value_to_check_can_be_typed_in(command: Command) -> None:
    command("suppress", "add", command.file("out.csv", LIST))

    ran = command("suppress", "check", "-", given="bert@example.org\n")

    assert ran.stdout == "suppressed: everywhere\n"


@pytest.mark.parametrize("change", ["suppress add", "suppress remove", "tokens register"])
def test_a_column_that_no_row_has_is_an_error(command: Command, change: str) -> None:
    path = command.file("out.jsonl", '{"token": "t1"}\n')

    ran = command(*change.split(), path, "--sink", "fcm", "--column", "tokn")

    assert ran.exit_code == 1
    assert "nothing is changed: no row has a value; is the column" in ran.stderr
    assert "t1" not in ran.stderr


@pytest.mark.parametrize("change", ["suppress add", "suppress remove", "tokens register"])
def test_a_list_may_be_written_as_a_file_of_a_submit(command: Command, change: str) -> None:
    path = command.folder / "out.csv"
    path.write_bytes("größe;token\n1;t1\n2;t2\n".encode("utf-16"))
    written = ("--encoding", "utf-16", "--delimiter", "semicolon")

    ran = command(*change.split(), path, "--sink", "fcm", "--column", "token", *written)
    bare = command(*change.split(), path, "--sink", "fcm", "--column", "token")

    assert ran.exit_code == 0
    assert "out.csv is in UTF-16: add --encoding utf-16 --delimiter ';'\n" in bare.stderr


def test_nothing_of_a_list_is_kept_in_the_clear(command: Command) -> None:
    path = command.file("out.csv", LIST)
    command("suppress", "add", path)
    path.unlink()

    kept = [one.read_bytes() for one in command.folder.rglob("*") if one.is_file()]

    assert kept
    assert not any(b"example.org" in body for body in kept)


def test_apps_and_sinks_have_lists_of_their_own(command: Command) -> None:
    path = command.file("out.csv", "device,token\nd1,t1\n")
    command.submit("high", 1, "--app", "shop")

    app = command("suppress", "add", path, "--column", "device", "--app", "shop")
    sink = command("suppress", "add", path, "--column", "token", "--sink", "fcm")

    assert "no task has" not in app.stderr
    assert "no sink is named 'fcm' yet" in sink.stderr
    assert command("suppress", "count", "--json").json == [
        {"scope": "app", "name": "shop", "suppressed": 1},
        {"scope": "sink", "name": "fcm", "suppressed": 1},
    ]
    assert command("suppress", "check", "d1", "--json").json == [{"scope": "app", "name": "shop"}]
    assert command("suppress", "check", "t1").stdout == "suppressed: at the sink fcm\n"


def test_what_is_removed_may_be_sent_to_again(command: Command) -> None:
    command("suppress", "add", command.file("out.csv", LIST))

    ran = command(
        "suppress", "remove", command.file("back.csv", "recipient\nanna@example.org\nx\n")
    )

    assert "1 not suppressed any more, 1 had not been" in ran.stderr
    assert command("suppress", "check", "anna@example.org").stdout == "not suppressed\n"


def test_rows_without_a_value_are_left_out_with_a_note(command: Command) -> None:
    rows = '{"recipient": "a"}\n{"recipient": 7}\n{"recipient": ["x"]}\n{"other": "b"}\n\n'

    ran = command("suppress", "add", command.file("out.jsonl", rows))

    assert ran.exit_code == 0
    assert "2 suppressed now" in ran.stderr
    assert "2 rows are left out, the first in line 3" in ran.stderr
    assert command("suppress", "check", "7").stdout == "suppressed: everywhere\n"


def test_a_list_without_rows_changes_nothing_and_says_so(command: Command) -> None:
    ran = command("suppress", "add", command.file("out.csv", "recipient\n"))

    assert ran.exit_code == 0
    assert "the file has no rows: nothing is changed" in ran.stderr


def test_a_column_that_is_not_there_is_refused_with_those_that_are(command: Command) -> None:
    ran = command("suppress", "add", command.file("out.csv", "recipent,name\na,b\n"))

    assert ran.exit_code == 1
    assert "has no column 'recipient'; its columns are: recipent, name" in ran.stderr
    assert "did you mean" in ran.stderr


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("missing.csv",), "does not exist"),
        (("out.csv", "--app", "a", "--sink", "b"), "exclude each other"),
        (("out.csv", "--app", "a\x00"), "is not a name of an app or a sink"),
        (("out.txt",), "add --format"),
    ],
)
def test_what_cannot_be_done_is_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], reason: str
) -> None:
    command.file("out.csv", LIST)
    command.file("out.txt", LIST)
    monkeypatch.chdir(command.folder)

    ran = command("suppress", "add", *given)

    assert ran.exit_code == 1
    assert reason in ran.stderr


def test_clear_wants_a_yes_and_takes_one_scope(command: Command) -> None:
    path = command.file("out.csv", LIST)
    command("suppress", "add", path)
    command("suppress", "add", path, "--app", "shop")

    asked = command("suppress", "clear", "--app", "shop")
    done = command("suppress", "clear", "--app", "shop", "--yes")
    again = command("suppress", "clear", "--app", "shop", "--yes")

    assert asked.exit_code == 1
    assert "removing all 2 suppressions in the app shop cannot be undone" in asked.stderr
    assert "2 not suppressed in the app shop any more" in done.stderr
    assert "nothing is suppressed in the app shop" in again.stderr
    assert command("suppress", "check", "anna@example.org").stdout == "suppressed: everywhere\n"


def test_a_dispatcher_sends_to_nobody_on_the_list(command: Command) -> None:
    task = command.submit("high", 3)
    command("suppress", "add", command.file("out.csv", "recipient\nuser-1\n"))

    ran = command("dispatch", "--drain", "--sink", "null")

    assert ran.exit_code == 0
    shown = command("task", "show", task, "--json").json
    assert (shown["delivered"], shown["dropped"]) == (2, 1)


@pytest.mark.parametrize("value", ["", "  ", "\udcff"], ids=["empty", "spaces", "not UTF-8"])
def test_what_no_push_can_have_is_refused_and_not_shown(command: Command, value: str) -> None:
    ran = command("suppress", "check", value)

    assert ran.exit_code == 1
    assert "no push can have this value" in ran.stderr


def test_rows_that_are_not_utf8_are_left_out(command: Command) -> None:
    path = command.folder / "out.csv"
    path.write_bytes(b"recipient\nanna\n\xff\xfe\n")

    ran = command("suppress", "add", path)

    assert "1 suppressed now" in ran.stderr
    assert "1 row is left out, the first in line 3" in ran.stderr


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ("suppress add", {"suppressed": 12_000}),
        ("suppress remove", {"not suppressed any more": 12_000}),
        ("tokens register", {"registered anew": 12_000}),
    ],
)
def test_a_file_is_one_entry_of_the_audit(
    command: Command, change: str, counted: dict[str, int]
) -> None:
    path = command.file("out.csv", "token\n" + "".join(f"t{n}\n" for n in range(12_000)))
    if change != "suppress add":
        command("suppress", "add", path, "--sink", "fcm", "--column", "token")

    ran = command(*change.split(), path, "--sink", "fcm", "--column", "token")

    newest, *others = command("audit", "--find", "sink/fcm", "--json").json
    assert ran.exit_code == 0
    assert newest["after"] == counted
    assert len(others) == (change != "suppress add")
