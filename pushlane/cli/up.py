"""`up` and `down` run a Pulsar and a Redis on this machine for development, by `cli.stack`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pushlane.cli import stack
from pushlane.cli.errors import errors_told, note
from pushlane.cli.flags import DebugFlag, JsonFlag
from pushlane.cli.render import print_json
from pushlane.lanes.errors import BadInput

CacheDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where it is kept; a cache folder of yours.")
]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)


def up(
    docker: Annotated[bool, typer.Option("--docker", help="In containers.")] = False,
    local: Annotated[bool, typer.Option("--local", help="On the Java of this machine.")] = False,
    broker_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.Ports().broker,
    admin_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.Ports().admin,
    redis_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.Ports().redis,
    cache_dir: CacheDir = None,
    as_json: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Start a local Pulsar and Redis, and print what to export for them.

    In Docker when it answers, else on a local Java. `eval "$(pushlane up)"` sets the variables.
    """
    try:
        with errors_told(debug):
            urls = stack.up(
                _folder(cache_dir),
                note,
                prefer=_preferred(docker, local),
                ports=stack.Ports(broker_port, admin_port, redis_port),
            )
    except typer.Exit:
        if not as_json and not sys.stdout.isatty():
            typer.echo("false")  # so that `eval` fails too
        raise
    variables = {
        "PUSHLANE_BROKER": urls.broker,
        "PUSHLANE_ADMIN_URL": urls.admin,
        "PUSHLANE_REDIS_URL": urls.redis,
    }
    if as_json:
        print_json(variables)
    else:
        for name, url in variables.items():
            typer.echo(f"export {name}={url}")


def down(
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Its messages and tasks too.")
    ] = False,
    cache_dir: CacheDir = None,
    debug: DebugFlag = False,
) -> None:
    """Stop what `up` started."""
    with errors_told(debug):
        stack.down(_folder(cache_dir), note, delete_data=delete_data)
        note("down; its data is deleted" if delete_data else "down; its data is kept")


def _folder(cache_dir: Path | None) -> Path:
    """Return the folder by its whole path, as what runs from it is started elsewhere; make it.

    Raises:
        BadInput: it cannot be made.
    """
    folder = (cache_dir or stack.default_cache_dir()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadInput(
            f"the folder {folder} cannot be made ({reason}); give another --cache-dir"
        ) from error
    return folder


def _preferred(docker: bool, local: bool) -> stack.Prefer:
    if docker and local:
        raise BadInput("--docker and --local exclude each other; give one of them")
    return "docker" if docker else "local" if local else "auto"
