"""Sinks and addresses of a task: which it may name, and where each of its pushes goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.push import Push
from pushlane.core.task import Level, Task
from pushlane.producers.producer import Producer
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.producers.task_builder import describe
from pushlane.settings import Settings
from tests.lane_content import lane_of, pushes_of, task_of

SUBSCRIPTION = {"endpoint": "https://push.example.com/1", "keys": {"auth": "a", "p256dh": "b"}}
BEFORE_SINKS = (
    b'["high",1,"default","recipient","","",[],"","","","","","","","","stop","at_least_once",'
    b"null,null,32,0]"
)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings that know the sinks of these tests."""
    return settings.but(
        sink="log:out.jsonl", sinks={name: {"kind": "null"} for name in ("fcm", "apns", "sms")}
    )


async def submitted(settings: Settings, source: Any, **options: Any) -> tuple[Task, list[Push]]:
    """Submit these rows, and return the task with what is on its lane."""
    request = SubmitRequest(**{"source": source, "level": Level.HIGH, "title": "Hi", **options})
    async with connect(settings) as backend:
        task = (await submit(backend, settings, request)).task
        return task, await lane_of(backend, task.id)


async def refused(settings: Settings, source: Any, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        await submitted(settings, source, **options)
    return str(caught.value)


def csv(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text)
    return path


async def test_a_task_keeps_the_sinks_that_it_names(settings: Settings) -> None:
    task, _ = await submitted(settings, [{"recipient": "a"}], sink=("fcm", "sms"))

    assert (task.sinks, task.chain, task.format) == (("fcm", "sms"), ("fcm", "sms"), 2)


@pytest.mark.parametrize("sink", [(), ("default",)])
async def test_a_task_for_the_default_sink_is_one_as_ever(
    settings: Settings, sink: tuple[str, ...]
) -> None:
    task, [push] = await submitted(settings, [{"recipient": "a"}], sink=sink)

    assert (task.sinks, task.format) == ((), 1)
    assert (push.addresses, push.payloads) == (None, None)


async def test_a_low_task_goes_to_a_pool_lane_of_its_first_sink(settings: Settings) -> None:
    task, _ = await submitted(settings, [{"recipient": "a"}], sink=("sms",), level=Level.LOW)

    assert task.lane.startswith("pool-sms-")
    assert task.lane == task.first_lane


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (("FCM",), "sink 'FCM' is not a name"),
        (("webhook:http://x/?token=secret",), "sink 'webhook' is not a name"),
        (("fcm", ""), "sink '' is not a name"),
        (("sms", "fcm", "sms"), "'sms' falls back on itself"),
        (tuple(f"s{number}" for number in range(9)), "9 sinks; a task may have 8"),
        ("webhook:http://x/?token=secret", "sink 'webhook' is not a name"),
        (5, "sink is of type int; give texts"),
    ],
)
async def test_sinks_that_cannot_be_meant_are_refused(
    settings: Settings, sink: Any, said: str
) -> None:
    told = await refused(settings, [{"recipient": "a"}], sink=sink)

    assert said in told
    assert "secret" not in told


async def test_each_sink_has_the_address_of_its_own_column(
    settings: Settings, tmp_path: Path
) -> None:
    rows = csv(tmp_path, "recipient,token,phone\nann, t-1 ,391\nbo,,392\n")
    options = {"sink": ("fcm", "sms"), "address": ("fcm=token", "sms=phone")}

    _, [first, second] = await submitted(settings, rows, **options)

    assert first.addresses == {"fcm": "t-1", "sms": "391"}
    assert (second.recipient, second.address("fcm"), second.address("sms")) == ("bo", "", "392")


async def test_a_column_alone_is_for_every_sink_without_its_own(
    settings: Settings, tmp_path: Path
) -> None:
    rows = csv(tmp_path, "recipient,token,phone\nann,t-1,391\n")
    options = {"sink": ("fcm", "apns", "sms"), "address": ("token", "sms=phone")}

    _, [push] = await submitted(settings, rows, **options)

    assert [push.address(sink) for sink in options["sink"]] == ["t-1", "t-1", "391"]


async def test_a_sink_without_a_column_has_the_recipient(
    settings: Settings, tmp_path: Path
) -> None:
    rows = csv(tmp_path, "recipient,phone\nann,\n")

    _, [push] = await submitted(settings, rows, sink=("fcm", "sms"), address=("sms=phone",))

    assert (push.address("fcm"), push.address("sms")) == ("ann", "")


