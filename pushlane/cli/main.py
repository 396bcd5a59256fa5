"""The `pushlane` program, which knows the module of each command and loads only that one.

It holds no command itself. A new group is a module with a `register(app)`, named in `_COMMANDS`
with the commands that it registers.
"""

from __future__ import annotations

import functools
import importlib
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from pushlane.cli.ending import run_and_end
from pushlane.version import VERSION

_COMMANDS = {
    "sample": ("sample",),
    "submit": ("submit",),
    "fanout": ("fanout",),
    "tasks": (
        *("tasks", "task", "pause", "resume", "cancel"),
        *("promote", "demote", "levels"),
    ),
    "limits": ("limit", "limits"),
    "quota": ("quota",),
    "stop_if_dead": ("stop-if-dead",),
    "why": ("why",),
    "forget": ("forget",),
    "pool": ("pool",),
    "suppress": ("suppress",),
    "tokens": ("tokens",),
    "replay": ("replay", "clone"),
    "dead": ("dead",),
    "spool": ("spool",),
    "dispatch": ("dispatch",),
    "sinks": ("sinks",),
    "processes": ("processes", "formats"),
    "backup": ("backup", "restore"),
    "registry": ("registry",),
    "pipeline": ("pipeline",),
    "receipts": ("receipts",),
    "rules": ("rules",),
    "report": ("report",),
    "alerts": ("alerts",),
    "dev": ("demo", "up", "down"),
    "bootstrap": ("bootstrap",),
    "config": ("config",),
    "doctor": ("doctor",),
    "stats_dump": ("stats-dump",),
}
_MODULES = {name: module for module, names in _COMMANDS.items() for name in names}


class _Commands(TyperGroup):
    """The group of commands; it imports a command's module when the command is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        names: Any = dict.fromkeys(_MODULES)
        self.commands = names  # typer looks for a name to suggest here

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = _MODULES.get(cmd_name)
        return None if module is None else commands_of(module)[cmd_name]


@functools.cache
def commands_of(module: str) -> dict[str, Any]:
    """Return the commands that a module of this package registers, by name."""
    app = _typer()
    importlib.import_module(f"pushlane.cli.{module}").register(app)
    return dict(typer.main.get_group(app).commands)


def build() -> typer.Typer:
    """Return the application with all its commands."""
    return _typer(cls=_Commands)


def _typer(**options: Any) -> typer.Typer:
    app = typer.Typer(
        name="pushlane",
        help="Sends pushes by priority: every task has a lane, and the right message goes next.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )
    app.callback()(_root)
    return app


def main() -> NoReturn:
    """Run the console script, and end the process with the command's exit code."""
    run_and_end(lambda: build()(prog_name="pushlane"))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pushlane {VERSION}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
