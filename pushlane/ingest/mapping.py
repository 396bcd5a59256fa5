"""Makes pushes of records, as a mapping file says (docs/ingest.md)."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.task import Level
from pushlane.ingest.record import BadRecord, Record
from pushlane.producers.producer import Content
from pushlane.producers.template import Template, text_of
from pushlane.util.texts import did_you_mean

Get = Callable[[Any], Any]


class Leveled(NamedTuple):
    """A push that has a level of its own."""

    level: Level
    content: Content


ToContent = Callable[[Record], Content | Leveled | None]

_TEXTS = ("recipient", "title", "body", "key", "collapse", "ordered_by", "zone", "trace_id")
_TIMES = ("expires_at", "not_before")
_MANY = ("data", "attributes", "address")
_PARTS = (*_TEXTS, "type", "level", *_TIMES, *_MANY, "payload", "when", "function")
_NONE: Any = object()


class Made(NamedTuple):
    """A mapping: what makes a push of a record, and what tells it from another mapping.

    `of` raises BadRecord for a record that cannot be a push, and returns None for one that is left
    out. `runs_code` when it is somebody's function, which may hang. `ordered` when pushes may be
    ordered by something, `leveled` when they may have a level of their own.
    """

    of: ToContent
    fingerprint: str
    runs_code: bool = False
    ordered: bool = False
    leveled: bool = False


def load_mapping(path: Path) -> Made:
    """Read a mapping file. Raises BadInput for what is no mapping, with the part that is wrong."""
    try:
        raw = path.read_bytes()
        given = tomllib.loads(raw.decode())
    except OSError as error:
        raise BadInput(f"mapping {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"mapping {path} is not TOML: {error}") from error
    fingerprint = hashlib.sha256(raw).hexdigest()[:16]
    try:
        return compiled(given, fingerprint)
    except BadInput as error:
        raise BadInput(f"mapping {path}: {error}") from error


def compiled(given: Mapping[str, Any], fingerprint: str) -> Made:
    """Compile a mapping. Raises BadInput."""
    for name in given:
        if name not in _PARTS:
            near = did_you_mean(name, _PARTS)
            raise BadInput(
                f"{name!r} is not a part of a mapping; the parts are {', '.join(_PARTS)}{near}"
            )
    when = _filter(given.get("when", {}))
    if "function" in given:
        others = [name for name in given if name not in ("function", "when")]
        if others:
            raise BadInput(f"function makes the whole push; leave {', '.join(others)} out")
        of = _by_function(given["function"], when if "when" in given else None)
        return Made(of, fingerprint, runs_code=True)
    if "recipient" not in given:
        raise BadInput('it needs recipient, such as recipient = "device"')
    if "ordered_by" in given and "collapse" in given:
        raise BadInput("ordered_by sends every push, collapse only the newest; leave one out")
    if "type" in given and "type" in _fields_of(given.get("data")):
        raise BadInput("type sets the field `type` of data, and data sets it, too; leave one out")
    if "ordered_by" in given and "level" in given:
        raise BadInput(
            "pushes of several levels cannot be kept in order; leave ordered_by or level out"
        )
    of = _by_fields(given, when)
    return Made(of, fingerprint, ordered="ordered_by" in given, leveled="level" in given)


def _by_fields(given: Mapping[str, Any], when: Callable[[Any], bool]) -> ToContent:
    texts = [(name, _getter(name, given[name])) for name in _TEXTS if name in given]
    times = [(f"{name}_ms", _getter(name, given[name])) for name in _TIMES if name in given]
    many = [(name, _mapping(name, given[name])) for name in _MANY if name in given]
    if "payload" in given:
        many.append(("payload", _payloads(given["payload"])))
    type_of = _getter("type", given["type"]) if "type" in given else None
    level_of = _levels(given["level"]) if "level" in given else None
    empty = Content("", "", "", None, 0)._asdict()
    decode = msgspec.json.decode

    def of(record: Record) -> Content | Leveled | None:
        found = _object(decode, record)
        if not when(found):
            return None
        parts = empty.copy()
        for name, get in texts:
            parts[name] = text_of(get(found))
        for name, get in times:
            parts[name] = get(found) or 0
        for name, get in many:
            parts[name] = get(found)
        for name in _OPTIONAL:
            parts[name] = parts[name] or None
        if type_of and (kind := text_of(type_of(found))):
            parts["data"] = {**(parts["data"] or {}), "type": kind}
        content = Content(**parts)
        if level_of and (level := text_of(level_of(found))):
            return Leveled(_level(level), content)
        return content

    return of


def _levels(given: Any) -> Get:
    get = _getter("level", given)
    for name in ("value", "default") if isinstance(given, dict) else ():
        fixed = text_of(given.get(name))
        if fixed and fixed not in list(Level):
            raise BadInput(f"{name} of level is {fixed!r}, and has to be one of {', '.join(Level)}")
    return get


def _level(given: str) -> Level:
    try:
        return Level(given)
    except ValueError:
        raise BadRecord(f"has a level that is not one of {', '.join(Level)}") from None


_OPTIONAL = ("key", "collapse", "ordered_by", "zone")


def _object(decode: Callable[[bytes], Any], record: Record) -> dict[str, Any]:
    assert record.value is not None
    try:
        found = decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord("is not JSON") from error
    if not isinstance(found, dict):
        raise BadRecord(f"is {_kind(found)}, not a JSON object")
    return found


def _kind(value: Any) -> str:
    kinds: dict[type, str] = {list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _getter(part: str, given: Any) -> Get:
    """Return what finds the value of a part in a record's object. Raises BadInput."""
    if isinstance(given, str):
        return _found(given, _NONE)
    if isinstance(given, dict):
        names = sorted(given)
        if names == ["text"] and isinstance(given["text"], str):
            return _rendered(given["text"])
        if names == ["value"]:
            constant = given["value"]
            return lambda _: constant
        if names in (["field"], ["default", "field"]) and isinstance(given["field"], str):
            return _found(given["field"], given.get("default", _NONE))
    raise BadInput(
        f'{part} is neither a field ("device"), a pointer ("/customer/device"), nor one of '
        '{ text = "Order {id}" }, { value = "x" }, { field = "name", default = "" }'
    )


