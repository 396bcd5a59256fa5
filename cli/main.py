"""The `pushlane` program: puts the command groups together and starts the one asked for.

It holds no command itself. A new group is a module with a `register(app)`, named in `_GROUPS`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli import (
    alerts,
    config,
    dead,
    demo,
    dispatch,
    fanout,
    pipeline,
    processes,
    receipts,
    replay,
    report,
    rules,
    spool,
    submit,
    tasks,
    up,
)
from lanes.presence import installed_version

_GROUPS = (
    demo,
    submit,
    fanout,
    tasks,
    replay,
    dead,
    spool,
    dispatch,
    processes,
    pipeline,
    receipts,
    rules,
    report,
    alerts,
    up,
    config,
)


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="pushlane",
        help="Sends pushes by priority: every task has a lane, and the right message goes next.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for group in _GROUPS:
        group.register(app)
    return app


def main() -> None:
    """The console script."""
    build()(prog_name="pushlane")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pushlane {installed_version()}")
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
    """Takes the options that stand before a command."""
