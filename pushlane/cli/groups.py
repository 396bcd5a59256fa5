"""Reads the words of a command line up to the command, and draws help.

The options that every command takes may stand before it. Where a word is no command, the error
names the one that does what is looked for. Help lists commands and options in groups, and ends
with examples (`help_texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from typer.core import TyperCommand, TyperGroup

WITH_VALUE = ("--broker", "--admin-url", "--redis-url", "--data-dir", "--namespace", "--config")
ALONE = ("--debug",)

_INSTEAD = {
    "delete": "`pushlane cancel TASK` ends a task, `pushlane forget TASK` removes a finished one",
    "health": "`pushlane doctor` checks the set-up, `pushlane why` says what anything waits for",
    "help": "`pushlane --help` lists the commands, `pushlane COMMAND --help` says what one takes",
    "list": "`pushlane tasks` lists the tasks",
    "logs": (
        "each process writes its log to stderr; what became of a task: `pushlane results TASK`, "
        "what it waits for: `pushlane why TASK`"
    ),
    "run": "`pushlane dispatch` delivers what is submitted",
    "send": "`pushlane submit` sends a campaign, `pushlane dispatch` delivers it",
    "status": "`pushlane tasks` lists the tasks, `pushlane why` says what anything waits for",
    "stop": "`pushlane pause TASK` stops a task for a while, `pushlane cancel TASK` for good",
    "version": "`pushlane --version` prints it",
    "worker": "`pushlane dispatch` delivers what is submitted",
}


_LISTS = ("tasks", "limits", "processes", "audit")
"""Commands that list, as others do with `list` behind them: that word is heard here, too."""


class ShownCommand(TyperCommand):
    """A command whose help has its options in groups, and examples at its end."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before, rest = _split(args)
        if ctx.info_name in _LISTS and rest[:1] == ["list"]:
            args = [*before, *rest[1:]]
        if ctx.ignore_unknown_options:
            self._refuse_misspelt(ctx, args)
        with _of(ctx):
            return super().parse_args(ctx, args)

    def _refuse_misspelt(self, ctx: Any, args: Sequence[str]) -> None:
        """Refuse an unknown option of a command that takes numbers which may be negative."""
        from pushlane.cli.usage import no_option_text

        known = {name for one in self.get_params(ctx) for name in (*one.opts, *one.secondary_opts)}
        for word in takewhile(lambda one: one != "--", args):
            name = word.partition("=")[0]
            if name.startswith("-") and name.lstrip("-")[:1].isalpha() and name not in known:
                ctx.fail(no_option_text(name, known))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for group, records in grouped_options(self, ctx).items():
            with formatter.section(group):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_examples(words_of(ctx), formatter)


def grouped_options(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the names and texts of a command's arguments and options, by group, in order."""
    from pushlane.cli.help_texts import ARGUMENTS, EVERY_COMMAND, OPTION_GROUPS, OPTIONS

    groups = OPTION_GROUPS.get(words_of(ctx), {})
    group_of = {name: group for group, names in groups.items() for name in names.split()}
    places = {name: place for place, name in enumerate(group_of)}
    group_of |= dict.fromkeys((*WITH_VALUE, *ALONE, *ctx.help_option_names), EVERY_COMMAND)
    found: dict[str, list[tuple[str, str]]] = {
        group: [] for group in (ARGUMENTS, *groups, OPTIONS, EVERY_COMMAND)
    }
    for param in sorted(command.get_params(ctx), key=lambda one: places.get(one.opts[0], -1)):
        if record := param.get_help_record(ctx):
            is_argument = param.param_type_name == "argument"
            found[ARGUMENTS if is_argument else group_of.get(param.opts[0], OPTIONS)].append(record)
    return {group: records for group, records in found.items() if records}


def write_examples(command: str, formatter: Any) -> None:
    """Write a command's examples as they are, so that they can be copied."""
    from pushlane.cli.help_texts import EXAMPLES

    if examples := EXAMPLES.get(command):
        with formatter.section("Example" if len(examples) == 1 else "Examples"):
            for line in "\n".join(examples).splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def words_of(ctx: Any) -> str:
    """Return the words behind `pushlane` that name this command."""
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, ctx.info_name)
        ctx = ctx.parent
    return " ".join(names)


class CommandGroup(TyperGroup):
    """A group of commands that takes the options of every command before a command, too."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        first = [(name, (one.help or "").partition("\n\n")[0]) for name, one in found if one]
        with formatter.section("Commands"):
            formatter.write_dl(first)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = _options_last(args)
        if not ctx.resilient_parsing:
            self._refuse_too_early(ctx, args)
        with _of(ctx):
            return super().parse_args(ctx, args)

    def _refuse_too_early(self, ctx: Any, args: Sequence[str]) -> None:
        option = args[0].partition("=")[0] if args else ""
        known = {name for one in self.get_params(ctx) for name in one.opts}
        command = next((word for word in args if word in self.commands), None)
        if option.startswith("-") and option not in known and command:
            ctx.fail(f"{option} stands before the command; put it after {command!r}")


class FirstByDefault(CommandGroup):
    """A group whose first command is meant where none is named: `task ID` is `task show ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, rest = _split(args)
        if rest and rest[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


class Program(CommandGroup):
    """The group of all commands, which knows what some words that are none stand for elsewhere.

    It tells what is wrong with a command line, of any command.
    """

    def make_context(self, *given: Any, **options: Any) -> Any:
        with _told():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        from pushlane.cli.help_texts import COMMANDS

        width = max(len(name) for group in COMMANDS.values() for name in group)
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in commands.items()])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_examples("", formatter)
        super().format_epilog(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in _INSTEAD:
            ctx.fail(f"there is no command {args[0]!r}: {_INSTEAD[args[0]]}")
        return super().resolve_command(ctx, args)


@contextmanager
def _of(ctx: Any) -> Iterator[None]:
    """Have each error in usage name its command: the parser leaves it out of some."""
    try:
        yield
    except Exception as error:
        if getattr(error, "ctx", ctx) is None:
            error.ctx = ctx  # type: ignore[attr-defined]
        raise


@contextmanager
def _told() -> Iterator[None]:
    """Turn wrong usage inside into one line on stderr, and exit code 2."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's, which does not export their base
            raise
        from pushlane.cli.usage import refuse

        refuse(error)
        raise


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
