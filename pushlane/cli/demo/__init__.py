"""`pushlane demo` shows the main job in one command, and judges it by the receiver's log."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from pushlane.cli.demo.provider import Provider, require_emulator
from pushlane.cli.errors import errors_told
from pushlane.cli.flags import DebugFlag, JsonFlag
from pushlane.cli.render import print_json
from pushlane.lanes.errors import BadInput

if TYPE_CHECKING:
    from pushlane.cli.demo.scenario import Played


def register(app: typer.Typer) -> None:
    app.command()(demo)


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
        raise BadInput("the demo's webhook receiver needs uvicorn: pip install 'pushlane[demo]'")
    from pushlane.cli.demo.plot import draw
    from pushlane.cli.demo.report import print_report, report

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
    from pushlane.cli.demo.scenario import play
    from pushlane.cli.demo.screen import view

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
