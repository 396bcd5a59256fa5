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
        assert "--preview is of" in refused.stderr


def test_a_token_that_is_none_is_refused(tasks: Command) -> None:
    refused = tasks("apply", "abc")

    assert refused.exit_code == 1
    assert (
        "this is no token of a preview, or it was cut: preview the change again" in refused.stderr
    )
