"""Makes requests of the OpenAPI document: what its schemas allow, and what they do not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
Words = Mapping[str, Sequence[Any]]
"""What fields of a name may be, as what there is of it in the store; `NAME:object` for objects."""

_FEW = 3
_LONG = 12
_TEXT = st.text(max_size=_LONG)
_LARGE = 2**70
_JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-_LARGE, _LARGE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
    | st.just("x" * 5_000),
    lambda inner: st.lists(inner, max_size=_FEW) | st.dictionaries(_TEXT, inner, max_size=_FEW),
    max_leaves=4,
)
_BROKEN = st.sampled_from((b"[1]", b"{", b'"text"', b"\xff\xfe", b"null", b"{}", b"x" * 100))


@dataclass(frozen=True)
class Asked:
    """One request. `is_at` tells whether it surely is one of its operation: its path is usual."""

    path: str
    query: dict[str, Any]
    headers: dict[str, str]
    body: bytes
    is_at: bool


class Shapes:
    """The requests of a document, with words that are known beside those that are made up."""

    def __init__(self, document: Schema, words: Words) -> None:
        self._schemas = document["components"]["schemas"]
        self._words = words

    def requests(self, path: str, described: Schema) -> st.SearchStrategy[Asked]:
        """Requests of one operation: half of them as they should be."""

        @st.composite
        def made(draw: st.DrawFn) -> Asked:
            spoils = draw(st.booleans())
            places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
            for one in described["parameters"]:
                if one["required"] or draw(st.booleans()):
                    value = draw(self._value(one["name"], one["schema"], spoils))
                    places[one["in"]][one["name"]] = value
            at = path
            for name, value in places["path"].items():
                at = at.replace(f"{{{name}}}", _as_text(value))
            is_at = all(value and "/" not in _as_text(value) for value in places["path"].values())
            query = {name: _in_query(value) for name, value in places["query"].items()}
            headers = {name: _in_header(value) for name, value in places["header"].items()}
            body = draw(self._body(described, spoils))
            if headers.get("Content-Encoding") == "gzip" and not spoils:
                body = gzip.compress(body)
            return Asked(at, query, headers, body, is_at)

        return made()

    def _body(self, described: Schema, spoils: bool) -> st.SearchStrategy[bytes]:
        content = described.get("requestBody", {}).get("content", {})
        if not content:
            return st.just(b"")
        [(kind, one)] = content.items()
        schema = one["schema"].get("contentSchema", one["schema"])
        good = self._of(schema).map(_json)
        if spoils:
            good = self._spoilt(schema).map(_json) | _BROKEN
        if kind == "application/x-ndjson":
            return st.lists(good, max_size=_FEW).map(b"\n".join)
        return good

    def _value(self, name: str, schema: Schema, spoils: bool) -> st.SearchStrategy[Any]:
        usual = self._named(name, schema)
        return usual | _JUNK if spoils else usual

    def _named(self, name: str, schema: Schema) -> st.SearchStrategy[Any]:
        """Values of a field: where it is text, those that are known by its name, mostly."""
        if self._resolved(schema).get("type") == "object":
            name = f"{name}:object"
        if name not in self._words:
            return self._of(schema)
        known = st.sampled_from(self._words[name])
        of_lists = "array" in (
            schema.get("type"),
            *(o.get("type") for o in schema.get("anyOf", ())),
        )
        return st.one_of(st.lists(known, max_size=_FEW) if of_lists else known, self._of(schema))

    def _spoilt(self, schema: Schema) -> st.SearchStrategy[Any]:
        """Objects of which one field is wrong, missing or unknown."""

        @st.composite
        def made(draw: st.DrawFn) -> Any:
            found = dict(draw(self._of(schema)))
            name = draw(st.sampled_from([*self._resolved(schema)["properties"], "unknown"]))
            if draw(st.booleans()):
                found.pop(name, None)
            else:
                found[name] = draw(_JUNK)
            return found

        return made()

    def _resolved(self, schema: Schema) -> Schema:
        named: str = schema.get("$ref", "")
        return self._schemas[named.rpartition("/")[2]] if named else schema

    def _of(self, schema: Schema) -> st.SearchStrategy[Any]:
        """Values that a schema allows. Raises KeyError for a keyword that this does not know."""
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return st.one_of([self._of(one) for one in schema["anyOf"]])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        return {
            "null": lambda one: st.none(),
            "boolean": lambda one: st.booleans(),
            "integer": lambda one: st.integers(
                one.get("minimum", -_LARGE), one.get("maximum", _LARGE)
            ),
            "number": _number,
            "string": _string,
            "array": self._list,
            "object": self._object,
        }[schema["type"]](schema)

    def _list(self, schema: Schema) -> st.SearchStrategy[Any]:
        return st.lists(self._of(schema["items"]), max_size=_FEW)

    def _object(self, schema: Schema) -> st.SearchStrategy[Any]:
        fields = schema.get("properties")
        if fields is None:
            more = schema.get("additionalProperties")
            inner = self._of(more) if isinstance(more, dict) and more else _JUNK
            return st.dictionaries(_TEXT, inner, max_size=_FEW)
        each = {name: self._named(name, one) for name, one in fields.items()}
        needed = {*schema.get("required", ())}
        return st.fixed_dictionaries(
            {name: one for name, one in each.items() if name in needed},
            optional={name: one for name, one in each.items() if name not in needed},
        )


def _number(schema: Schema) -> st.SearchStrategy[float]:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum")
    return st.floats(
        least, most, exclude_min="exclusiveMinimum" in schema, allow_nan=False, allow_infinity=False
    )


def _string(schema: Schema) -> st.SearchStrategy[str]:
    return st.text(
        min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 12), 12)
    )


def _json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _in_query(value: Any) -> Any:
    return [_as_text(one) for one in value] if isinstance(value, list) else _as_text(value)


def _in_header(value: Any) -> str:
    """What a client can send: no line ends, and nothing beyond Latin-1."""
    return "".join(one for one in _as_text(value) if one.isprintable() and ord(one) < 256)
