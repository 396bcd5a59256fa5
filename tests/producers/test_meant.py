"""Pushes with nothing in them and columns in doubled braces are refused unless they are meant."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.producers.check import first_pass
from pushlane.producers.dry_run import DryRun, dry_run
from pushlane.producers.producer import Producer
from pushlane.producers.replay import clone
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.producers.task_builder import DESCRIBED, described
from pushlane.settings import Settings
from tests.lane_content import lane_of

ROWS = [
    {"recipient": "a", "name": "Ann", "title": "Sale", "body": "Now"},
    {"recipient": "b", "name": "Bo", "title": "Sale", "body": ""},
    {"recipient": "c", "name": "", "title": None, "body": " "},
]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.but(
        sink="log:out.jsonl",
        retention_s=60,
        sinks={name: {"kind": "null"} for name in ("fcm", "sms")},
    )


def request_of(source: Any = ROWS, **options: Any) -> SubmitRequest:
    return SubmitRequest(**{"source": source, "level": Level.HIGH, **options})


async def submitted(settings: Settings, source: Any = ROWS, **options: Any) -> list[Push]:
    async with connect(settings) as backend:
        made = await submit(backend, settings, request_of(source, **options))
        return await lane_of(backend, made.task.id)


async def tried(settings: Settings, **options: Any) -> DryRun:
    async with connect(settings) as backend:
        return await dry_run(backend, settings, request_of(**options), lambda _: None)


async def refused(settings: Settings, source: Any = ROWS, **options: Any) -> str:
    said = []
    for act in (submitted, tried):
        with pytest.raises(BadInput) as caught:
            await act(settings, source=source, **options)
        said.append(str(caught.value))
    assert said[0] == said[1], "a dry run refuses what a submit does"
    return said[0]


def file_of(folder: Path, kind: str) -> Path:
    """The rows as a file."""
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif kind == "jsonl":
        path.write_bytes(b"\n".join(map(msgspec.json.encode, ROWS)))
    else:
        lines = [",".join(str(value or "") for value in row.values()) for row in ROWS]
        path.write_text("\n".join([",".join(ROWS[0]), *lines, ""]))
    return path


async def test_texts_that_were_forgotten_are_refused_with_the_columns_that_look_like_them(
    settings: Settings, tmp_path: Path
) -> None:
    for kind in ("csv", "jsonl", "parquet"):
        said = await refused(settings, file_of(tmp_path, kind))
        assert said.startswith(f"{tmp_path / 'rows'}.{kind}: its pushes would have no title, body")
        assert said.endswith("give --title '{title}' --body '{body}', or --silent if that is meant")

    said = await refused(settings, [{"recipient": "a"}], title="  ")
    assert "give --title or --body, or --silent" in said


@pytest.mark.parametrize(
    ("kind", "place"), [("csv", ":4"), ("jsonl", ":3"), ("parquet", ", row 3,")]
)
async def test_a_row_of_which_nothing_is_left_is_a_bad_row(
    settings: Settings, tmp_path: Path, kind: str, place: str
) -> None:
    path = file_of(tmp_path, kind)

    said = await refused(settings, path, title="{title}", body="{body}")
    assert f"{path}{place} has no title, body, data or payload (allowed only with --silent" in said

    listed = tmp_path / "rejects.jsonl"
    kept = await submitted(
        settings, path, title="{title}", body="{body}", bad_rows="skip", rejects=listed
    )
    assert [push.recipient for push in kept] == ["a", "b"]
    assert "has no title, body, data or payload" in listed.read_text()


@pytest.mark.parametrize(
    ("options", "recipients"),
    [
        ({"silent": True}, "abc"),
        ({"silent": True, "title": "{title}"}, "abc"),
        ({"title": "Hi {name}"}, "abc"),
        ({"data": ("recipient",)}, "abc"),
        ({"payload": {"*": {"a": 1}}}, "abc"),
        ({"title": "{title}", "data": ("name",), "bad_rows": "skip"}, "ab"),
    ],
)
async def test_what_has_something_in_it_or_is_meant_goes(
    settings: Settings, tmp_path: Path, options: dict[str, Any], recipients: str
) -> None:
    found = await submitted(settings, rejects=tmp_path / "rejects.jsonl", **options)

    assert "".join(push.recipient for push in found) == recipients


async def test_a_push_must_have_something_for_each_sink_that_it_may_go_to(
    settings: Settings,
) -> None:
    chained = {"sink": ("fcm", "sms"), "payload": {"fcm": {"a": 1}}}

    said = await refused(settings, **chained)
    assert "has no title, body or data, nor a payload for the sink 'sms'" in said

    rows = [{"recipient": "a", "token": "t", "phone": ""}]
    places = ("fcm=token", "sms=phone")
    assert len(await submitted(settings, rows, address=places, **chained)) == 1
    assert len(await submitted(settings, body="Hi", **chained)) == 3


async def test_a_column_in_doubled_braces_is_refused_wherever_templates_are(
    settings: Settings, tmp_path: Path
) -> None:
    for kind in ("csv", "jsonl", "parquet"):
        said = await refused(settings, file_of(tmp_path, kind), title="Hi {{name}}")
        assert said.startswith(
            "title template: `{{name}}` would be sent as the text {name}; for the column write "
            "{name}; for the text give --literal-braces"
        )
    assert "`{{ name }}`" in await refused(settings, body="Hi {{ name }}")
    assert "collapse template" in await refused(settings, title="x", collapse="of-{{name}}")
    payload = {"*": {"deep": ["{{name}}"]}}
    assert "payload of *: `{{name}}`" in await refused(settings, payload=payload)


@pytest.mark.parametrize(
    ("title", "options", "sent"),
    [
        ("{{name}}", {"literal_braces": True}, "{name}"),
        ("{{nobody}}", {}, "{nobody}"),
        ("{{{name}}}", {}, "{Ann}"),
        ("{{{{name}}}}", {}, "{{name}}"),
        ("{{", {}, "{"),
    ],
)
async def test_other_doubled_braces_stay_the_escape_that_they_are(
    settings: Settings, title: str, options: dict[str, Any], sent: str
) -> None:
    [push] = await submitted(settings, ROWS[:1], title=title, **options)

    assert push.title == sent


async def test_a_submit_that_is_silent_or_not_has_one_key_unless_rows_were_left_out(
    settings: Settings, tmp_path: Path
) -> None:
    async def fingerprint(**options: Any) -> str:
        request = request_of(key="k", bad_rows="skip", rejects=tmp_path / "r.jsonl", **options)
        async with first_pass(request, settings, lambda _: None) as (_, task, _):
            return task.fingerprint

    assert await fingerprint(title="x") == await fingerprint(title="x", silent=True)
    assert await fingerprint(title="{title}") != await fingerprint(title="{title}", silent=True)


async def test_a_dry_run_counts_empty_pushes_and_recipients_that_occur_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = [*ROWS, ROWS[0]]

    found = await tried(settings, source=again, title="{title}", silent=True)
    assert (found.accepted, found.empty, found.recipients, found.repeated) == (4, 1, 3, 1)

    monkeypatch.setattr("pushlane.producers.dry_run.MOST_COUNTED", 2)
    found = await tried(settings, source=again, title="Hi")
    assert (found.empty, found.recipients, found.repeated) == (0, None, None)


async def test_a_clone_of_empty_pushes_goes_on_and_counts_them(settings: Settings) -> None:
    async with connect(settings) as backend:
        made = await submit(backend, settings, request_of(title="{title}", silent=True))
        again = await clone(backend, settings, made.task.id)

    assert (again.published, again.empty) == (3, 1)


def test_a_producer_sends_empty_pushes_and_warns_once(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pushlane.producer")
    with Producer("orders", settings=settings) as producer:
        producer.push("ann", title="Paid")
        producer.push("ann", data={"order": 7})
        assert caplog.records == []
        producer.push("ann")
        producer.push("bo")

    [record] = caplog.records
    assert record.getMessage().startswith("producer orders: a push has no title, body, data or")
    assert "ann" not in record.getMessage()


def test_the_parts_of_a_key_have_the_names_that_are_known(settings: Settings) -> None:
    assert tuple(described(request_of(), settings)) == DESCRIBED