async def test_a_row_without_any_address_is_a_bad_row(settings: Settings, tmp_path: Path) -> None:
    rows = csv(tmp_path, "recipient,token,phone\nann,t-1,\nbo@x, ,\n")

    said = await refused(
        settings, rows, sink=("fcm", "sms"), address=("fcm=token", "sms=phone"), name="n"
    )

    assert "rows.csv:3 has no address (text, a whole number or an object) in 'token', 'phone'" in (
        said
    )
    assert "bo@x" not in said


async def test_rows_without_any_address_can_be_skipped(settings: Settings, tmp_path: Path) -> None:
    rows = csv(tmp_path, "recipient,token\nann,t-1\nbo,\n")

    task, pushes = await submitted(settings, rows, address=("token",), bad_rows="skip")

    assert (task.total, [push.recipient for push in pushes]) == (1, ["ann"])


async def test_a_subscription_goes_along_as_its_json_text(settings: Settings) -> None:
    rows = [{"recipient": "a", "sub": SUBSCRIPTION}, {"recipient": "b", "sub": 39_123}]

    _, [first, second] = await submitted(settings, rows, address=("sub",))

    assert json.loads(first.address("default")) == SUBSCRIPTION
    assert second.address("default") == "39123"


async def test_a_struct_column_holds_subscriptions(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"recipient": ["a"], "sub": [SUBSCRIPTION]}), path)

    _, [push] = await submitted(settings, path, address=("sub",))

    assert json.loads(push.address("default")) == SUBSCRIPTION


@pytest.mark.parametrize("value", [True, 1.5, ["x"]])
async def test_what_can_be_no_address_makes_a_bad_row(settings: Settings, value: Any) -> None:
    rows = [{"recipient": "a", "token": value, "phone": "1"}]
    options = {"sink": ("fcm", "sms"), "address": ("fcm=token", "sms=phone")}

    assert "has no address (text, a whole number or an object) in 'token'" in await refused(
        settings, rows, **options
    )


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (("tokn",), "no column 'tokn', which is needed as address; .*did you mean 'token'"),
        (("sns=token",), "'sns=token' is for 'sns', which is not a sink .* fcm, sms; did you mean"),
        (("token", "phone"), "all other sinks have the column 'token' already"),
        (("fcm=token", "fcm=phone"), "pushes to 'fcm' have the column 'token' already"),
        (("fcm=",), "'fcm=' names no column"),
        (("fcm=token", "sms=phone", "recipient"), "'recipient' is not used"),
    ],
)
async def test_addresses_that_cannot_be_meant_are_refused(
    settings: Settings, tmp_path: Path, address: tuple[str, ...], said: str
) -> None:
    rows = csv(tmp_path, "recipient,token,phone\nann,t-1,391\n")

    with pytest.raises(BadInput, match=said):
        await submitted(settings, rows, sink=("fcm", "sms"), address=address)


def test_a_key_made_before_there_were_sinks_is_of_the_same_content() -> None:
    plain = SubmitRequest(source=(), level=Level.HIGH)
    default = SubmitRequest(source=(), level=Level.HIGH, sink=("default",))

    assert describe(plain, Settings()) == BEFORE_SINKS
    assert describe(default, Settings()) == BEFORE_SINKS


@pytest.mark.parametrize("option", [{"sink": ("sms",)}, {"address": ("token",)}])
def test_other_sinks_or_addresses_are_other_content(option: dict[str, Any]) -> None:
    request = SubmitRequest(source=(), level=Level.HIGH, **option)

    assert describe(request, Settings()) != BEFORE_SINKS


def pushed(settings: Settings, address: Any) -> tuple[Task, Push]:
    """Push to one recipient at this address, and return what came of it."""
    with Producer("orders", settings=settings, sink="fcm,sms") as producer:
        producer.push("ann", address=address)
        task_id = producer.task_id
    [push] = pushes_of(settings, task_id)
    return task_of(settings, task_id), push


@pytest.mark.parametrize(
    ("address", "fcm", "sms"),
    [
        (None, "ann", "ann"),
        ("t-1", "t-1", "t-1"),
        ({"fcm": "t-1", "sms": 391}, "t-1", "391"),
        ({"sms": "391"}, "ann", "391"),
        ({"fcm": "", "sms": "391"}, "", "391"),
    ],
)
def test_an_application_gives_one_address_or_one_by_sink(
    settings: Settings, address: Any, fcm: str, sms: str
) -> None:
    task, push = pushed(settings, address)

    assert task.sinks == ("fcm", "sms")
    assert (push.address("fcm"), push.address("sms")) == (fcm, sms)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"sns": "391"}, "'sns', which is not a sink of the task.*did you mean 'sms'"),
        ({"fcm": 1.5}, "is not a text"),
        ("", "no address for any sink"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(
    settings: Settings, address: Any, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        pushed(settings, address)
