"""The options that every command takes, and groups of options as dataclasses.

`with_flags` adds them to a command, so that none has to repeat them, and reports its errors; most
commands then do one piece of work on the backend that these options name.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, TypeVar, get_type_hints

import typer

from pushlane import settings
from pushlane.cli.errors import errors_told, note
from pushlane.cli.groups import CommandGroup, FirstByDefault, ShownCommand
from pushlane.cli.logs import keep_values_out
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask

if TYPE_CHECKING:
    from pushlane.backends.backend import Backend

T = TypeVar("T")


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Declare an option with a value: what stands for the value, what it does, other names."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def switch(name: str, text: str) -> Any:
    """Declare an option that is given or not, and that has no `--no-` form."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Declare an argument: what stands for it, and what it is."""
    return typer.Argument(metavar=metavar, help=text, **more)


JsonFlag = Annotated[bool, switch("--json", "Print JSON.")]
WideFlag = Annotated[bool, switch("--wide", "Show all columns uncut, even on a narrow terminal.")]
ConfigFlag = Annotated[
    Path | None, option("PATH", "Settings file, instead of pushlane.toml.", "--config")
]
DebugFlag = Annotated[bool, switch("--debug", "Show the traceback of an error.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
LogFormat = Annotated[Literal["text", "json"] | None, typer.Option(help="Format of log lines.")]


@dataclass(frozen=True)
class Flags:
    """The settings that the command line gave, by setting name; None for those it did not."""

    given: dict[str, Any]

    def also(self, **more: Any) -> Flags:
        """Return these flags with settings that only this command has a flag for."""
        return Flags({**self.given, **more})

    def settings(self) -> Settings:
        """Return all settings in force. Raises BadInput when a value cannot be used."""
        return settings.load(self.given)

    def origins(self) -> dict[str, str]:
        """Return where each setting came from."""
        return settings.origins(self.settings(), self.given)


Command = Callable[Concatenate[Flags, ...], None]
"""A command as it is written: what it does with the settings, and with options of its own."""


def on_backend(
    settings: Settings, work: Callable[[Backend], Awaitable[T]], *, create: bool = False
) -> T:
    """Open a backend, do the work on it, close it, and return the work's result.

    With `create` an embedded store that is not there is made, and the user is told where.

    Raises:
        NoStore: there is no embedded store, and `create` is False.
    """
    import asyncio

    from pushlane.backends import backend

    async def session() -> T:
        is_new = settings.is_store_missing
        async with backend.connect(settings, create=create) as opened:
            if is_new:
                note(f"made a new store {settings.place}")
            try:
                return await work(opened)
            except UnknownTask as error:
                told = f"{error}; looked {settings.place}"
                raise UnknownTask(told, several=error.several) from error

    return asyncio.run(session())


@dataclass(frozen=True)
class Group:
    """Commands behind one name, such as `show` and `send` behind `spool`."""

    about: str
    commands: Sequence[Command]
    has_default: bool = False
    """The first command is meant where none is named."""


@dataclass(frozen=True, kw_only=True)
class FileFlags:
    """The options that say how a file of rows is written."""

    format: Annotated[str | None, option("csv|jsonl|parquet", "Format of FILE.")] = None
    delimiter: Annotated[
        str | None,
        option("';'|tab", "Separator of CSV columns; a comma unless given."),
    ] = None
    encoding: Annotated[
        str | None,
        option(
            "NAME", "Encoding of CSV and JSON Lines, like cp1252 or utf-16; UTF-8 unless given."
        ),
    ] = None


def add(app: typer.Typer, name: str, found: Command | Group, **options: Any) -> None:
    """Add a command, or a group of commands, each with the shared options."""
    if isinstance(found, Group):
        cls = FirstByDefault if found.has_default else CommandGroup
        group = typer.Typer(cls=cls, help=found.about, no_args_is_help=True, rich_markup_mode=None)
        for each in found.commands:
            add(group, each.__name__.rstrip("_").replace("_", "-"), each)
        app.add_typer(group, name=name)
    else:
        app.command(name, cls=ShownCommand, **options)(with_flags(found))


def with_flags(command: Command) -> Callable[..., None]:
    """Return the command for typer, with the shared options; it gives `Flags` as first argument.

    A parameter whose type is a dataclass stands for options of the names of its fields.
    """
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    groups = {each.name: each.annotation for each in own if _is_group(each)}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        debug = given.pop("debug")
        if config := given.pop("config"):
            os.environ[settings.CONFIG_VARIABLE] = str(config.absolute())
        flags = Flags({name: given.pop(name) for name in _BACKEND})
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        keep_values_out()
        for told in settings.misspelt_variables():
            note(f"warning: {told}")
        with errors_told(debug):
            command(flags, **given)

    single = [part for each in own for part in _parts(each)]
    run.__signature__ = signature.replace(parameters=[*single, *_parameters()])  # type: ignore[attr-defined]
    return run


def _is_group(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _parts(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the parameter itself, or those that its dataclass stands for."""
    if not _is_group(parameter):
        return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    kinds = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=kinds[field.name],
        )
        for field in fields(parameter.annotation)
    ]


_BACKEND = {
    "broker": Annotated[str | None, option("URL", "`embedded`, or the brokers' pulsar:// URL.")],
    "admin_url": Annotated[str | None, option("URL", "Pulsar's admin REST URL.")],
    "redis_url": Annotated[str | None, option("URL", "The registry's URL (with Pulsar).")],
    "data_dir": Annotated[Path | None, option("DIR", "Folder of the embedded store.")],
    "namespace": Annotated[str | None, option("NAME", "Pulsar tenant/namespace of the lanes.")],
}


def _parameters() -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        *(inspect.Parameter(n, keyword, default=None, annotation=o) for n, o in _BACKEND.items()),
        inspect.Parameter("config", keyword, default=None, annotation=ConfigFlag),
        inspect.Parameter("debug", keyword, default=False, annotation=DebugFlag),
    ]
