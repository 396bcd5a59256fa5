"""`config`: every setting in force and where it came from, with its secrets masked."""

from __future__ import annotations

import re
from typing import Any

import typer
from pydantic import SecretStr

from cli.flags import Flags, JsonFlag, with_flags
from cli.render import Column, print_json, print_table

_MASK = "***"
_COLUMNS = (Column("SETTING"), Column("VALUE", elastic=True), Column("FROM"))


def register(app: typer.Typer) -> None:
    app.command()(with_flags(config))


def config(flags: Flags, as_json: JsonFlag = False) -> None:
    """Show each setting, its value, and where it came from."""
    origins = flags.origins()
    values = {name: _shown(value) for name, value in flags.settings()}
    if as_json:
        print_json(
            {name: {"value": value, "from": origins[name]} for name, value in values.items()}
        )
    else:
        rows = ((name, _text(value), origins[name]) for name, value in values.items())
        print_table(_COLUMNS, rows)


def masked(text: str) -> str:
    """The text without the passwords and query values of URLs in it."""
    text = re.sub(r"://([^/@:]*):[^/]*@", rf"://\1:{_MASK}@", text)
    text = re.sub(r"://[^/@:]+@", f"://{_MASK}@", text)
    return re.sub(r"([?&][^=&\s]+=)[^&\s]+", rf"\1{_MASK}", text)


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return _MASK
    return masked(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    return "-" if value is None else str(value)
