"""Says what is wrong with a command line in one line, as other errors are told.

The program that parses it has words of its own, which differ by version: of them only what was
given is used, where it is not known otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer

from pushlane.cli.errors import USAGE, note
from pushlane.util.texts import nearest

_OURS = (
    (r"^No such command (.*?)\.? Did you mean (.*)$", r"there is no command \1; did you mean \2"),
    (r"^No such command", "there is no command"),
    (r"^Got unexpected extra argument(?:s|\(s\))? \((.*)\)$", r"there are words too many: \1"),
    (r"is not a valid int(?:eger)?(?: range)?$", "is not a whole number"),
    (r"is not a valid float(?: range)?$", "is not a number"),
)


def refuse(error: Any) -> None:
    """Tell of wrong usage, and end by its exit code. Does nothing for an error that shows help."""
    if type(error).__name__ != "NoArgsIsHelpError":
        note(f"error: {_text(error)}")
        raise typer.Exit(USAGE) from error


def _text(error: Any) -> str:
    """Return what is wrong, and where the right usage is shown unless that says it."""
    ctx = getattr(error, "ctx", None)
    text = _what(error, ctx)
    if "`pushlane" in text or ctx is None:
        return text
    shows = "lists the commands" if hasattr(ctx.command, "commands") else "shows its usage"
    end = " " if text.endswith("?") else "; "
    return f"{text}{end}`{ctx.command_path} --help` {shows}"


def _what(error: Any, ctx: Any) -> str:
    match type(error).__name__:
        case "MissingParameter":
            return _missing(error)
        case "BadParameter":
            return _bad_value(error)
        case "NoSuchOption":
            return _no_such_option(error, ctx)
        case "BadOptionUsage":
            return _bad_option(error, ctx)
        case _:
            return _in_our_words(error.message)


def _missing(error: Any) -> str:
    param = error.param
    if param is None:
        return _in_our_words(error.format_message())
    kind = "argument" if param.param_type_name == "argument" else "option"
    about = f" ({_begun_small(param.help)})" if getattr(param, "help", None) else ""
    return f"an {kind} is missing: {_with_value(param)}{about}"


def _bad_value(error: Any) -> str:
    text = _in_our_words(error.message)
    return f"{_name(error.param)}: {text}" if error.param is not None else text


def _no_such_option(error: Any, ctx: Any) -> str:
    known = [name for one in ctx.command.get_params(ctx) for name in one.opts] if ctx else []
    return no_option_text(error.option_name, known)


def no_option_text(name: str, known: Iterable[str]) -> str:
    """Return that there is no such option, with the nearest of those that there are."""
    near = nearest(name.lstrip("-"), [one.lstrip("-") for one in known])
    return f"there is no option {name}" + (f"; did you mean '--{near}'?" if near else "")


def _bad_option(error: Any, ctx: Any) -> str:
    name = error.option_name
    if "not take a value" in error.message:
        return f"{name} takes no value"
    of_name = (one for one in ctx.command.get_params(ctx) if name in one.opts) if ctx else ()
    param = next(iter(of_name), None)
    value = param.metavar if param is not None else ""
    return f"{name} needs a value{f': {value}' if value else ''}"


def _in_our_words(message: str) -> str:
    text = message.rstrip().rstrip(".")
    for theirs, ours in _OURS:
        text = re.sub(theirs, ours, text)
    return _begun_small(text)


def _begun_small(text: str) -> str:
    text = text.rstrip(".")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _name(param: Any) -> str:
    is_argument = param.param_type_name == "argument"
    if is_argument:
        return str(param.metavar or param.name.upper()).strip("[]{}")
    return str(max(param.opts, key=len))


def _with_value(param: Any) -> str:
    if param.param_type_name == "argument" or not param.metavar:
        return _name(param)
    return f"{_name(param)} {param.metavar}"
