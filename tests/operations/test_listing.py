"""What each operation of the list has to say of itself."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from pushlane import BadInput
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import Of, Operation, Role, _readers

METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}

each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)


@each
def test_it_says_what_it_is_and_who_may(operation: type[Operation[Any]]) -> None:
    own = vars(operation)

    assert own["__doc__"]
    assert own["method"] in METHODS
    assert own["role"] in Role
    assert own["of"] in Of
    assert "run" in own
    assert operation.changes or not operation.destroys
    assert operation.method != "GET" or not operation.changes


@each
def test_its_path_has_fields_that_are_texts(operation: type[Operation[Any]]) -> None:
    fields = {one.name: one for one in msgspec.structs.fields(operation)}

    for name in re.findall(r"{(\w+)}", operation.path):
        assert fields[name].required
        assert isinstance(fields[name].type, type(str)) or "str" in str(fields[name].type)
    assert _readers(operation).keys() == fields.keys()


@each
def test_its_schema_can_be_told(operation: type[Operation[Any]]) -> None:
    _, components = msgspec.json.schema_components([operation])

    assert components[operation.__name__]["additionalProperties"] is False


def test_no_two_have_the_same_name_or_the_same_place() -> None:
    words = [one.word() for one in OPERATIONS]
    places = [(one.method, re.sub(r"{\w+}", "{}", one.path)) for one in OPERATIONS]

    assert len(set(words)) == len(set(places)) == len(OPERATIONS)


class Example(Operation[None], frozen=True, kw_only=True):
    """An operation of a test."""

    task: str
    most: int | None = None
    names: tuple[str, ...] = ()
    level: Role = Role.VIEWER


def test_what_has_one_meaning_is_taken() -> None:
    made = Example.made(task="t", most="3", names="one", level="ADMIN")

    assert made == Example(task="t", most=3, names=("one",), level=Role.ADMIN)
    assert Example.made(task="t", most=msgspec.UNSET) == Example(task="t")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"task": 3}, "task is of type int; give a text"),
        ({"most": 2.5}, "most 2.5 is not a whole number; use one from 0 on"),
        ({"level": "boss"}, "unknown level 'boss'; use viewer, submitter, operator, admin"),
        ({"names": 3}, "names is of type int; give texts, like ('a', 'b')"),
    ],
)
def test_what_has_none_is_refused_by_the_name_of_its_field(given: Any, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        Example.made(**{"task": "t", **given})

    assert str(caught.value) == told
