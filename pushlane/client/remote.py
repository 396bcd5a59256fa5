"""Asks a server of `pushlane serve` to do operations: the same ones, with the same errors.

What an operation is over HTTP, it says itself: its method, its path, its fields. Nothing is asked
twice: of a change whose answer is lost nobody knows whether it was made.
"""

from __future__ import annotations

import math
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec

from pushlane.client.absent import completed
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.operations.operation import Operation, result_of
from pushlane.operations.problems import (
    UNKNOWN_PATH,
    UNREAD_HEADER,
    VERSION_HEADER,
    Problem,
    error_of,
    problem,
)
from pushlane.settings import Settings
from pushlane.util.errors import Unauthorized
from pushlane.util.files import WatchedFile
from pushlane.version import VERSION

if TYPE_CHECKING:
    from pyreqwest.client import Client

Result = TypeVar("Result")

_PREFIX = "/v1"
_UNKNOWN_PATH = problem(0, UNKNOWN_PATH, "").type
_NEXT = re.compile(r'<([^>]*)>; rel="next"')
_CONNECT_S = 10.0
_LOOK_S = 60.0
_CHANGE_S = 600.0
_LONGEST_TEXT = 200


class Refused(Exception):
    """A server has refused a request, and says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.title)
        self.problem = problem


class Body(NamedTuple):
    """The body of a request, its media type, and how it is packed."""

    content: bytes = b""
    kind: str = "application/json"
    encoding: str = ""


class _Answer(NamedTuple):
    """The body of an answer, and its link to the next page, if it has one."""

    content: bytes
    link: str


class Remote:
    """A server, by the settings `url`, `token_file` and `url_ca_file`, while it is entered."""

    def __init__(self, settings: Settings) -> None:
        self.url = settings.url.rstrip("/")
        self._settings = settings
        self._token = None
        if settings.token_file is not None:
            self._token = WatchedFile("token_file", settings.token_file)
        self._exits = AsyncExitStack()
        self.unread = 0
        """Counts the tasks that the lists left out, because the server cannot read them."""

    async def __aenter__(self) -> Self:
        self._client = await self._exits.enter_async_context(_client(self._settings))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._exits.__aexit__(*error)

    async def do(self, operation: Operation[Result], traceparent: str = "") -> Result:
        """Do an operation there. Raises what that raises, and Unreachable without an answer.

        Of a list it asks for as many pages as have what is wanted. `traceparent` is the caller's
        place in a trace, empty for none.
        """
        shown, cursor = await self.page(operation, traceparent)
        if not operation.has_pages():
            return shown
        limit: int = operation.limit  # type: ignore[attr-defined]
        while cursor and (not limit or operation.size(shown) < limit):
            left = limit - operation.size(shown) if limit else 0
            rest = msgspec.structs.replace(operation, limit=left, cursor=cursor)
            following, cursor = await self.page(rest)
            shown = operation.joined(shown, following)
        return shown

    async def page(self, operation: Operation[Result], traceparent: str = "") -> tuple[Result, str]:
        """Return a page that is shown there, and the cursor of the next; empty at the end."""
        kind = type(operation)
        fields: dict[str, Any] = msgspec.to_builtins(operation)
        _refuse_unsendable(fields)
        place = {name: _in_path(name, fields.pop(name)) for name in kind.in_path()}
        path, body = kind.path.format_map(place), Body()
        if kind.method == "GET":
            path += _query(kind, fields)
        elif fields:
            body = Body(msgspec.json.encode(fields))
        wait_s = _CHANGE_S if kind.changes else _LOOK_S
        try:
            answer = await self._answer(kind.method, path, body, wait_s, traceparent)
        except Refused as refused:
            raise error_of(refused.problem) from None
        return self.read(answer.content, result_of(kind)), _cursor(answer.link)

    async def request(self, method: str, path: str, body: Body, wait_s: float) -> bytes:
        """Return the body of an answer. Raises Refused, and Unreachable when there is none."""
        return (await self._answer(method, path, body, wait_s)).content

    async def _answer(
        self, method: str, path: str, body: Body, wait_s: float, traceparent: str = ""
    ) -> _Answer:
        from pyreqwest.exceptions import PyreqwestError

        asked = self._client.request(method, f"{self.url}{_PREFIX}{path}")
        if self._token is not None:
            asked = asked.bearer_auth(self._token.text())
        if method != "GET":
            asked = asked.header("if-match", "*")  # as on a backend: the last word counts
        if traceparent:
            asked = asked.header("traceparent", traceparent)
        if body.content:
            asked = asked.header("content-type", body.kind).body_bytes(body.content)
        if body.encoding:
            asked = asked.header("content-encoding", body.encoding)
        try:
            response = await asked.timeout(timedelta(seconds=wait_s)).build().send()
            content = bytes(await response.bytes())
        except PyreqwestError as error:
            raise Unreachable(
                f"the server {self.url} does not answer ({_cause(error)}): check the setting url, "
                "and that `pushlane serve` runs there"
            ) from None
        version = response.get_header(VERSION_HEADER)
        if version is None:
            raise Unreachable(
                f"{self.url} answers with HTTP {response.status}, and is not a pushlane server: "
                "check the setting url"
            )
        if response.status >= 400:
            raise self._refused(response.status, content, version)
        self.unread += int(response.get_header(UNREAD_HEADER) or 0)
        return _Answer(content, response.get_header("link") or "")

    def read(self, content: bytes, kind: Any) -> Any:
        """Return the view in an answer. Raises PushlaneError for one of another version."""
        try:
            found = msgspec.json.decode(content)
            return msgspec.convert(completed(found, kind), kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PushlaneError(
                f"the answer of {self.url} cannot be read ({str(error)[:_LONGEST_TEXT]}): this is "
                f"pushlane {VERSION}; use the version that the server has"
            ) from None

    def _refused(self, status: int, content: bytes, version: str) -> Exception:
        try:
            told = msgspec.json.decode(content, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = Problem("", f"the server answered with HTTP {status}", status)
        if told.type == _UNKNOWN_PATH or status == HTTPStatus.METHOD_NOT_ALLOWED:
            what = f"the server {self.url}, of version {version}, does not know this operation"
            if version == VERSION:
                return PushlaneError(
                    f"{what}: check the setting url (PUSHLANE_URL); it is where `pushlane serve` "
                    "answers, without the path of a page"
                )
            return PushlaneError(f"{what}: upgrade it, as this is pushlane {VERSION}")
        if status == 401:
            return Unauthorized(f"{self.url}: {self._told_of_token(told.detail)}")
        return Refused(told)

    def _told_of_token(self, detail: str) -> str:
        if self._token is not None:
            return f"{detail} (token_file {self._token.path})"
        return (
            "it asks for a token: set token_file (PUSHLANE_TOKEN_FILE) to a file that has it; an "
            "admin makes one with `pushlane access create`"
        )


def _cursor(link: str) -> str:
    """Return the cursor in a link to the next page; empty where there is none."""
    match = _NEXT.fullmatch(link)
    found = parse_qs(urlsplit(match[1]).query).get("cursor", [""]) if match else [""]
    return found[0]


def _client(settings: Settings) -> Client:
    from pyreqwest.client import ClientBuilder  # which a client of a backend needs not
    from pyreqwest.exceptions import PyreqwestError

    building = ClientBuilder().user_agent(f"pushlane/{VERSION}").follow_redirects(False)
    building = building.connect_timeout(timedelta(seconds=_CONNECT_S)).error_for_status(False)
    if settings.url_ca_file is None:
        return building.build()
    try:
        return building.add_root_certificate_pem(settings.url_ca_file.read_bytes()).build()
    except (OSError, PyreqwestError) as error:
        raise BadInput(
            f"url_ca_file {settings.url_ca_file} cannot be used ({type(error).__name__}): give "
            "certificates as PEM"
        ) from None


def _refuse_unsendable(fields: dict[str, Any]) -> None:
    """Raise BadInput for what JSON cannot hold: a number that is none, a text that is not UTF-8."""
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{name} {value} is not a number")
    try:
        msgspec.json.encode(fields)
    except (TypeError, ValueError) as error:
        raise BadInput("a text is not UTF-8, so it cannot be sent") from error


def _in_path(name: str, value: Any) -> str:
    if value in ("", ".", ".."):
        raise BadInput(f"{name} is {value!r}; give its name" if value else f"{name} is empty")
    return quote(str(value), safe="/")


def _query(kind: type[Operation[Any]], fields: dict[str, Any]) -> str:
    """Return the query of what is given, without what is left at its default."""
    defaults = {one.name: one.default for one in msgspec.structs.fields(kind)}
    given = {
        name: _in_query(value)
        for name, value in fields.items()
        if value is not None and value != msgspec.to_builtins(_plain_default(defaults[name]))
    }
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _plain_default(default: Any) -> Any:
    return None if default is msgspec.NODEFAULT else default


def _in_query(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _cause(error: Exception) -> str:
    """Return what went wrong, without the URL, which stands beside it."""
    details = getattr(error, "details", None) or {}
    causes = details.get("causes") or []
    text = str(causes[-1]["message"]) if causes else type(error).__name__
    return text[:_LONGEST_TEXT]
