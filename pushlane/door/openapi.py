"""The OpenAPI 3.1 document, made from the list of operations."""

from __future__ import annotations

from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec

from pushlane.door.events import MEDIA_TYPE as EVENTS
from pushlane.door.events import MOST_WAIT_S, WATCHES
from pushlane.door.single import TakenPush
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import ETag, Operation, result_of
from pushlane.operations.problems import MEDIA_TYPE, Problem
from pushlane.operations.receiving import Received
from pushlane.operations.tasks import GetTask
from pushlane.producers.producer import MAX_KEY
from pushlane.producers.received import PushLine
from pushlane.version import VERSION

_SCHEMAS = "#/components/schemas/{name}"
_SECURITY = "token"
_LINES = """Line n is the push of seq n; lines that are safe already are left out. The end of
a body does not close the task.

Needs the role submitter."""
_SINGLE = """A key that this process knows is answered with the push that has it; of the pushes of
an app with one key one is sent, whoever took them.

Needs the role submitter."""
_ETAG = {
    "description": "The tag of what operators have set; counts and progress do not alter it.",
    "schema": {"type": "string"},
}
_LINK = {
    "description": 'The next page, as `<...>; rel="next"` (RFC 8288); absent with the last one.',
    "schema": {"type": "string"},
}
_WATCHING = """First an event `snapshot` with what {shows} shows, then one for each
change: {events} with the view of what is new or another, `gone` with what names it, `problem` with
a problem document. `Last-Event-ID` goes on after an event that is still kept; otherwise there is
another snapshot. A comment comes every 15 s. There is one look a second.

Needs the role {role}."""
_EVENTS = {
    "/watch/tasks": "`task`",
    "/watch/tasks/{task}": "`task`",
    "/watch/shares": "`levels` or `limit`",
    "/watch/sinks": "`sink`",
}
_PREFER = (
    f"`wait=N`: answer once the task has ended, after N seconds at the latest ({MOST_WAIT_S})."
)
_ABOUT = """Submit push campaigns (tasks), steer them, and see their results.

Give a token in each request: `Authorization: Bearer pl_...`. Errors are problem documents (RFC
9457). A field without a value is absent. Times are Unix milliseconds. A list that takes a `cursor`
comes in pages of at most 1,000; the header `Link` has the next one.
"""


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    views = [result_of(kind) for kind in OPERATIONS]
    bodies, components = msgspec.json.schema_components(
        [*views, *OPERATIONS, Problem, PushLine, Received, TakenPush], ref_template=_SCHEMAS
    )
    paths: dict[str, dict[str, Any]] = {}
    for kind, shown in zip(OPERATIONS, bodies, strict=False):
        fields = components.pop(kind.__name__)
        described = _operation(kind, fields, _without_null(shown))
        paths.setdefault(kind.path, {})[kind.method.lower()] = described
    paths["/tasks/{task}/pushes"]["post"] = _sending_lines()
    paths["/streams/{name}/pushes/{key}"] = {"put": _sending_one()}
    prefer = _parameter("Prefer", "header", {"type": "string", "description": _PREFER})
    paths["/tasks/{task}"]["get"]["parameters"].append(prefer)
    paths |= {path: {"get": _watching(path)} for path in WATCHES}
    schemas = {name: _without_null(one) for name, one in components.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pushlane", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": "/v1"}],
        "security": [{_SECURITY: []}],
        "paths": _explicit(paths),
        "components": {
            "schemas": _explicit(schemas),
            "securitySchemes": {_SECURITY: {"type": "http", "scheme": "bearer"}},
        },
    }


def _sending_lines() -> dict[str, Any]:
    """Return what takes pushes as lines, which is no operation of one answer."""
    return {
        "operationId": "send_lines",
        "summary": "Put pushes on a task's lane, a line of JSON each.",
        "description": _LINES,
        "parameters": [
            _parameter("task", "path", {"type": "string"}, required=True),
            _parameter("from", "query", {"type": "integer", "minimum": 1, "default": 1}),
            _parameter("Content-Encoding", "header", {"type": "string", "enum": ["gzip"]}),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/x-ndjson": {"schema": _lines_of("PushLine")}},
        },
        "responses": _responses(_ref("Received")),
    }


def _lines_of(name: str) -> dict[str, Any]:
    """Return the schema of a body of lines: a client is to send text, or a stream of it."""
    told = f"Lines of JSON, each a {name}."
    media_type = {"contentMediaType": "application/x-ndjson", "contentSchema": _ref(name)}
    return {"type": "string", "description": told, **media_type}


def _sending_one() -> dict[str, Any]:
    """Return what takes a single push, which is answered once it is on its lane."""
    text = {"type": "string"}
    taken = _responses(_ref("TakenPush"))
    known = {**taken["200"], "description": "Its key was known: the push that has it."}
    return {
        "operationId": "send_push",
        "summary": "Put one push on a stream; answered once it is on its lane, durably.",
        "description": _SINGLE,
        "parameters": [
            _parameter("name", "path", text, required=True),
            _parameter("key", "path", {**text, "maxLength": MAX_KEY}, required=True),
            _parameter("app", "query", text),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _ref("PushLine")}},
        },
        "responses": {"201": taken["200"], **taken, "200": known},
    }


