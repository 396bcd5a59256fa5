"""Each `pushlane` command that a document shows is there, with each of its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from pushlane.cli import main
from pushlane.cli.groups import CommandGroup, FirstByDefault
from scripts.words import PAGES, ROOT

DOCUMENTS = [*PAGES, ROOT / "CONTRIBUTING.md"]
_BLOCK = re.compile(r"^ *```[a-z]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`", re.DOTALL)
_COMMAND = re.compile(r"(?:^|[|&;(] ?|\$ ?|exec |eval \"\$\()pushlane (?=[a-z-])([^#|;&\n)]*)")
_OPTION = re.compile(r"(?<!\S)(--?[a-z][a-z-]*)")


def commands_of(text: str) -> Iterator[str]:
    """Yield what follows the word `pushlane` in the blocks and the inline code of a page."""
    blocks = "\n".join(_BLOCK.findall(text)).replace("\\\n", " ")
    inline = [" ".join(one.split()) for one in _INLINE.findall(_BLOCK.sub("", text))]
    for line in [*blocks.splitlines(), *inline]:
        yield from (found.strip() for found in _COMMAND.findall(line.strip()))


@pytest.fixture(scope="module")
def program() -> Any:
    return typer.main.get_group(main.build())


def faults_of(command: str, program: Any) -> list[str]:
    """Say what is no command of the program, or no option of it."""
    place = program
    context = program.make_context("pushlane", [], resilient_parsing=True)
    words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", command).split()
    while words and isinstance(place, CommandGroup):
        found = place.get_command(context, words[0])
        if found is None and isinstance(place, FirstByDefault):
            found = place.get_command(context, place.list_commands(context)[0])
        elif found is None:
            left_open = words[0].isupper() or words[0].startswith("-")
            return [] if left_open else [f"pushlane {command}: no command {words[0]}"]
        else:
            words = words[1:]
        place = found
    known = {name for each in place.params for name in (*each.opts, *each.secondary_opts)}
    given = [one for word in words for one in _OPTION.findall(word)]
    unknown = [one for one in given if one not in known | {"--help", "--version"}]
    return [f"pushlane {command}: no option {one}" for one in unknown]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_a_page_shows_commands_that_there_are(page: Any, program: Any) -> None:
    text = page.read_text()

    assert [fault for one in commands_of(text) for fault in faults_of(one, program)] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```sh\npushlane submit FILE --levels low\n```", "no option --levels"),
        ("```\n$ pushlane dead lists\n```", "no command lists"),
        ("run `pushlane taks --json`", "no command taks"),
        ("run `pushlane task sale --jsn`", "no option --jsn"),
    ],
)
def test_a_command_that_there_is_not_is_found(text: str, fault: str, program: Any) -> None:
    [command] = commands_of(text)

    [found] = faults_of(command, program)

    assert found.endswith(fault)
