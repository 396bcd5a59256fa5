"""Reports errors to the person at the terminal: one line on stderr, and an exit code.

1 an error in the request, 2 wrong usage (typer's own), 3 a service does not answer, 130 Ctrl-C;
4 is what `doctor` ends with when it has only warnings, and 5 a process whose event loop hung.
Tracebacks are shown only with --debug, without the texts of errors that are not ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import typer

from pushlane.core.errors import PushlaneError, UserError
from pushlane.util.extras import needs_extra
from pushlane.util.texts import traceback_of

USAGE = 2
HUNG = 5
INTERRUPTED = 130


@contextmanager
def errors_told(debug: bool) -> Iterator[None]:
    """Turn whatever is raised inside into a message and an exit code."""
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # who reads our output has gone, as `| head` does
        raise
    except PushlaneError as error:
        _tell(error, str(error), debug)
        raise typer.Exit(error.exit_code) from error
    except Exception as error:
        _tell(
            error,
            f"unexpected {type(error).__name__}: this is a defect in pushlane; "
            "please report it with the output of the same command with --debug",
            debug,
        )
        raise typer.Exit(1) from error


def note(text: str) -> None:
    """Write a line to stderr, which is not output."""
    typer.echo(text, err=True)


def confirm(doing: str, question: str, refused: str) -> None:
    """Ask before something that cannot be undone.

    Raises:
        UserError: the answer is no, or there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise UserError(f"{doing} cannot be undone and there is no terminal to ask on; add --yes")
    if not typer.confirm(question, err=True):
        raise UserError(refused)


def pipeline_extra() -> AbstractContextManager[None]:
    """Import the pipeline inside this context: `needs_extra`."""
    return needs_extra("pipeline")


def _tell(error: Exception, message: str, debug: bool) -> None:
    if debug or os.environ.get("PUSHLANE_DEBUG"):
        note(traceback_of(error))
    note(f"error: {message}")
