"""The `pushlane` program, which knows the module of each command and loads only that one.

Ends the process of a command with the command's own exit code.

The HTTP client and Pulsar's client have threads of their own. One that needs Python's lock while
the interpreter takes itself apart aborts the process (exit code 134), so a command ends without
that: what the interpreter does before is done here, and the process leaves at once.

It holds no command itself. A new one is a function of its name, or a `Group`, in a module that is
named in `_COMMANDS`.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TextIO

import typer

from pushlane.cli.groups import Program
from pushlane.version import VERSION

_UNWRITTEN = 1
_POLITELY = 10  # of the 19 steps that a process may let others go before
_is_program = False


def run_and_end(command: Callable[[], object]) -> NoReturn:
    """Run a command, which may end by `SystemExit`, and end the process with its exit code.

    Under a tracer or a profiler the interpreter ends as it always does, since they write their
    results after the program.
    """
    try:
        command()
        code = 0
    except SystemExit as end:
        code = _number(end.code)
    if sys.gettrace() is not None or sys.getprofile() is not None:
        raise SystemExit(code)
    leave(code)


def leave(code: int, exit_now: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """Wait for threads that are no daemons, run the exit functions, flush, and end the process.

    What cannot be written turns exit code 0 into 1.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    written = [_flushed(sys.stdout), _flushed(sys.stderr)]
    exit_now(code or (0 if all(written) else _UNWRITTEN))


def _number(code: object) -> int:
    """Return the exit code that Python makes of what `SystemExit` holds."""
    if code is None or isinstance(code, int):
        return code or 0
    sys.stderr.write(f"{code}\n")
    return 1


def _flushed(stream: TextIO | None) -> bool:
    """Write what the stream holds. False when who reads it has gone, or the disk is full."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):  # ValueError: it is closed
        return False
    return True


_COMMANDS = {
    "sample": ("sample",),
    "submit": ("submit",),
    "fanout": ("fanout",),
    "tasks": (
        *("tasks", "task", "pause", "resume", "cancel"),
        *("promote", "demote", "levels", "forget"),
    ),
    "reschedule": ("reschedule",),
    "limits": ("limit", "limits", "quota", "stop-if-dead"),
    "preview": ("apply",),
    "why": ("why",),
    "top": ("top",),
    "results": ("results",),
    "push": ("push",),
    "trace": ("trace",),
    "pool": ("pool",),
    "suppress": ("suppress", "tokens"),
    "replay": ("replay", "clone"),
    "dead": ("dead",),
    "spool": ("spool",),
    "dispatch": ("dispatch",),
    "sinks": ("sinks",),
    "processes": ("processes", "formats"),
    "audit": ("audit",),
    "access": ("access",),
    "serve": ("serve",),
    "mcp": ("mcp",),
    "streams": ("streams",),
    "ingest": ("ingest",),
    "registry": ("backup", "restore", "registry"),
    "pipeline": ("pipeline", "receipts"),
    "rules": ("rules",),
    "report": ("report",),
    "alerts": ("alerts",),
    "dev": ("demo", "up", "down"),
    "bootstrap": ("bootstrap",),
    "config": ("config",),
    "doctor": ("doctor", "stats-dump"),
}
_MAY_BE_NEGATIVE = ("limit", "levels", "pool", "quota")
"""Their numbers may be negative on the command line: the answer says what is wrong with that."""

_MODULES = {name: module for module, names in _COMMANDS.items() for name in names}


_ABOUT = """Send push campaigns by priority: urgent ones go first, and all get their share.

Our words: a task is a campaign (one file or stream of pushes), its level is its priority (high,
medium, low), and its quota is its weight among the tasks of its app at that level.
"""


class _Commands(Program):
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
    """Return the commands of a module of this package, by name."""
    app = _typer()
    loaded = importlib.import_module(f"pushlane.cli.{module}")
    if module == "dev":  # whose commands are those of a clone, if it is one
        loaded.register(app)
    else:
        from pushlane.cli.flags import add

        for name in _COMMANDS[module]:
            settings = {"ignore_unknown_options": name in _MAY_BE_NEGATIVE}
            add(app, name, getattr(loaded, name.replace("-", "_")), context_settings=settings)
    return dict(typer.main.get_group(app).commands)


def build() -> typer.Typer:
    """Return the application with all its commands."""
    return _typer(cls=_Commands)


def _typer(**options: Any) -> typer.Typer:
    app = typer.Typer(
        name="pushlane",
        help=_ABOUT,
        epilog="`pushlane COMMAND --help` has each command's options and an example.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )
    app.callback()(_root)
    return app


def give_way() -> None:
    """Let other processes of this machine go first, as this command only reads, and much.

    It is for the rest of the process, so it does nothing in one that is not the program's own.
    """
    if _is_program:
        os.nice(_POLITELY)


def main() -> NoReturn:
    """Run the console script, and end the process with the command's exit code."""
    global _is_program
    _is_program = True
    run_and_end(lambda: build()(prog_name="pushlane"))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pushlane {VERSION}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command, and are of none."""
