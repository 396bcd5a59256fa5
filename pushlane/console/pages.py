"""A page has an address, operations that it asks for, and a template.

A page gives values for its template. The block `live` of the template is what changes: it is sent
again as it does, the same bytes to all who see the same. So it holds nothing of its reader but by
`nonce` and `form_token`, which stand for what each reader has of their own.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import Response

from pushlane.console.assets import Assets
from pushlane.console.commands import command_of
from pushlane.core.task import now_ms
from pushlane.door.drafts import Drafts
from pushlane.operations.operation import ETag, Of, Operation, Result
from pushlane.operations.session import Beside, Caller
from pushlane.operations.steps import clock_text, step_text
from pushlane.operations.task_views import too_late
from pushlane.operations.waits import label, parts_of, sentence, took_text

_TEMPLATES = Path(__file__).parent / "templates"
NONCE = f"nonce-{secrets.token_hex(12)}"
_CLOCK = re.compile(
    "(since )?(?:([0-9]{4}-[0-9]{2}-[0-9]{2}) )?\\b([0-9]{2}:[0-9]{2}(?::[0-9]{2})?) UTC"
)
_MINUTE = timedelta(minutes=1)
FORM_TOKEN = f"form-{secrets.token_hex(12)}"

_UNKNOWN = Markup('<span class="none">unknown</span>')

Doing = Callable[[Caller, Operation[Any], Beside], Awaitable[Any]]


class Ask:
    """A page that is asked for: by whom, with which query and which parts of its address."""

    def __init__(
        self,
        doing: Doing,
        caller: Caller,
        query: Mapping[str, str],
        parts: Mapping[str, str],
        drafts: Drafts,
    ) -> None:
        self._doing = doing
        self.caller = caller
        self.query = query
        self.parts = parts
        self.drafts = drafts
        self.asked: list[Operation[Any]] = []
        self.is_again = False

    def again(self) -> Ask:
        """Return the same, asked for once more, for what changes on an open page."""
        again = Ask(self._doing, self.caller, self.query, self.parts, self.drafts)
        again.is_again = True
        return again

    async def do(self, operation: Operation[Result], beside: Beside | None = None) -> Result:
        """Do an operation with the caller's own rights; the page shows how it is done elsewhere."""
        self.asked.append(operation)
        return await self._doing(self.caller, operation, beside or Beside())  # type: ignore[no-any-return]

    async def quietly(self, operation: Operation[Result], beside: Beside | None = None) -> Result:
        """Do an operation that the page does not show how to do."""
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
    here. `values` are for the template, and are asked for again while somebody looks, if it
    `is_live`; one of them may be its `title`. `query` names what the address may have behind its
    `?`. What `is_own` shows no two callers the same.
    """

    path: str
    title: str
    template: str
    shows: type[Operation[Any]]
    values: Callable[[Ask], Awaitable[Mapping[str, Any]]]
    query: tuple[str, ...] = ()
    is_live: bool = True
    is_own: bool = False


class Elsewhere(NamedTuple):
    """The command and the curl that do an operation; `command` is empty where there is none."""

    command: str
    curl: str


def elsewhere(operation: Operation[Any]) -> Elsewhere:
    """Return how an operation is done elsewhere, to whatever state a value is in."""
    return Elsewhere(command_of(operation), _curl(operation))


def _curl(operation: Operation[Any]) -> str:
    """Return the command that asks for it over HTTP."""
    kind = type(operation)
    path, query, headers, body = kind.path, "", ['-H "$AUTH"'], ""
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value = getattr(operation, field.name)
        if field.name in kind.in_path():
            path = path.replace(f"{{{field.name}}}", quote(str(value)))
        elif field.required or value != field.default:
            given[field.name] = value
    if kind.method == "GET":
        told = {name: "true" if value is True else value for name, value in given.items()}
        query = f"?{urlencode(told, doseq=True)}" if told else ""
    else:
        if kind.etag is ETag.NEEDED:
            headers.append('-H "If-Match: *"')
        if given:
            body = shlex.quote(msgspec.json.encode(given).decode())
    asked = "curl -s" if kind.method == "GET" else f"curl -sX {kind.method}"
    words = [f'{asked} "$URL/v1{path}{query}"', *headers]
    return " ".join([*words, "-d", body] if body else words)


def redirect(there: str) -> Response:
    """Lead on to an address relative to this one, which no proxy's prefix makes wrong."""
    location = quote(there, safe="/?&=%.:,~+-_@!*'();#")
    return Response(status_code=303, headers={"Location": location, "Cache-Control": "no-store"})


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
    made.filters |= {
        "time": time,
        "exact": exact_time,
        "clocked": clocked,
        "too_late": too_late,
        "count": count,
        "rate": rate,
        "bar": bar,
        "fields": fields_text,
        "span": span,
        "soon": soon,
        "took": took_text,
        "parts": parts_of,
        "label": label,
        "step": step_text,
        "clocks": clock_text,
        "meaning": sentence,
    }
    made.globals |= {"asset": assets.url, "nonce": NONCE, "form_token": FORM_TOKEN}
    return made


