"""`pushlane demo` shows the main job in one command, and judges it by the receiver's log."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pushlane.cli.errors import errors_told
from pushlane.lanes.errors import BadInput


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("out"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Show the main job: a late urgent task among large ones, and a quota changed on the way."""
    with errors_told(debug):
        _run(out, as_json)


def _run(out: Path, as_json: bool) -> None:
    if importlib.util.find_spec("uvicorn") is None:
        raise BadInput("the demo's webhook receiver needs uvicorn: pip install 'pushlane[demo]'")
    from pushlane.cli.demo.plot import draw
    from pushlane.cli.demo.report import report
    from pushlane.cli.demo.scenario import play
    from pushlane.cli.demo.screen import Screen, print_report

    notes = Console(stderr=True)
    screen = Screen(notes)
    with tempfile.TemporaryDirectory(prefix="pushlane-demo-") as folder, screen:
        played = asyncio.run(play(Path(folder), screen.say, screen.show))
    out.mkdir(parents=True, exist_ok=True)
    plot = out / "demo.png"
    result = report(played, str(plot) if draw(played, plot) else None)
    if as_json:
        Console(soft_wrap=True).print_json(data=result.as_dict())
    else:
        print_report(Console(), result)
    if result.lost:
        raise typer.Exit(1)
