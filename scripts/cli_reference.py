"""Writes docs/cli-reference.md from what the commands say of themselves with `--help`.

`python -m scripts.reference` writes it with the other pages.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer.main

from pushlane.cli import main
from pushlane.cli.groups import grouped_options, words_of
from pushlane.cli.help_texts import COMMANDS, EVERY_COMMAND, EXAMPLES

CLI_PAGE = "cli-reference.md"
_SPECIAL = re.compile(r"(`[^`]*`)|((?<![\w-])--[a-z][a-z-]*)|<")

_HEAD = """# Command line

*Written by `python -m scripts.reference` from the help texts; a test fails when it is not.*

`pushlane COMMAND --help` prints the same in a terminal. For `TASK` give a task's id, key or name.
Exit codes are in [operations](operations.md#which-store-and-exit-codes).

## Options of every command

They may stand before the command or behind it.
"""


def cli_page() -> str:
    """Return the page: the commands in the groups of `--help`, each with its example and options.

    The text depends on the code alone, not on the terminal or the settings of who makes it.
    """
    program: Any = typer.main.get_group(main.build())
    context = program.make_context("pushlane", [], resilient_parsing=True)
    lines = [_HEAD, *_shared(program.get_command(context, "tasks"), context)]
    for group, commands in COMMANDS.items():
        lines.append(f"\n## {group}")
        for name in commands:
            lines += _entry(program.get_command(context, name), name, context, "###")
    return "\n".join(lines) + "\n"


def _shared(command: Any, parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=command.name, parent=parent)
    yield from map(_option, grouped_options(command, context)[EVERY_COMMAND])


def _entry(command: Any, name: str, parent: Any, mark: str) -> Iterator[str]:
    """Yield the lines about a command, and those of its own commands if it is a group."""
    context = command.context_class(command, info_name=name, parent=parent)
    yield f"\n{mark} {context.command_path}\n"
    yield _text(command.help or "")
    if hasattr(command, "commands"):
        for each in command.list_commands(context):
            yield from _entry(command.get_command(context, each), each, context, mark + "#")
        return
    usage = [one.strip("{}") for one in command.collect_usage_pieces(context)]
    yield f"\n```sh\n{' '.join([context.command_path, *usage])}\n```"
    examples = EXAMPLES[words_of(context)]
    heading = "Example" if len(examples) == 1 else "Examples"
    yield "\n".join([f"\n{heading}:\n", "```sh", *examples, "```"])
    for group, records in grouped_options(command, context).items():
        if group != EVERY_COMMAND:
            yield f"\n{group}:\n"
            yield from map(_option, records)


def _option(record: tuple[str, str]) -> str:
    names, text = record
    return f"- `{names}`: {_escaped(text)}".rstrip(": ")


def _text(text: str) -> str:
    """Paragraphs on a line each; one that keeps its lines in a terminal becomes a block."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    return "\n\n".join(_paragraph(one) for one in paragraphs)


def _paragraph(text: str) -> str:
    if text.startswith("\b"):
        return "```text\n" + text.lstrip("\b\n") + "\n```"
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """The text with options as code, and without what Markdown takes as HTML outside of code."""
    return _SPECIAL.sub(lambda found: found[1] or (f"`{found[2]}`" if found[2] else "&lt;"), text)
