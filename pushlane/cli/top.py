"""`top` shows live who gets what in a terminal; with --once it prints that once."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from typing import Annotated, Any

import typer

from pushlane.cli.doing import CommandLine, done, on_client
from pushlane.cli.flags import Flags, JsonFlag, switch
from pushlane.cli.render import plain as printable
from pushlane.cli.render import print_json, print_table
from pushlane.core.errors import BadInput
from pushlane.operations.now import GetNow, NowView
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.extras import needs_extra
from pushlane.util.texts import shown_url


def top(
    flags: Flags,
    once: Annotated[bool, switch("--once", "Print it once and end; it needs no extra.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show live what tasks, apps and levels get beside their fair share, and what holds them up.

    Keys: 1-5 shares, tasks, sinks, what is held, processes; s sort, / filter; of a task w why, p
    pause or resume, u quota, each with a preview: nothing counts until Enter. q quits.
    """
    settings = flags.settings()
    if once:
        _print(done(settings, GetNow()), as_json=as_json)
        return
    if as_json:
        raise BadInput("--json prints one document: give --once, too")
    with needs_extra("top", "top without --once"):
        import pushlane.top.app  # noqa: F401 - asked for before anything is opened
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise BadInput("top needs a terminal; to print it once: pushlane top --once")
    on_client(settings, lambda client: _follow(client, settings))


async def _follow(client: CommandLine, settings: Settings) -> None:
    from pushlane.top.app import Top
    from pushlane.top.look import Look

    look = Look(client.do, await client.do(GetNow()))  # what is wrong from the start ends it
    app = Top(client.do, look, shown_url(settings.url) if settings.url else "here")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.exit)
    gc.freeze()  # what there is now stays: nobody is to look through it for garbage
    await app.run_async(mouse=False)  # so that a command can be copied from it
    if app.failure is not None:
        raise app.failure


def _print(view: NowView, *, as_json: bool) -> None:
    if as_json:
        print_json(plain(view))
        return
    from pushlane.top.tables import HELD, SHARES, SINKS, TASKS, Seen, Table
    from pushlane.top.texts import states_text, verdict_lines

    for text in verdict_lines(view):
        typer.echo(printable(text))
    typer.echo(states_text(view))
    if view.error:
        typer.echo(f"this is old: {printable(view.error)}")
    seen = Seen(view)
    tables: tuple[Table[Any], ...] = (SHARES, TASKS, SINKS, HELD)
    for table in tables:
        if rows := table.rows(seen):
            typer.echo(f"\n{table.title}")
            columns = [one for one in table.columns(seen) if one.heading != "COMMAND"]
            print_table(columns, rows, more="a wider terminal or --json shows all")
    for one in HELD.rows(seen):  # on lines of their own, to be copied whole
        if one.command:
            typer.echo(printable(f"do for {one.what or 'all'}: {one.command}"))
