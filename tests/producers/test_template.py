"""Templates for title and body: plain fields only, refused early and clearly."""

import pytest

from pushlane.core.errors import BadInput
from pushlane.producers.template import Template

COLUMNS = ("name", "first city", "share")


def render(text, *values):
    return Template(text).compile(COLUMNS)(values)


def test_fields_are_replaced_by_the_values_of_their_columns():
    assert render("Hi {name} of {first city}!", "Ann", "Oslo", "1") == "Hi Ann of Oslo!"


def test_a_single_field_renders_like_several():
    assert render("{name}", "Ann", "", "") == "Ann"


def test_a_template_without_fields_is_constant():
    assert render("Hello", "Ann", "", "") == "Hello"


def test_doubled_braces_and_percent_signs_are_literal():
    assert render("{{{share}%}} 100%s {name}", "Ann", "", "50") == "{50%} 100%s Ann"


def test_a_percent_sign_in_a_constant_survives():
    assert render("100% {{sure}}", "", "", "") == "100% {sure}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (7, "7"), (True, "true"), ({"a": "é"}, '{"a": "é"}'), (1.5, "1.5")],
)
def test_values_read_as_they_would_in_a_message(value, text):
    assert render("{name}", value, "", "") == text


def test_fields_are_named_once_in_order_of_mention():
    assert Template("{b} {a} {b}").fields == ("b", "a")


@pytest.mark.parametrize(
    "text", ["{name.upper}", "{name[0]}", "{name!r}", "{name:>10}", "{}", "{ }", "{name:{share}}"]
)
def test_anything_but_a_plain_field_is_refused(text):
    with pytest.raises(BadInput, match="not a plain field name"):
        Template(text)


@pytest.mark.parametrize("text", ["{name", "name}", "{"])
def test_unmatched_braces_are_refused_with_the_way_to_write_them(text):
    with pytest.raises(BadInput, match="cannot be read"):
        Template(text)