def time(at_ms: int) -> Markup:
    """Return a time (Unix ms) in UTC, which the browser shows in its reader's zone."""
    machine = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    shown = f"{machine[:10]} {machine[11:19]} UTC"
    return Markup(f'<time datetime="{machine}">{shown}</time>')  # noqa: S704 - of digits


def exact_time(at_ms: int) -> Markup:
    """Return the same to the millisecond."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    machine = at.isoformat(timespec="milliseconds")
    shown = f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03}"
    return Markup('<time class="exact" datetime="{}">{} UTC</time>').format(machine, shown)


def clocked(text: str, at_ms: int | None = None) -> Markup:
    """Return a text with its times as the page's script shows them, in the reader's zone.

    A time without a date is still to come at `at_ms` (Unix ms; else now), unless after `since`.
    """
    now = datetime.fromtimestamp((now_ms() if at_ms is None else at_ms) / 1000, UTC)

    def shown(found: re.Match[str]) -> str:
        since, date, clock = found.groups()
        try:
            at = datetime.fromisoformat(f"{date or now.date()}T{clock}+00:00")
        except ValueError:
            return found[0]
        if date is None and not since and at < now - _MINUTE:
            at += timedelta(days=1)
        machine = at.isoformat(timespec="milliseconds")
        near = "" if date else ' class="clock"'
        told = found[0].removeprefix(since or "")
        return f'{since or ""}<time{near} datetime="{machine}">{told}</time>'

    return Markup(_CLOCK.sub(shown, str(escape(text))))  # noqa: S704 - it is escaped


def span(seconds: float) -> str:
    """Return a duration in its two largest units: `40 s`, `12 min 5 s`, `3 h 20 min`."""
    left = max(0, round(seconds))
    parts = []
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= unit_s:
            parts.append(f"{left // unit_s} {unit}")
            left %= unit_s
    return " ".join(parts[:2]) or "0 s"


def soon(seconds: float) -> str:
    """Return a time to come in one unit, of which it is at least two: it is not to jump."""
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= 2 * unit_s:
            return f"in {seconds / unit_s:.0f} {unit}"
    return "in 1 s"


def count(number: float) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def rate(per_s: float | None) -> str:
    """Return the pushes a second; marked where nobody knows them."""
    return _UNKNOWN if per_s is None else f"{per_s:,.1f}"


def bar(got: float | None, due: float | None, most: float) -> Markup:
    """Draw what somebody gets of what they are entitled to: `most` fills it."""
    said = [("unknown" if one is None else f"{one:,.1f}") for one in (got, due)]
    label = f"gets {said[0]} of its fair share of {said[1]} a second"
    width = 100 * (got or 0.0) / most if most else 0.0
    drawn = f'<rect class="got" x="0" y="2" height="6" width="{width:.1f}"></rect>'
    if due is not None:
        x = 99 * due / most if most else 0.0
        drawn += f'<rect class="due" x="{x:.1f}" y="0" width="1" height="10"></rect>'
    return Markup(  # noqa: S704 - of numbers
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{drawn}</svg>'
    )


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a change as the command line has them."""
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "-"
