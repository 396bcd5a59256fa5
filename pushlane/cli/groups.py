"""Reads the words of a command line up to the command: which one is meant, and what stands first.

The options that every command takes may stand before it. Where a word is no command, the error
names the one that does what is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

WITH_VALUE = ("--broker", "--admin-url", "--redis-url", "--data-dir", "--namespace", "--config")
ALONE = ("--debug",)

_INSTEAD = {
    "help": "`pushlane --help` lists the commands, `pushlane COMMAND --help` says what one takes",
    "list": "`pushlane tasks` lists the tasks",
    "logs": (
        "each process writes its log to stderr; what became of a task: `pushlane results TASK`, "
        "what it waits for: `pushlane why TASK`"
    ),
    "status": "`pushlane tasks` lists the tasks, `pushlane why` says what anything waits for",
    "version": "`pushlane --version` prints it",
}


class CommandGroup(TyperGroup):
    """A group of commands that takes the options of every command before a command, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = _options_last(args)
        if not ctx.resilient_parsing:
            self._refuse_too_early(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_too_early(self, ctx: Any, args: Sequence[str]) -> None:
        option = args[0].partition("=")[0] if args else ""
        known = {name for one in self.get_params(ctx) for name in one.opts}
        command = next((word for word in args if word in self.commands), None)
        if option.startswith("-") and option not in known and command:
            ctx.fail(f"No such option before a command: {option}; put it after {command!r}.")


class FirstByDefault(CommandGroup):
    """A group whose first command is meant where none is named: `task ID` is `task show ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, rest = _split(args)
        if rest and rest[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


class Program(CommandGroup):
    """The group of all commands, which knows what some words that are none stand for elsewhere."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in _INSTEAD:
            ctx.fail(f"No such command {args[0]!r}: {_INSTEAD[args[0]]}.")
        return super().resolve_command(ctx, args)


def _options_last(args: Sequence[str]) -> list[str]:
    """Return the words with the options of every command that come first behind the command."""
    before, rest = _split(args)
    if not rest or rest[0].startswith("-"):  # no command, or --help
        return [*rest]
    return [rest[0], *before, *rest[1:]]


def _split(args: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the options of every command that come first, with their values, and all else."""
    place = 0
    while place < len(args) and args[place].partition("=")[0] in (*WITH_VALUE, *ALONE):
        place += 2 if args[place] in WITH_VALUE else 1
    return args[:place], args[place:]
