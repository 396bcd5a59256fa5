"""`backup` copies the registry into one file, and `restore` makes an empty one of such a copy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, add_commands
from pushlane.settings import Settings
from pushlane.settings.adapters import load_package

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The copy.")]


def register(app: typer.Typer) -> None:
    add_commands(app, backup, restore)


def backup(flags: Flags, file: FileArgument) -> None:
    """Copy the registry into a new file, while others use it.

    Of the embedded store all is copied, lanes too; on Pulsar the tasks, weights and documents.
    """
    settings = flags.settings()
    tasks = asyncio.run(load_package(settings).back_up(settings, file))
    note(f"tasks in {file}: {tasks:,}, with {_besides(settings)}")


def restore(flags: Flags, file: FileArgument) -> None:
    """Make the registry of a copy, where there is none. Dispatchers are started afterwards."""
    settings = flags.settings()
    tasks = asyncio.run(load_package(settings).restore(settings, file))
    note(f"tasks in {settings.location} again: {tasks:,}, with {_besides(settings)}")


def _besides(settings: Settings) -> str:
    if settings.capabilities.is_local:
        return "all else of the store"
    return "weights, rules and other documents; no pushes, no counts, no suppressions"
