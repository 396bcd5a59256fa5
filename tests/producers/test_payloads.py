"""Payloads of a task: what its file may hold, and what each sink gets of a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_PUSH_BYTES, Push
from pushlane.core.task import Level
from pushlane.producers.producer import Producer
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.producers.task_options import read_payload_file
from pushlane.settings import Settings
from pushlane.util.errors import OversizedPush
from tests.lane_content import lane_of, pushes_of

SINKS = ("fcm", "sms")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.but(sinks={name: {"kind": "null"} for name in (*SINKS, "apns")})


ROW = {"recipient": "ann", "name": "Ann", "count": 3, "more": {"a": [1, None]}, "ratio": 0.5}


async def submitted(settings: Settings, source: Any, payload: Any, **options: Any) -> list[Push]:
    """Submit these rows with this payload, and return what is on the lane."""
    given = {"sink": SINKS, "level": Level.HIGH, "silent": True, **options}
    async with connect(settings) as backend:
        request = SubmitRequest(source=source, payload=payload, **given)
        return await lane_of(backend, (await submit(backend, settings, request)).task.id)


async def rendered(settings: Settings, block: Any, row: dict[str, Any] = ROW) -> Any:
    """The payload that this block makes of a row for `fcm`."""
    [push] = await submitted(settings, [row], {"fcm": block})
    return push.payload("fcm")


async def test_texts_are_templates_wherever_they_are(settings: Settings) -> None:
    block = {"aps": {"alert": ["Hi {name}", {"n": "{count} left"}]}, "{{x}}": "{{{name}}}", "k": 1}

    assert await rendered(settings, block) == {
        "aps": {"alert": ["Hi Ann", {"n": "3 left"}]},
        "{{x}}": "{Ann}",
        "k": 1,
    }


async def test_a_text_of_one_field_keeps_the_type_of_its_value(settings: Settings) -> None:
    block = {"n": "{count}", "o": "{more}", "f": "{ratio}", "t": "{name}"}

    assert await rendered(settings, block) == {
        "n": 3,
        "o": {"a": [1, None]},
        "f": 0.5,
        "t": "Ann",
    }


async def test_null_stays_null(settings: Settings) -> None:
    row = {**ROW, "name": None}

    assert await rendered(settings, {"a": "{name}", "b": "x{name}"}, row) == {"a": None, "b": "x"}


async def test_each_sink_has_its_own_block_or_that_of_all_others(settings: Settings) -> None:
    payload = {"fcm": {"to": "fcm"}, "*": {"to": "others"}}

    [push] = await submitted(settings, [ROW], payload, sink=("fcm", "apns", "sms"))

    assert [push.payload(sink) for sink in ("fcm", "apns", "sms")] == [
        {"to": "fcm"},
        {"to": "others"},
        {"to": "others"},
    ]


async def test_a_sink_without_a_block_has_no_payload(settings: Settings) -> None:
    [push] = await submitted(settings, [ROW], {"fcm": {"a": 1}})

    assert push.payload("sms") is None


@pytest.mark.parametrize("value", [{"a": 1}, '{"a": 1}'])
async def test_a_block_can_be_a_column_with_an_object_or_its_text(
    settings: Settings, value: Any
) -> None:
    assert await rendered(settings, "{more}", {"recipient": "a", "more": value}) == {"a": 1}


@pytest.mark.parametrize("value", ["secret {", "[1]", 7, None])
async def test_a_row_whose_block_is_no_object_is_a_bad_row(settings: Settings, value: Any) -> None:
    rows = [{"recipient": "a", "more": {}}, {"recipient": "b", "more": value}]

    with pytest.raises(
        BadInput, match=r":2 does not make a JSON object of the payload's block 'fcm'"
    ) as (caught):
        await submitted(settings, rows, {"fcm": "{more}"})

    assert "secret" not in str(caught.value)


async def test_a_value_that_json_has_not_makes_a_bad_row(
    settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"recipient": ["a"], "n": [float("nan")]}), path)

    with pytest.raises(BadInput, match="row 1, holds a value that cannot be sent in a push"):
        await submitted(settings, path, {"fcm": {"n": "{n}"}})


async def test_a_payload_that_is_too_large_names_its_row(settings: Settings) -> None:
    rows = [ROW, {**ROW, "name": "x" * MAX_PUSH_BYTES}]

    with pytest.raises(OversizedPush, match=r":2 makes a push of 65\d* bytes.*or payload"):
        await submitted(settings, rows, {"*": {"text": "Hi {name}"}})


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({}, "this one has none. The sinks of the task are: fcm, sms"),
        ([], "payload is of type list; give a mapping by sink"),
        ("p.json", "payload p.json cannot be read: No such file"),
        ({"fmc": {}}, "is for 'fmc', which is not a sink .* did you mean 'fcm'"),
        ({"fcm": 1}, "block 'fcm' is neither a JSON object"),
        ({"*": "Hi {name}"}, r"block '\*' is neither a JSON object"),
        ({"fcm": {"a": "{nam}"}}, "no column 'nam', .* as payload of fcm;.*did you mean 'name'"),
        ({"fcm": {"a": ["{name"]}}, "^payload of fcm: template '{name' cannot be read"),
        ({"fcm": {}, "*": "{name"}, r"^payload of \*: template '{name' cannot be read"),
    ],
)
async def test_a_payload_that_cannot_be_meant_is_refused(
    settings: Settings, tmp_path: Path, payload: Any, said: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("recipient,name\na,Ann\n")

    with pytest.raises(BadInput, match=said):
        await submitted(settings, rows, payload)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"fcm":\n {"a": }}', "is not JSON: line 2, column 8"),
        ("[1]", "is not a JSON object"),
        ('{"fcm": {"a": NaN}}', "holds NaN"),
        ('{"fcm": {}, "sms": {}, "fcm": {}}', "has 'fcm' twice in one object"),
        ("[" * 100_000, "nested too deeply"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_payload_says_what_is_wrong(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "payload.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(BadInput, match=said):
        read_payload_file(path)


async def test_a_payload_may_be_given_as_a_file(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "payload.json"
    path.write_text('{"*": {"text": "Hi {name}"}}')

    [push] = await submitted(settings, [ROW], path)

    assert push.payload("fcm") == {"text": "Hi Ann"}


def pushed(settings: Settings, payload: Any) -> Push:
    with Producer("orders", settings=settings, sink=SINKS) as producer:
        producer.push("ann", payload=payload)
        task_id = producer.task_id
    [push] = pushes_of(settings, task_id)
    return push


def test_an_application_gives_payloads_by_sink(settings: Settings) -> None:
    push = pushed(settings, {"fcm": {"a": 1}, "*": {"b": "{as it is}"}})

    assert (push.payload("fcm"), push.payload("sms")) == ({"a": 1}, {"b": "{as it is}"})


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"sns": {}}, "'sns', which is not a sink of the task.*did you mean 'sms'"),
        ({"fcm": "text"}, "not a mapping for each sink"),
        ({"fcm": {"a": object()}}, "data that JSON cannot hold"),
    ],
)
def test_a_payload_of_an_application_that_cannot_be_used_is_refused(
    settings: Settings, payload: Any, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        pushed(settings, payload)


def test_a_payload_of_json_survives_the_way_to_a_lane(settings: Settings) -> None:
    payload = {"fcm": {"a": [1, 2.5, None, True, "ü", {"b": {}}]}}

    assert json.loads(json.dumps(pushed(settings, payload).payload("fcm"))) == payload["fcm"]


async def test_what_a_provider_does_not_allow_is_a_bad_row(settings: Settings) -> None:
    limited = settings.but(sinks={"ios": {"kind": "apns"}})
    row = {"recipient": "ann", "text": "x" * 4097}
    with pytest.raises(OversizedPush, match="makes 4,097 bytes for the sink ios, over the 4"):
        await submitted(limited, [row], None, body="{text}", sink=("ios",))


def test_a_producer_refuses_what_a_provider_does_not_allow(settings: Settings) -> None:
    limited = settings.but(sinks={"ios": {"kind": "apns"}})
    with (
        Producer("app", settings=limited, sink="ios") as producer,
        pytest.raises(OversizedPush, match="over the 4,096 that apns allows"),
    ):
        producer.push("ann", body="x" * 4097)
