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
from pushlane.cli.groups import ALONE, WITH_VALUE

CLI_PAGE = "cli-reference.md"
_OF_EVERY_COMMAND = {*WITH_VALUE, *ALONE, "--help"}

_HEAD = """# Command line

*Written by `python -m scripts.reference` from the help texts; a test fails when it is not.*

`pushlane COMMAND --help` prints the same in a terminal. For `TASK` give a task's id, key or name.
What exit codes mean is in [operations.md](operations.md#which-store-and-exit-codes).

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
    group = ""
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if (panel := _panel(command)) != group:
            group = panel
            lines.append(f"\n## {group}")
        lines += _entry(command, name, context, "###")
    return "\n".join(lines) + "\n"


def _panel(command: Any) -> str:
    """The group of commands that one is listed in by `pushlane --help`."""
    panel = command.rich_help_panel
    return panel if isinstance(panel, str) else "Commands"


def _shared(command: Any, parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=command.name, parent=parent)
    yield from (_option(one, context) for one in command.get_params(context) if _is_shared(one))


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
    yield f"\n```sh\n{' '.join([context.command_path, *usage])}\n```\n"
    if command.epilog:
        yield _text(command.epilog) + "\n"
    own = [one for one in command.get_params(context) if not _is_shared(one)]
    yield from (_option(one, context) for one in own if one.get_help_record(context))


def _is_shared(parameter: Any) -> bool:
    return bool(_OF_EVERY_COMMAND & set(parameter.opts))


def _option(parameter: Any, context: Any) -> str:
    names, text = parameter.get_help_record(context)
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
    """The text without what Markdown takes as HTML outside of code."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)
