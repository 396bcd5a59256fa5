"""`demo` shows the main job; `up` and `down` run a Pulsar and a Redis on this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.live import Live

from dev import stack
from dev.receiver import Provider, require_emulator
from pushlane.cli.errors import errors_told, note
from pushlane.cli.flags import DebugFlag, JsonFlag, option, switch
from pushlane.cli.groups import ShownCommand
from pushlane.cli.render import print_json
from pushlane.core.errors import BadInput

if TYPE_CHECKING:
    from dev.demo import Played

CacheDir = Annotated[Path | None, option("DIR", "Where it is kept; a cache folder of yours.")]


def register(app: typer.Typer) -> None:
    for command in (demo, up, down):
        app.command(cls=ShownCommand)(command)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("out"),
    provider: Annotated[
        Provider | None,
        typer.Option(help="The sink app sends to an emulator of this provider, not to a webhook."),
    ] = None,
    as_json: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Show the main job: a late urgent task among large ones, a sink that rests, a new quota."""
    with errors_told(debug):
        _run(out, as_json, provider)


def _run(out: Path, as_json: bool, provider: Provider | None) -> None:
    if provider is not None:
        require_emulator(provider)
    if importlib.util.find_spec("uvicorn") is None:
        raise BadInput("the demo's webhook receiver needs uvicorn: pip install -e '.[demo]'")
    from dev.demo_figures import draw, print_report, report

    played = _played(provider)
    out.mkdir(parents=True, exist_ok=True)
    plot = out / "demo.png"
    result = report(played, str(plot) if draw(played, plot) else None)
    if as_json:
        print_json(result)
    else:
        print_report(Console(), result)
    if result["lost"]:
        raise typer.Exit(1)


def _played(provider: Provider | None) -> Played:
    """Play the demo, with notes line by line and under them, on a terminal only, a live view."""
    from dev.demo import play
    from dev.demo_figures import view

    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-demo-") as folder,
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):

        def say(note: str) -> None:
            console.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {note}")

        def show(played: Played, phase: str) -> None:
            if console.is_terminal:
                live.update(view(played, phase), refresh=True)

        return asyncio.run(play(Path(folder), say, show, provider))


def up(
    docker: Annotated[bool, switch("--docker", "In containers.")] = False,
    local: Annotated[bool, switch("--local", "On the Java of this machine.")] = False,
    broker_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.Ports().broker,
    admin_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.Ports().admin,
    redis_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.Ports().redis,
    with_: Annotated[
        Literal["kafka"] | None,
        option("kafka", "A Kafka beside them, on the Java of this machine.", "--with"),
    ] = None,
    kafka_port: Annotated[int, typer.Option(help="0 takes a free one.")] = stack.KAFKA_PORT,
    cache_dir: CacheDir = None,
    as_json: JsonFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Start a local Pulsar and Redis, and print what to export for them.

    In Docker when it answers, else on a local Java. `eval "$(pushlane up)"` sets the variables.
    With Kafka, `pushlane ingest kafka://$KAFKA_SERVERS/TOPIC` reads from it.
    """
    try:
        with errors_told(debug):
            urls = stack.up(
                _folder(cache_dir),
                note,
                prefer=_preferred(docker, local),
                ports=stack.Ports(broker_port, admin_port, redis_port),
            )
            kafka = with_ and stack.up_kafka(_folder(cache_dir), note, kafka_port)
    except typer.Exit:
        if not as_json and not sys.stdout.isatty():
            typer.echo("false")  # so that `eval` fails too
        raise
    variables = {
        "PUSHLANE_BROKER": urls.broker,
        "PUSHLANE_ADMIN_URL": urls.admin,
        "PUSHLANE_REDIS_URL": urls.redis,
        **({"KAFKA_SERVERS": kafka} if kafka else {}),
    }
    if as_json:
        print_json(variables)
    else:
        for name, url in variables.items():
            typer.echo(f"export {name}={url}")


def down(
    delete_data: Annotated[bool, switch("--delete-data", "Its messages and tasks too.")] = False,
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