def _found(name: str, default: Any) -> Get:
    """Return what finds a field by its name, or by a JSON pointer (RFC 6901)."""
    if not name.startswith("/"):

        def field(found: Any) -> Any:
            value = found.get(name, default)
            if value is _NONE:
                raise BadRecord(f"has no field {name!r}")
            return value

        return field
    steps = [step.replace("~1", "/").replace("~0", "~") for step in name[1:].split("/")]

    def pointed(found: Any) -> Any:
        for step in steps:
            found = _step(found, step)
            if found is _NONE:
                if default is _NONE:
                    raise BadRecord(f"has nothing at {name!r}")
                return default
        return found

    return pointed


def _step(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step, _NONE)
    if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
        return found[int(step)]
    return _NONE


def _rendered(text: str) -> Get:
    template = Template(text)
    getters = [_found(name, _NONE) for name in template.fields]
    render = template.compile(template.fields)
    return lambda found: render([get(found) for get in getters])


def _mapping(part: str, given: Any) -> Get:
    """Return what makes a mapping: of a table, of a list of fields, or of one object's place."""
    if isinstance(given, str):
        get = _found(given, _NONE)

        def whole(found: Any) -> Any:
            value = get(found)
            if not isinstance(value, dict | None):
                raise BadRecord(
                    f"has {_kind(value)} at {given!r}, where {part} has to be an object"
                )
            return value

        return whole if part != "address" else get
    given = _fields_of(given)
    if not given:
        raise BadInput(
            f'{part} is not a table such as {part} = {{ order = "id" }}, nor a list of fields'
        )
    getters = [(name, _getter(f"{part}.{name}", one)) for name, one in given.items()]
    as_text = text_of if part != "data" else lambda value: value
    return lambda found: {name: as_text(get(found)) for name, get in getters}


def _fields_of(given: Any) -> Mapping[str, Any]:
    """Return a table of fields, also of a list of them; nothing for what is neither."""
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return {name.rpartition("/")[2]: name for name in given}
    return given if isinstance(given, dict) else {}


def _payloads(given: Any) -> Get:
    """Return what makes payloads: each sink's is an object at a place."""
    if not isinstance(given, dict) or not given:
        raise BadInput('payload is not a table of sinks, such as payload = { fcm = "/fcm" }')
    getters = [(sink, _getter(f"payload.{sink}", one)) for sink, one in given.items()]
    return lambda found: {sink: get(found) for sink, get in getters}


def _filter(given: Any) -> Callable[[Any], bool]:
    """Return what tells whether a record is wanted: each field is one of the values given."""
    if not isinstance(given, dict):
        raise BadInput('when is not a table such as when = { status = "paid" }')
    if not given:
        return lambda _: True
    wanted = [
        (_found(name, None), value if isinstance(value, list) else [value])
        for name, value in given.items()
    ]
    return lambda found: all(get(found) in values for get, values in wanted)


def _by_function(given: Any, when: Callable[[Any], bool] | None) -> ToContent:
    function, decode = load_function(given), msgspec.json.decode

    def of(record: Record) -> Content | None:
        if when is not None and not when(_object(decode, record)):
            return None
        made = function(record)
        if made is None or isinstance(made, Content):
            return made
        if isinstance(made, Mapping):
            return _content_of(made)
        raise BadRecord(f"made the function return {type(made).__name__}, not a push or None")

    return of


def _content_of(made: Mapping[str, Any]) -> Content:
    try:
        return Content(**{"title": "", "body": "", "data": None, "expires_at_ms": 0, **made})
    except TypeError as error:
        raise BadRecord("made the function return fields that a push does not have") from error


def load_function(given: Any) -> Callable[[Record], Any]:
    """Return the function that `module:name` stands for. Raises BadInput."""
    from importlib import import_module

    module, colon, name = given.partition(":") if isinstance(given, str) else ("", "", "")
    if not (module and colon and name):
        raise BadInput('function is not "module:name", such as "shop.pushes:of_order"')
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"function {given} cannot be loaded: {error}") from error
    if not callable(function):
        raise BadInput(f"function {given} is not a function")
    return function  # type: ignore[no-any-return]
