"""Records become pushes as a mapping says, and what is no mapping is refused with its part."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane.core.errors import BadInput
from pushlane.ingest.functions import Hung, InThread, mapped
from pushlane.ingest.mapping import compiled, load_mapping
from pushlane.ingest.record import BadRecord, Record

ORDER = {
    "id": 7,
    "device": "abc",
    "status": "paid",
    "cart": {"total": 12.5, "lines": [{"name": "tea"}]},
    "a/b": "slash",
}


def record(value: Any = ORDER, offset: int = 3) -> Record:
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return Record("0", offset, body)


def content(mapping: dict[str, Any], value: Any = ORDER) -> Any:
    return compiled({"recipient": "device", **mapping}, "one").of(record(value))


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("status", "paid"),
        ("/cart/lines/0/name", "tea"),
        ("/a~1b", "slash"),
        ({"text": "Order {id} is {status}"}, "Order 7 is paid"),
        ({"value": "Thanks"}, "Thanks"),
        ({"field": "gone", "default": "none"}, "none"),
        ({"field": "/cart/gone", "default": ""}, ""),
    ],
)
def test_a_text_is_a_field_a_pointer_a_text_with_fields_or_a_constant(
    given: Any, title: str
) -> None:
    assert content({"title": given}).title == title


def test_data_is_a_table_a_list_of_fields_or_one_object() -> None:
    assert content({"data": {"order": "id", "sum": "/cart/total"}}).data == {
        "order": 7,
        "sum": 12.5,
    }
    assert content({"data": ["id", "/cart/total"]}).data == {"id": 7, "total": 12.5}
    assert content({"data": "cart"}).data == ORDER["cart"]


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({"type": "status"}, {"type": "paid"}),
        ({"type": {"text": "order.{status}"}, "data": ["id"]}, {"type": "order.paid", "id": 7}),
        (
            {"type": {"value": "order"}, "data": "cart"},
            {"total": 12.5, "lines": [{"name": "tea"}], "type": "order"},
        ),
        ({"type": {"field": "gone", "default": ""}}, None),
    ],
)
def test_the_type_of_a_push_is_a_field_of_its_data(given: Any, data: Any) -> None:
    assert content(given).data == data


def test_a_level_is_one_of_three_or_empty_for_that_of_the_stream() -> None:
    mapping = {"level": {"field": "how", "default": ""}}
    by_level = compiled({"recipient": "device", **mapping}, "one")

    assert by_level.leveled
    assert content(mapping, {**ORDER, "how": "low"}).level == "low"
    assert content(mapping).recipient == "abc"
    with pytest.raises(BadRecord, match=r"^has a level that is not one of high, medium, low$"):
        content(mapping, {**ORDER, "how": "urgent"})


def test_what_pushes_are_ordered_by_is_a_text_or_nothing() -> None:
    assert content({"ordered_by": "id"}).ordered_by == "7"
    assert content({"ordered_by": {"field": "gone", "default": ""}}).ordered_by is None
    assert compiled({"recipient": "device", "ordered_by": "id"}, "one").ordered
    assert not compiled({"recipient": "device"}, "one").ordered


def test_what_is_not_wanted_is_left_out() -> None:
    wanted = {"when": {"status": ["paid", "sent"], "/cart/total": 12.5}}

    assert content(wanted) is not None
    assert content({"when": {"status": "open"}}) is None
    assert content({"when": {"gone": "x"}}) is None
    assert mapped(compiled({"recipient": "device"}, "one").of, Record("0", 3, None)) is None


@pytest.mark.parametrize(
    ("mapping", "value", "why"),
    [
        ({}, b"{", "is not JSON"),
        ({}, b"\xff", "is not JSON"),
        ({}, [1], "is a list, not a JSON object"),
        ({}, b"null", "is null, not a JSON object"),
        ({}, {"id": 1}, "has no field 'device'"),
        ({"title": "/cart/gone"}, ORDER, "has nothing at '/cart/gone'"),
        ({"title": "/cart/lines/9/name"}, ORDER, "has nothing at '/cart/lines/9/name'"),
        ({"data": "status"}, ORDER, "has a text at 'status', where data has to be an object"),
    ],
)
def test_a_record_that_is_no_push_says_why_and_never_what_it_holds(
    mapping: dict[str, Any], value: Any, why: str
) -> None:
    with pytest.raises(BadRecord) as error:
        content(mapping, value)
    assert str(error.value) == why


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        ({"titel": "status"}, "'titel' is not a part of a mapping.*did you mean.*title"),
        ({"title": 5}, "title is neither a field"),
        ({"title": {"txt": "x"}}, "title is neither a field"),
        ({"data": []}, "data is not a table"),
        ({"when": "paid"}, "when is not a table"),
        ({"payload": "fcm"}, "payload is not a table of sinks"),
        ({"function": "shop:of"}, "function makes the whole push; leave recipient out"),
        ({"ordered_by": "id", "collapse": "id"}, "ordered_by sends every push"),
        ({"type": "status", "data": {"type": "id"}}, "type sets the field `type` of data"),
        ({"type": "status", "data": ["id", "/cart/type"]}, "type sets the field `type` of data"),
        ({"type": ["status"]}, "type is neither a field"),
        ({"level": "how", "ordered_by": "id"}, "pushes of several levels cannot be kept in order"),
        ({"level": {"value": "urgent"}}, "value of level is 'urgent', and has to be one of high"),
        ({"level": {"field": "how", "default": "no"}}, "default of level is 'no', and has to be"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_part(mapping: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=f"(?i){why}"):
        compiled({"recipient": "device", **mapping}, "one")


def test_a_mapping_without_a_recipient_is_refused() -> None:
    with pytest.raises(BadInput, match="it needs recipient"):
        compiled({"title": "status"}, "one")


def test_a_file_is_read_and_named_when_it_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text('recipient = "device"')
    first = load_mapping(file).fingerprint
    file.write_text('recipient = "id"')
    assert load_mapping(file).fingerprint != first
    file.write_text("recipient = ")
    with pytest.raises(BadInput, match=r"m.toml is not TOML"):
        load_mapping(file)
    with pytest.raises(BadInput, match=r"gone.toml cannot be read: No such file"):
        load_mapping(tmp_path / "gone.toml")


def by_hand(found: Record) -> Any:
    order = msgspec.json.decode(found.value or b"")
    match order["status"]:
        case "paid":
            return {"recipient": order["device"], "title": f"{found.partition}/{found.offset}"}
        case "open":
            return None
        case "odd":
            return 5
        case "more":
            return {"recipient": "x", "colour": "red"}
    raise ValueError(order["device"])


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("odd", "made the function return int, not a push or None"),
        ("more", "made the function return fields that a push does not have"),
        ("other", "made the mapping raise ValueError"),
    ],
)
def test_a_function_makes_the_push_and_its_errors_hold_nothing_of_the_record(
    status: str, why: str
) -> None:
    made = compiled({"function": f"{__name__}:by_hand"}, "one")

    assert made.runs_code
    assert mapped(made.of, record()).title == "0/3"  # type: ignore[union-attr]
    assert mapped(made.of, record({**ORDER, "status": "open"})) is None
    bad = mapped(made.of, record({**ORDER, "status": status}))
    assert str(bad) == why


def test_what_is_not_wanted_comes_to_no_function() -> None:
    made = compiled({"function": f"{__name__}:by_hand", "when": {"id": 7}}, "one")

    assert mapped(made.of, record()) is not None
    assert mapped(made.of, record({**ORDER, "id": 8, "status": "other"})) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("shop", 'function is not "module:name"'),
        ("no_such_module:of", "function no_such_module:of cannot be loaded"),
        (f"{__name__}:ORDER", "is not a function"),
        (f"{__name__}:gone", "cannot be loaded"),
    ],
)
def test_a_function_that_is_not_there_is_refused(given: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        compiled({"function": given}, "one")


async def test_a_function_that_hangs_ends_the_process_with_the_records_offset() -> None:
    now_s, release = [0.0], threading.Event()

    def hangs(found: Record) -> None:
        if found.offset == 4:
            now_s[0] += 6.0
            release.wait()

    of = InThread(hangs, 5.0, clock_s=lambda: now_s[0])
    try:
        with pytest.raises(Hung, match="for 5 s, with record 4 of partition 0"):
            await of([record(offset=3), record(offset=4)])
    finally:
        release.set()


async def test_a_function_that_came_back_did_so_though_the_loop_hears_of_it_late() -> None:
    times_s = iter([0.0])

    of = InThread(lambda _: None, 5.0, clock_s=lambda: next(times_s, 60.0))

    assert await of([record()]) == [None]
