"""The commands that `bench first-hour` runs are the README's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.from_clone import commands_of
from pushlane.core.errors import PushlaneError

README = (Path(__file__).parents[3] / "README.md").read_text()


def test_a_clone_is_six_commands_from_its_results() -> None:
    installing, campaign = commands_of(README)

    assert [command.split()[0] for command in installing] == ["python3", ".venv/bin/pip", "export"]
    assert [command.split()[1] for command in campaign] == ["submit", "dispatch", "results"]


@pytest.mark.parametrize("word", ["```sh", "pushlane submit", "## Try it"])
def test_a_readme_without_them_is_refused(word: str) -> None:
    with pytest.raises(PushlaneError):
        commands_of(README.replace(word, "gone"))
