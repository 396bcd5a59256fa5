"""`config` shows every setting in force and where it came from, with its secrets masked."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from pushlane.cli.flags import Flags, JsonFlag
from pushlane.cli.render import Column, print_json, print_table
from pushlane.util.texts import MASK, Secret, masked, shown_url

_COLUMNS: tuple[Column[tuple[str, Any, str]], ...] = (
    Column("SETTING", lambda row: row[0]),
    Column("VALUE", lambda row: _text(row[1]), elastic=True),
    Column("FROM", lambda row: row[2]),
)


def config(flags: Flags, as_json: JsonFlag = False) -> None:
    """Show each setting, its value, and where it came from."""
    shown = shown_settings(flags)
    if as_json:
        print_json(shown)
    else:
        print_table(_COLUMNS, ((name, one["value"], one["from"]) for name, one in shown.items()))


def shown_settings(flags: Flags) -> dict[str, dict[str, Any]]:
    """Return each setting in force with its origin, as people may read it: secrets are masked."""
    origins = flags.origins()
    return {
        name: {"value": _shown(name, value), "from": origins[name]}
        for name, value in flags.settings().items()
    }


def _text(value: Any) -> str:
    """Return a value on one line: of sinks the names and kinds, as `sinks show` has the rest."""
    if isinstance(value, dict):
        value = ", ".join(f"{name} ({sink['kind']})" for name, sink in value.items()) or None
    return "-" if value is None else str(value)


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Secret):
        return MASK
    if name == "sink":
        return shown_url(value)
    if isinstance(value, dict):
        return {
            name: msgspec.to_builtins(replace(sink, options={})) | {"options": sink.shown_options()}
            for name, sink in value.items()
        }
    return masked(value) if isinstance(value, str) else value
