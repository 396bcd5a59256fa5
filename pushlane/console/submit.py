"""The pages that submit a file: it is chosen, its columns are read, it is checked, and then sent.

What is checked is what is submitted. Both go on in the background, and the page says how far.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from pushlane.console.pages import Ask, Page, redirect
from pushlane.console.shown import Reader
from pushlane.core.errors import BadInput
from pushlane.core.task import Level
from pushlane.door.drafts import Draft, Drafts
from pushlane.door.uploads import size_text
from pushlane.operations.doing import refuse_role
from pushlane.operations.drafts import LISTED, NAMES, NO_COLUMNS, Typed
from pushlane.operations.previewing import NEW
from pushlane.operations.receiving import CreateTask
from pushlane.operations.session import Caller
from pushlane.operations.sinks import ListSinks

MOST_TYPED = 48 * 1024
"""So many bytes of rows can be typed: as many as are kept while their writer logs in again."""

_SINKS_SHOWN = 20
_DATE_TIME = re.compile(r"[0-9-]{10}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")
"""The format of an input of a date and a time; ours are in UTC."""

Fields = ImmutableMultiDict[str, str]
Acting = Callable[[Request, Reader, Fields], Awaitable[Response]]


class Field(NamedTuple):
    """A field of the form: the name of an option, what it is called, and what it takes.

    `kind` is `text`, `area`, `column` (or no column), `columns`, `switch`, `time` (in UTC), or the
    words that there are.
    """

    name: str
    label: str
    help: str = ""
    kind: str | tuple[str, ...] = "text"
    placeholder: str = ""


MAIN = (
    Field("level", "Level", kind=tuple(Level)),
    Field("recipient", "Recipient", "The column of recipients.", "column"),
    Field("title", "Title", "{city} puts the value of that column.", placeholder="Hi {city}"),
    Field("body", "Body", kind="area", placeholder="Order {id} is on its way"),
    Field("sink", "Sinks", "The first, and where it goes if it cannot be delivered there."),
    Field("name", "Name", "For people to know it by; that of the file unless given."),
    Field("app", "App", "The app that sends.", placeholder="default"),
)

START = (
    Field("not_before", "Start (UTC)", "At once unless given.", "time"),
    Field("expires", "Expires", "Nothing is sent after this.", placeholder="2h"),
    Field("paused", "Paused", "Nothing is sent until it is resumed.", "switch"),
    Field(
        "rate",
        "Rate",
        "Pushes in this time; a push costs 1 unless its sink says otherwise.",
        placeholder="100/s",
    ),
    Field("in_flight", "In flight", "So many deliveries at once."),
    Field("quota", "Quota", "Pushes a turn.", placeholder="1"),
)

MORE = (
    Field(
        "bad_rows", "Bad rows", "At a row that cannot be used: stop, or skip it.", ("stop", "skip")
    ),
    Field("key", "Key", "The same key makes one task, not two; a submit that was cut goes on."),
    Field("payload", "Payload", "JSON by sink, sent as it is; {field} names a column.", "area"),
    Field("data", "Data", "Columns to send along.", "columns"),
    Field("address", "Address", "COLUMN, or SINK=COLUMN: where a push goes.", placeholder="token"),
    Field("attribute", "Attributes", "Columns for reports, not sent along.", "columns"),
    Field("ordered_by", "Ordered by", "Same value here: one after another.", "column"),
    Field("dedupe", "Dedupe", "Send only the first of a recipient's pushes.", ("recipient",)),
    Field("collapse", "Collapse", "Template: of those with the same key the newest that waits."),
    Field("quiet", "Quiet hours", "By the recipient's clock.", placeholder="22:00-08:00"),
    Field("zone", "Zone", "Of recipients without one.", placeholder="Europe/Berlin"),
    Field("zone_column", "Column of zones", "", "column"),
    Field("not_before_column", "Column of starts", "", "column"),
    Field("expires_column", "Column of expiries", "", "column"),
    Field("trace_id", "Column of trace ids", "", "column"),
    Field("delay", "Delay", "Start after this duration.", placeholder="10m"),
    Field("delivery", "Delivery", "", ("at_least_once", "at_most_once", "once")),
    Field("on_unknown", "When unknown", "Of `once`.", ("resend", "bury")),
    Field("max_attempts", "Attempts", "Deliveries tried before a push is dead."),
    Field("retention", "Retention", "How long its lane is kept after its end.", placeholder="2h"),
    Field("stop_if_dead", "Stop if dead", "Pause it when more die.", placeholder="5%"),
    Field("silent", "Silent", "Allow pushes with nothing in them.", "switch"),
    Field("literal_braces", "Literal braces", "{{name}} is the text {name}.", "switch"),
)

WRITTEN = (
    Field("format", "Format", "By the name of the file unless given.", ("csv", "jsonl", "parquet")),
    Field("delimiter", "Delimiter", "Of CSV.", placeholder=","),
    Field("encoding", "Encoding", "", placeholder="utf-8"),
)

TEST = Field("test_to", "Test addresses", "The first rows, to these alone.", placeholder="me, you")


LABELS = {one.name: one.label for one in (*MAIN, *START, *MORE, *WRITTEN, TEST)}
"""Maps the names of the form's fields to the labels that people see."""

_LABELS = {name.replace("_", "-"): f"“{label}”" for name, label in LABELS.items()}
_OPTION = re.compile("`[^`]*`|--([a-z][a-z-]*)")


