"""What a page is: an address, what it asks of the list of operations, and a template.

A page gives values for its template. The block `live` of the template is what changes: it is sent
again as it does, the same bytes to all who see the same. So it holds nothing of its reader but by
`nonce` and `form_token`, which stand for what each reader has of their own.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pushlane.console.assets import Assets
from pushlane.operations.operation import Of, Operation, Result
from pushlane.operations.session import Beside, Caller

_TEMPLATES = Path(__file__).parent / "templates"
NONCE = f"nonce-{secrets.token_hex(12)}"
FORM_TOKEN = f"form-{secrets.token_hex(12)}"

Doing = Callable[[Caller, Operation[Any], Beside], Awaitable[Any]]


class Ask:
    """A page that is asked for: by whom, with which query and which parts of its address."""

    def __init__(
        self, doing: Doing, caller: Caller, query: Mapping[str, str], parts: Mapping[str, str]
    ) -> None:
        self._doing = doing
        self.caller = caller
        self.query = query
        self.parts = parts
        self.asked: list[Operation[Any]] = []

    def again(self) -> Ask:
        """Return the same, asked for once more."""
        return Ask(self._doing, self.caller, self.query, self.parts)

    async def do(self, operation: Operation[Result], beside: Beside | None = None) -> Result:
        """Do an operation with the caller's own rights; the page shows how it is done elsewhere."""
        self.asked.append(operation)
        return await self._doing(self.caller, operation, beside or Beside())  # type: ignore[no-any-return]

    def may(self, kind: type[Operation[Any]]) -> bool:
        """Tell whether the caller may do what is of this kind, to something at least."""
        return may(self.caller, kind)


def may(caller: Caller, kind: type[Operation[Any]]) -> bool:
    """Tell whether a caller may do what is of a kind, to something at least."""
    if not caller.access.role.may(kind.role):
        return False
    return caller.access.apps is None or kind.of is not Of.EVERYTHING


class Page(NamedTuple):
    """A page of the console.

    `shows` is the operation without which there is nothing to see: who may not do it is not led
    here. `values` are for the template, and are asked for again while somebody looks. `query` names
    what the address may have behind its `?`.
    """

    path: str
    title: str
    template: str
    shows: type[Operation[Any]]
    values: Callable[[Ask], Awaitable[Mapping[str, Any]]]
    query: tuple[str, ...] = ()
    is_in_nav: bool = True


class Elsewhere(NamedTuple):
    """How an operation is done on the command line, if it is, and with curl."""

    command: str
    curl: str


def elsewhere(operation: Operation[Any]) -> Elsewhere:
    """Return how an operation that shows something is asked for elsewhere."""
    kind = type(operation)
    path, command = kind.path, ["pushlane", *(kind.commands[0].split() if kind.commands else ())]
    given: list[tuple[str, str]] = []
    for field in msgspec.structs.fields(kind):
        value = getattr(operation, field.name)
        if field.name in kind.in_path():
            path = path.replace(f"{{{field.name}}}", str(value))
            command.append(str(value))
        elif value != field.default:
            several = value if isinstance(value, tuple) else (value,)
            given += [(field.name, str(one)) for one in several]
    for name, value in given:
        command += [f"--{name.replace('_', '-')}", value]
    query = f"?{urlencode(given)}" if given else ""
    curl = f'curl -s "$URL/v1{shlex.quote(path + query) if _is_odd(path) else path + query}"'
    return Elsewhere(shlex.join(command) if kind.commands else "", f'{curl} -H "$AUTH"')


def _is_odd(path: str) -> bool:
    return any(char in path for char in "\"'`$\\ !")


def environment(assets: Assets) -> Environment:
    """Return what renders templates. Whatever comes from outside is escaped."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {"time": time, "count": count, "fields": fields_text}
    made.globals |= {"asset": assets.url, "nonce": NONCE, "form_token": FORM_TOKEN}
    return made


def time(at_ms: int) -> Markup:
    """Return a time (Unix ms) in UTC, which the browser shows in its reader's zone."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    machine = at.isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}">{} UTC</time>').format(machine, f"{at:%Y-%m-%d %H:%M:%S}")


def count(number: float) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a change as the command line has them."""
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "-"