def _watching(path: str) -> dict[str, Any]:
    """Return what sends events for as long as they are read."""
    of_one, subject = path.endswith("}"), path.split("/")[2]
    operation = GetTask if of_one else WATCHES[path].operation
    shows = "get-levels and list-limits" if subject == "shares" else operation.word()
    what = "a task" if of_one else subject
    parameters = [_parameter("Last-Event-ID", "header", {"type": "string"})]
    if of_one:
        parameters.append(_parameter("task", "path", {"type": "string"}, required=True))
    elif path == "/watch/tasks":
        parameters.append(_parameter("app", "query", {"type": "string"}))
    told = _WATCHING.format(shows=shows, events=_EVENTS[path], role=operation.role)
    responses = _responses({"type": "string"})
    responses["200"] = {
        "description": "Events, without end.",
        "content": {EVENTS: {"schema": {"type": "string"}}},
    }
    return {
        "operationId": "watch_task" if of_one else f"watch_{subject}",
        "summary": f"Watch {what}.",
        "description": told,
        "parameters": parameters,
        "responses": responses,
    }


def _operation(
    kind: type[Operation[Any]], fields: dict[str, Any], shown: dict[str, Any]
) -> dict[str, Any]:
    summary, _, more = cleandoc(kind.__doc__ or "").partition("\n")
    in_path = kind.in_path()
    required = {*fields.get("required", ())}
    parameters = [
        _parameter(name, "path" if name in in_path else "query", one, name in required)
        for name, one in fields.get("properties", {}).items()
        if name in in_path or kind.method == "GET"
    ]
    described: dict[str, Any] = {
        "operationId": kind.word().replace("-", "_"),
        "summary": summary,
        "description": f"{more.strip()}\n\nNeeds the role {kind.role}.".strip(),
        "parameters": parameters + _match_parameters(kind),
        "responses": _responses(shown) | _match_responses(kind),
    }
    headers = {"ETag": _ETAG} if kind.etag is not ETag.NONE else {}
    if "cursor" in kind.__struct_fields__:
        headers["Link"] = _LINK
    if headers:
        described["responses"]["200"]["headers"] = headers
    rest = {n: one for n, one in fields.get("properties", {}).items() if n not in in_path}
    if kind.method != "GET" and rest:
        needed = [name for name in rest if name in required]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": rest,
            "additionalProperties": False,
        }
        described["requestBody"] = {
            "required": bool(needed),
            "content": {
                "application/json": {"schema": schema | ({"required": needed} if needed else {})}
            },
        }
    return described


def _match_parameters(kind: type[Operation[Any]]) -> list[dict[str, Any]]:
    if not kind.etag.is_taken:
        return []
    told = "The ETag of what you have seen, or * for whatever it is."
    schema = {"type": "string", "description": told}
    return [_parameter("If-Match", "header", schema, kind.etag is ETag.NEEDED)]


def _match_responses(kind: type[Operation[Any]]) -> dict[str, Any]:
    """Return how a change is refused of what is not as the caller has seen it."""
    content = {MEDIA_TYPE: {"schema": _ref("Problem")}}
    stale = {"description": "It has changed since you read it: `present` is how it is now."}
    missing = {"description": "If-Match is missing."}
    refused: dict[str, Any] = {}
    if kind.etag.is_taken:
        refused["412"] = {**stale, "headers": {"ETag": _ETAG}, "content": content}
    if kind.etag is ETag.NEEDED:
        refused["428"] = {**missing, "content": content}
    return refused


def _responses(shown: dict[str, Any]) -> dict[str, Any]:
    return {
        "200": {"description": "Done.", "content": {"application/json": {"schema": shown}}},
        "default": {
            "description": "Refused, or not possible now.",
            "content": {MEDIA_TYPE: {"schema": _ref("Problem")}},
        },
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _SCHEMAS.format(name=name)}


def _parameter(
    name: str, place: str, schema: dict[str, Any], required: bool = False
) -> dict[str, Any]:
    shown = {key: value for key, value in schema.items() if key != "description"}
    told = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": required, "schema": shown, **told}


def _without_null(schema: Any) -> Any:
    """Return a schema of what is absent where it has no value: nothing is null, in no answer."""
    if isinstance(schema, list):
        return [_without_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    some = schema.get("anyOf")
    if isinstance(some, list) and {"type": "null"} in some:
        rest = [one for one in some if one != {"type": "null"}]
        outer = {key: one for key, one in schema.items() if key not in ("anyOf", "default")}
        return _without_null({**outer, **(rest[0] if len(rest) == 1 else {"anyOf": rest})})
    kept = {key: _without_null(one) for key, one in schema.items()}
    if "properties" in kept and "required" in kept:
        maybe = {n for n, one in schema["properties"].items() if _may_be_null(one)}
        kept["required"] = [name for name in kept["required"] if name not in maybe]
    return kept


def _may_be_null(schema: Any) -> bool:
    return isinstance(schema, dict) and {"type": "null"} in schema.get("anyOf", ())


def _explicit(part: Any) -> Any:
    """Return a part of the document that says what generators of clients guess otherwise.

    Else an enum is of anything, an object has no fields, a time in ms is cut to 32 bits, and a rate
    is rounded to seven digits. Constants of an enum are named after it, as a word of one may be the
    name of another: Go has one space for both.
    """
    if isinstance(part, list):
        return [_explicit(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {name: _explicit(one) for name, one in part.items()}
    if isinstance(part.get("enum"), list):
        kept.setdefault("type", "string")
        if "title" in part:
            words = [word.title().replace("_", "") for word in part["enum"]]
            kept["x-enum-varnames"] = [f"{part['title']}{word}" for word in words]
    match kept.get("type"):
        case "integer":
            kept.setdefault("format", "int64")
        case "number":
            kept.setdefault("format", "double")
        case "object" if "properties" not in kept:
            kept.setdefault("additionalProperties", True)
    return kept