class Submits:
    """The forms of these pages."""

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts

    def forms(self) -> dict[str, Acting]:
        """Return by path, with the parts of it in braces, what is done with a form."""
        return {
            "submit/rows": self._write,
            "submit/{draft}/check": self._check,
            "submit/{draft}/test": self._test,
            "submit/{draft}/stop": self._stop,
            "submit/{draft}/send": self._send,
            "submit/{draft}/discard": self._discard,
        }

    async def receive(
        self, request: Request, reader: Reader, is_ours: Callable[[str], bool]
    ) -> str:
        """Keep the file of a form; return where its page is. Raises as `Drafts.receive` does."""
        _refuse(reader.caller)
        made = await self._drafts.receive(request, reader.caller, reader.login.id, is_ours)
        return f"./submit/{made.id}"

    async def _write(self, request: Request, reader: Reader, fields: Fields) -> Response:
        _refuse(reader.caller)
        kind = fields.get("format", "")
        if kind not in ("csv", "jsonl"):
            raise BadInput("rows are typed as csv or as jsonl")
        made = await self._drafts.write(
            fields.get("rows", ""), kind, reader.caller, reader.login.id
        )
        return redirect(f"./{made.id}")

    async def _check(self, request: Request, reader: Reader, fields: Fields) -> Response:
        draft = self._of(request, reader)
        self._drafts.check(draft, typed_of(fields), reader.login.authorization)
        return redirect(f"../{draft.id}#live")

    async def _test(self, request: Request, reader: Reader, fields: Fields) -> Response:
        draft = self._of(request, reader)
        self._drafts.test(draft, typed_of(fields), reader.login.authorization)
        return redirect(f"../{draft.id}#live")

    async def _stop(self, request: Request, reader: Reader, fields: Fields) -> Response:
        draft = self._of(request, reader)
        self._drafts.stop(draft)
        return redirect(f"../{draft.id}#live")

    async def _send(self, request: Request, reader: Reader, fields: Fields) -> Response:
        draft = self._of(request, reader)
        self._drafts.submit(draft, fields.get("check", ""), reader.login.authorization)
        return redirect(f"../{draft.id}#live")

    async def _discard(self, request: Request, reader: Reader, fields: Fields) -> Response:
        self._drafts.discard(self._of(request, reader))
        return redirect("../../submit")

    def _of(self, request: Request, reader: Reader) -> Draft:
        """Return the draft of a form, which from now on goes with this session."""
        _refuse(reader.caller)
        draft = self._drafts.of(request.path_params["draft"], reader.caller)
        draft.session = reader.login.id
        return draft


def _refuse(caller: Caller) -> None:
    refuse_role(caller, CreateTask.role, "submitting")


def typed_of(fields: Fields) -> Typed:
    """Return what was typed, by the name of an option; what was left empty is not there."""
    found: dict[str, list[str]] = {}
    for name in NAMES:
        given = [one for one in fields.getlist(name) if one.strip()]
        if name in LISTED:
            given = [part.strip() for one in given for part in one.split(",") if part.strip()]
        if name == "not_before":
            given = [f"{one}Z" if _DATE_TIME.fullmatch(one) else one for one in given]
        if given:
            found[name] = given
    return found


async def _choosing(ask: Ask) -> Mapping[str, Any]:
    _refuse(ask.caller)
    return {
        "drafts": ask.drafts.of_owner(ask.caller),
        "most": ask.drafts.most_bytes,
        "most_typed": MOST_TYPED,
        "size_text": size_text,
    }


async def _draft(ask: Ask) -> Mapping[str, Any]:
    _refuse(ask.caller)
    draft = ask.drafts.of(ask.parts["draft"], ask.caller)
    shown = {
        "title": f"Submit {draft.rows.called}",
        "draft": draft,
        "size_text": size_text,
        "json_text": json_text,
        "labelled": labelled,
        "new": NEW,
    }
    return shown if ask.is_again else {**shown, **await _form_of(draft), "sinks": await _sinks(ask)}


async def _sinks(ask: Ask) -> Sequence[str]:
    """Return the first sinks that there are, as far as the caller may see them."""
    if not ask.may(ListSinks):
        return ()
    return [one.sink for one in await ask.quietly(ListSinks())][:_SINKS_SHOWN]


def json_text(value: Any) -> str:
    """Return a value as JSON, for people."""
    return msgspec.json.encode(value).decode()


def labelled(text: str) -> str:
    """Return a text about options of the command line with the labels of their fields instead.

    Whole commands, which are in backquotes, stay.
    """
    return _OPTION.sub(lambda found: _LABELS.get(found[1], found[0]), text)


async def _form_of(draft: Draft) -> Mapping[str, Any]:
    """Return what the form of a draft is made of: the columns of its file, and what was typed."""
    columns, wrong = (NO_COLUMNS, "") if draft.done else await draft.read()
    return {
        "columns": columns,
        "wrong": wrong,
        "typed": draft.typed,
        "parts": (("Push", MAIN), ("Start and pace", START)),
        "more": (("More options", MORE), ("How the file is written", WRITTEN)),
        "test": TEST,
    }


SUBMIT = Page("/submit", "Submit", "submit.html", CreateTask, _choosing, is_live=False)
DRAFT = Page("/submit/{draft}", "Submit", "draft.html", CreateTask, _draft, is_own=True)
