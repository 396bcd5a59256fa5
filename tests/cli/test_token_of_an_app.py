"""What somebody with a token of one app does through a server, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pushlane.settings import Settings
from tests.command import Command
from tests.served import served


@pytest.fixture
def as_shop(command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Commands with a token of the app `shop`, through a server; `blog` has a task as well."""
    command.submit("high", 3, "--app", "blog", "--key", "theirs")
    made = command("access", "create", "shop", "--role", "operator", "--app", "shop")
    token = command.file("shop-token", made.stdout)
    settings = Settings(data_dir=command.folder / "data")
    with served(settings, command.folder / "token") as url:
        monkeypatch.setenv("PUSHLANE_URL", url)
        monkeypatch.setenv("PUSHLANE_TOKEN_FILE", str(token))
        yield command


def test_its_tasks_are_made_seen_and_steered(as_shop: Command) -> None:
    task = as_shop.submit("high", 3, "--app", "shop", "--key", "sale")
    listed = as_shop("tasks")
    as_json = as_shop("tasks", "--json")
    steps = [
        as_shop(*words.split())
        for words in (
            *("task show sale", "task sale --json", "why sale", "quota sale", "quota sale 5"),
            *("pause sale", "resume sale", "limit sale --rate 10/s", "limits", "results sale"),
            *("dead list --task sale", "reschedule sale --expires 2h", "cancel sale --yes"),
        )
    ]

    assert listed.exit_code == 0, listed.stderr
    assert [one["id"] for one in as_json.json] == [task]
    assert [ran.stderr for ran in steps if ran.exit_code] == []
    assert "blog" not in listed.stdout + "".join(ran.stdout + ran.stderr for ran in steps)


@pytest.mark.parametrize("words", ["task show theirs", "quota theirs 5", "cancel theirs --yes"])
def test_what_is_of_others_is_not_there(as_shop: Command, words: str) -> None:
    refused = as_shop(*words.split())

    assert refused.exit_code == 1
    assert refused.stderr == "error: there is no task 'theirs' of an app that you may see\n"


def test_what_is_about_all_apps_is_refused_with_what_to_do(as_shop: Command) -> None:
    refused = as_shop("processes")

    assert refused.exit_code == 1
    assert "list-processes is about all apps, and shop (" in refused.stderr
    assert ") is for shop alone: use a token of all apps" in refused.stderr
