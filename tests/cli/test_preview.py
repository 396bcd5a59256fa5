"""`--preview` of commands that steer changes nothing, and `apply` does what was looked at."""

from __future__ import annotations

import re

import pytest

from tests.command import Command

CHANGES = (
    "quota sale 5",
    "quota --app shop 3",
    "levels 5:3:2",
    "limit sale --rate 10/s",
    "promote other --to high",
    "demote sale",
    "pause sale",
    "cancel sale",
)


@pytest.fixture
def tasks(command: Command) -> Command:
    """A high task `sale` and a low one `other`, of the app `shop`."""
    command.submit("high", 3, "--app", "shop", "--name", "sale")
    command.submit("low", 3, "--app", "shop", "--name", "other")
    return command


@pytest.mark.parametrize("change", CHANGES)
def test_a_preview_changes_nothing_and_apply_does_it(tasks: Command, change: str) -> None:
    before = tasks("tasks", "--json").json, tasks("levels").stdout, tasks("limits").stdout
    shown = tasks(*change.split(), "--preview")
    as_json = tasks(*change.split(), "--preview", "--json")
    between = tasks("tasks", "--json").json, tasks("levels").stdout, tasks("limits").stdout
    found = re.search(r"pushlane apply (\S+)", shown.stderr)
    assert found, shown.stderr
    applied = tasks("apply", found[1])
    audit = tasks("audit", "--json").json

    assert (shown.exit_code, as_json.exit_code) == (0, 0)
    assert "tasks that end otherwise: none" in shown.stdout  # no dispatcher: no end can be told
    assert between == before
    assert as_json.json["operation"] in applied.stderr
    assert applied.exit_code == 0, applied.stderr
    assert [one["operation"] for one in audit[:1]] == [as_json.json["operation"]]


def test_a_preview_is_of_a_change(tasks: Command) -> None:
    for words in ("quota sale", "levels", "limit sale", "quota --app shop"):
        refused = tasks(*words.split(), "--preview")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "--preview shows a change" in refused.stderr


def test_a_token_that_is_none_is_refused(tasks: Command) -> None:
    refused = tasks("apply", "abc")

    assert refused.exit_code == 1
    assert (
        "this is not the token of a preview, or it is incomplete: preview the change again"
        in refused.stderr
    )


@pytest.fixture
def died(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A task `sale` whose three pushes are dead, and `anna` and `bert` who are suppressed."""
    (command.folder / "refusing.py").write_text("def send(push):\n    return False\n")
    monkeypatch.syspath_prepend(command.folder)
    command.submit("high", 3, "--name", "sale")
    ran = command("dispatch", "--drain", "--sink", "refusing:send")
    assert ran.exit_code == 0, ran.stderr
    command("suppress", "add", command.file("out.csv", "recipient\nanna\nbert\n"))
    command.file("more.csv", "recipient\nbert\ncarl\n")
    return command


@pytest.mark.parametrize(
    ("change", "told", "operation"),
    [
        ("dead retry --all", "retries 3 dead pushes of task ", "retry-dead"),
        ("dead purge --task sale", "purges 3 dead pushes of task ", "purge-dead"),
        ("suppress add more.csv", "suppresses 1 recipient (everywhere)", "suppress"),
        ("suppress remove more.csv", "suppresses 1 recipient no longer (everywhere)", "unsuppress"),
        ("suppress clear", "removes 2 suppressions (everywhere)", "clear-suppressions"),
    ],
)
def test_what_moves_no_end_is_counted_and_apply_does_it(
    died: Command, change: str, told: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(died.folder)
    before = died("suppress", "count").stdout, died("dead", "list", "--json").json
    shown = died(*change.split(), "--preview")
    as_json = died(*change.split(), "--preview", "--json")
    between = died("suppress", "count").stdout, died("dead", "list", "--json").json
    found = re.search(r"pushlane apply (\S+)", shown.stderr)
    assert found, shown.stderr
    applied = died("apply", found[1])
    audit = died("audit", "--json").json

    assert shown.stdout.startswith(told)
    assert "tasks that end otherwise" not in shown.stdout
    assert between == before
    assert as_json.json["operation"] == operation
    assert applied.exit_code == 0, applied.stderr
    assert audit[0]["operation"] == operation
    for name in ("anna", "bert", "carl"):
        assert name not in shown.stdout + as_json.stdout + applied.stderr


def test_a_file_with_more_values_than_a_token_holds_has_no_preview(command: Command) -> None:
    path = command.file("many.csv", "recipient\n" + "".join(f"u{n}\n" for n in range(10_001)))

    refused = command("suppress", "add", path, "--preview")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "more than 10,000 values have no preview" in refused.stderr
