"""Fan-outs on Spark: each push on its lane once, whatever breaks; and what is refused."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from unittest import mock
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from pushlane.backends.backend import connect
from pushlane.backends.embedded.registry import EmbeddedRegistry
from pushlane.backends.formats import set_min_format
from pushlane.backends.ports import listed
from pushlane.core.errors import BadInput, OutdatedFormat, TaskConflict, Unreachable
from pushlane.core.push import decode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.fanout import fan_out
from pushlane.pipeline.fanout import snapshot as freeze_module
from pushlane.pipeline.fanout.fan_out import reconcile
from pushlane.pipeline.fanout.stage import FanoutStage
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.producers.task_builder import new_task
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits
from tests.integration.pipeline.fanout_support import (
    Torn,
    asked,
    broken_part,
    messages,
    on_lane,
    people,
    run,
    seqs,
    source_with,
    spec,
)

BATCH = 8
BUNDLE = 4 * BATCH  # of a fan-out

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def embedded(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "store", batch=BATCH, prefetch=2 * BATCH)


@pytest.fixture(params=["embedded", pytest.param("pulsar", marks=pytest.mark.pulsar)])
def settings(request: pytest.FixtureRequest, embedded: Settings) -> Settings:
    if request.param == "embedded":
        return embedded
    on_pulsar = request.getfixturevalue("pulsar_settings")
    return on_pulsar.but(**{"batch": BATCH, "prefetch": 2 * BATCH})


async def task_of(settings: Settings, key: str) -> Task:
    async with connect(settings) as backend:
        return await backend.registry.get(key)


async def test_the_rows_of_a_rule_are_on_the_lane_once_each(settings, tmp_path) -> None:
    task_spec = spec(title="Hi {name}", data=["age"])
    request = asked(people(tmp_path), where="city = 'Rome'", spec=task_spec)

    result = await run(settings, request)

    pushes = await on_lane(settings, result.task)
    assert seqs(pushes) == list(range(1, 21))
    assert {push.recipient for push in pushes} == {f"user-{n}" for n in range(10, 201, 10)}
    assert {(push.title, push.data["age"]) for push in pushes if push.recipient == "user-100"} == {
        ("Hi N100", 10)
    }
    assert (result.task.total, result.counts.matched) == (20, 20)


async def test_it_is_in_a_trace_where_its_first_call_was(embedded, tmp_path, monkeypatch) -> None:
    place, other = (f"00-{letter * 32}-{letter * 16}-01" for letter in "ab")
    request = asked(people(tmp_path), key="k")
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    with pytest.raises(PipelineFailed):
        await run(embedded, request, traceparent=place)
    monkeypatch.undo()

    result = await run(embedded, request, traceparent=other)

    assert (result.resumed, result.task.traceparent) == (True, place)


async def test_the_same_call_after_its_end_adds_nothing(settings, tmp_path) -> None:
    request = asked(people(tmp_path))
    first = await run(settings, request)

    again = await run(settings, request)

    assert (again.already_done, again.task.id) == (True, first.task.id)
    assert len(await on_lane(settings, first.task)) == 200


async def test_attempts_that_break_off_leave_each_push_once(
    settings, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    request = asked(people(tmp_path), key="k")
    with pytest.raises(PipelineFailed, match="run the same command again"):
        await run(settings, request)
    monkeypatch.undo()
    assert 0 < len(await on_lane(settings, await task_of(settings, "k"))) < 200

    result = await run(settings, request)

    assert result.resumed
    assert seqs(await on_lane(settings, result.task)) == list(range(1, 201))


async def test_what_is_frozen_is_in_bundles_that_a_resumed_fan_out_keeps(
    settings, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    request = asked(people(tmp_path))
    with pytest.raises(PipelineFailed):
        await run(settings, request)
    monkeypatch.undo()
    stage = FanoutStage(settings, request.task_key)
    manifest = stage.manifest()
    parts = manifest.parts
    wanted = []
    for part in parts:
        path = stage.frozen(manifest.task.id).rows / part.file
        for row in pq.read_table(path).to_pylist():
            assert (row["part"], row["place"] % BUNDLE) == (part.number, 0)
            first = part.first_seq + row["place"]
            wanted.append(list(range(first, first + row["pushes"])))
    sizes = [min(BUNDLE, part.rows - n) for part in parts for n in range(0, part.rows, BUNDLE)]
    assert (manifest.task.bundle, [len(seqs) for seqs in wanted]) == (BUNDLE, sizes)

    result = await run(settings, request)

    found = [[push.seq for push in some] for some in await messages(settings, result.task)]
    assert sorted(found) == wanted


async def test_where_older_processes_read_each_push_goes_alone(embedded, tmp_path) -> None:
    async with connect(embedded) as backend:
        await set_min_format(backend.documents, backend.presence, 1)

    result = await run(embedded, asked(people(tmp_path)))

    async with connect(embedded) as backend:
        lane = result.task.first_lane
        bodies = [body async for page in backend.broker.replay(lane) for body in page]
    assert sorted(decode(body).seq for body in bodies) == list(range(1, 201))


async def test_what_a_version_before_0_2_0_froze_is_refused_until_it_is_done(
    embedded, tmp_path, monkeypatch
) -> None:
    request = asked(people(tmp_path), key="k")
    not_begun = mock.Mock(side_effect=ConnectionError("broken off by the test"))
    monkeypatch.setattr("pushlane.pipeline.fanout.fan_out.publish", not_begun)
    with pytest.raises(ConnectionError):
        await run(embedded, request)
    monkeypatch.undo()
    stage = FanoutStage(embedded, "k")
    manifest = stage.manifest()
    stage.publish(replace(manifest, format=1))

    with pytest.raises(OutdatedFormat, match=r"run release 0\.2\.0 until none is left"):
        await run(embedded, request, frozen=True)

    assert stage.frozen(manifest.task.id).rows.is_dir()
    async with connect(embedded) as backend:
        await backend.registry.change(manifest.task.id, task_changes.seal(200))
    assert (await run(embedded, request)).already_done


async def test_a_lane_whose_producers_are_forgotten_is_read_before_it_goes_on(
    settings, tmp_path, monkeypatch
) -> None:
    """The broker's memory is made to end: with names of their own, nothing would be recognised."""
    request = asked(people(tmp_path))
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    with pytest.raises(PipelineFailed):
        await run(settings, request)
    monkeypatch.undo()
    stage = FanoutStage(settings, request.task_key)
    for path in stage.path.glob("*/progress/*"):
        os.utime(path, (1, 1))
    reading = mock.AsyncMock(wraps=reconcile)
    monkeypatch.setattr("pushlane.pipeline.fanout.fan_out.reconcile", reading)

    result = await run(settings, request)

    assert seqs(await on_lane(settings, result.task)) == list(range(1, 201))
    assert reading.called == (settings.broker != "embedded")


async def test_a_frozen_audience_that_changed_is_refused(embedded, tmp_path, monkeypatch) -> None:
    audience = people(tmp_path)
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    with pytest.raises(PipelineFailed):
        await run(embedded, asked(audience))
    monkeypatch.undo()
    pq.write_table(pa.table({"recipient": ["late"], "name": ["L"]}), audience / "late.parquet")

    with pytest.raises(TaskConflict, match=r"1 added \(late\.parquet\).*--frozen.*--key"):
        await run(embedded, asked(audience))

    result = await run(embedded, asked(audience), frozen=True)
    assert seqs(await on_lane(embedded, result.task)) == list(range(1, 201))


async def test_a_task_cancelled_meanwhile_is_not_gone_on_with(
    embedded, tmp_path, monkeypatch
) -> None:
    request = asked(people(tmp_path), key="k")
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    with pytest.raises(PipelineFailed):
        await run(embedded, request)
    monkeypatch.undo()
    async with connect(embedded) as backend:
        await backend.registry.change("k", task_changes.cancel)

    with pytest.raises(TaskConflict, match="was cancelled: 0 pushes were delivered"):
        await run(embedded, request)
    assert list(FanoutStage(embedded, "k").path.glob("*/*")) == []  # recipients are in those


async def test_a_callers_session_keeps_its_own_settings(embedded, tmp_path, spark) -> None:
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, "Europe/Oslo")

    await run(embedded, asked(people(tmp_path), zone="Asia/Tokyo"))
    found = spark.conf.get(name)
    spark.conf.set(name, before)

    assert found == "Europe/Oslo"


async def test_a_key_of_another_rule_is_refused(embedded, tmp_path) -> None:
    audience = people(tmp_path)
    await run(embedded, asked(audience, key="k"))

    with pytest.raises(TaskConflict, match="which differs in where; "):
        await run(embedded, asked(audience, key="k", where="age > 3"))


async def test_what_was_frozen_elsewhere_is_not_frozen_anew(
    embedded, tmp_path, monkeypatch
) -> None:
    request = asked(people(tmp_path))
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    with pytest.raises(PipelineFailed):
        await run(embedded, request)
    monkeypatch.undo()
    FanoutStage(embedded, request.task_key).clear()

    with pytest.raises(TaskConflict, match="fanout_dir"):
        await run(embedded, request)


async def test_a_freeze_whose_task_was_not_registered_is_gone_on_with(
    embedded, tmp_path, monkeypatch
) -> None:
    """Half of the registration may be there, with the id that it was frozen for."""
    request = asked(people(tmp_path))
    monkeypatch.setattr(EmbeddedRegistry, "add", mock.AsyncMock(side_effect=Unreachable("gone")))
    with pytest.raises(Unreachable):
        await run(embedded, request)
    monkeypatch.undo()
    frozen = FanoutStage(embedded, request.task_key).manifest()

    result = await run(embedded, request)

    assert frozen
    assert (result.resumed, result.task.id) == (True, frozen.task.id)
    assert seqs(await on_lane(embedded, result.task)) == list(range(1, 201))


async def test_a_task_that_is_forgotten_after_its_end_is_made_anew(embedded, tmp_path) -> None:
    request = asked(people(tmp_path))
    first = await run(embedded, request)
    for path in embedded.data_dir.glob("*.db*"):
        path.unlink()

    again = await run(embedded, request)

    assert (again.resumed, again.published) == (False, 200)
    assert again.task.id != first.task.id


async def test_the_excluded_are_left_out(embedded, tmp_path) -> None:
    gone = tmp_path / "gone.csv"
    gone.write_text("device,why\nuser-1,dead\n user-2 ,dead\nnobody,dead\n")
    muted = tmp_path / "muted.parquet"
    pq.write_table(pa.table({"recipient": ["user-3"]}), muted)
    exclude = (f"{gone}:device", str(muted))

    result = await run(embedded, asked(people(tmp_path), exclude=exclude))

    recipients = {push.recipient for push in await on_lane(embedded, result.task)}
    assert recipients == {f"user-{number}" for number in range(4, 201)}
    assert result.counts.excluded == 3


async def test_a_recipient_gets_one_push_always_of_the_same_row(embedded, tmp_path) -> None:
    rows = tmp_path / "twice.csv"
    rows.write_text("recipient,name\n a ,Zoe\nb,Bea\na,Ann\n,None\n")
    titles = []
    for key in ("first", "second"):
        result = await run(embedded, asked(rows, key=key))
        titles.append({push.title for push in await on_lane(embedded, result.task)})

    assert titles == [{"Hi Ann", "Hi Bea"}] * 2
    assert (result.counts.duplicates, result.counts.without_recipient) == (1, 1)


async def test_what_is_left_out_is_counted_in_the_last_stage_which_counts_nothing_twice(
    spark, embedded, tmp_path
) -> None:
    """Spark adds up what a stage has observed again when it runs the stage again."""
    gone = tmp_path / "gone.csv"
    gone.write_text("recipient\nuser-1\n")
    request = asked(people(tmp_path), exclude=(str(gone),))
    wanted = request.spec.request(0, "k")
    task = new_task(wanted, embedded)
    _, packed, _ = freeze_module._plan_freeze(spark, request, wanted, task, PayloadLimits())

    shown = packed._jdf.queryExecution().executedPlan().toString()
    last_stage, _, before = shown.partition("Exchange hashpartitioning")
    assert all(name in last_stage for name in ("excluded", "duplicates", "bad"))
    assert "nameless" in before


async def test_a_part_is_one_file_whatever_the_sessions_defaults(spark, embedded, tmp_path) -> None:
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "7")
    try:
        result = await run(embedded, asked(people(tmp_path)))
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")

    assert seqs(await on_lane(embedded, result.task)) == list(range(1, 201))


async def test_days_in_a_rule_are_those_of_its_zone(spark, embedded, tmp_path) -> None:
    """26 hours lie between the two zones, so they never have the same day."""
    days = {}
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        now = datetime.now(ZoneInfo(zone))
        soon = now + timedelta(minutes=10)  # midnight may come while Spark starts
        where = f"current_date() BETWEEN '{now.date()}' AND '{soon.date()}'"
        days[zone] = await run(
            embedded, asked(people(tmp_path), where=where, zone=zone, dry_run=True)
        )
    late = "to_date(timestamp'2026-01-31T23:30:00Z') = '2026-02-01'"
    berlin = await run(
        embedded, asked(people(tmp_path), where=late, zone="Europe/Berlin", dry_run=True)
    )

    assert [found.counts.total for found in (*days.values(), berlin)] == [200, 200, 200]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


async def test_csv_is_compared_as_numbers_and_sent_as_it_stands(embedded, tmp_path) -> None:
    rows = tmp_path / "phones.csv"
    rows.write_text('recipient,n,text\n+4915,007,"say ""hi"""\n0049,10,x\n')

    task_spec = spec(title="{n} {text}", data=["n"])
    result = await run(embedded, asked(rows, where="n < 9", spec=task_spec))

    [push] = await on_lane(embedded, result.task)
    assert (push.recipient, push.title, push.data) == ("+4915", '007 say "hi"', {"n": "007"})


async def test_pushes_of_a_time_zone_come_together(embedded, tmp_path) -> None:
    rows = tmp_path / "zones.csv"
    zones = ("Asia/Tokyo", "Europe/Rome", "America/Lima")
    lines = "".join(f"u{number},{zones[number % 3]}\n" for number in range(30))
    rows.write_text(f"recipient,tz\n{lines}")

    task_spec = spec(title="Hi", quiet="22:00-08:00", zone_column="tz")
    result = await run(embedded, asked(rows, spec=task_spec))

    pushes = await on_lane(embedded, result.task)
    assert Counter(push.zone for push in pushes) == dict.fromkeys(zones, 10)
    found = [push.zone for push in sorted(pushes, key=lambda push: push.seq)]
    borders = sum(one != next_one for one, next_one in pairwise(found))
    parts = 2  # of the tests' Spark
    assert borders <= parts * len(zones) - 1


async def test_pushes_are_those_of_a_submit_of_the_same_rows(embedded, tmp_path) -> None:
    path = tmp_path / "kinds.parquet"
    pq.write_table(every_kind(), path)
    columns = [name for name in every_kind().column_names if name != "id"]
    title = " | ".join(f"{{{name}}}" for name in columns)
    options = {"title": f"100% {title}", "collapse": "{id}-x", "data": ("whole", "list", "object")}
    options["data"] += ("text", "fraction")
    options |= {"trace_id": "whole"}
    named = ("text", "yes", "fraction")

    made = await run(embedded, asked(path, spec=spec(recipient="id", attribute=named, **options)))

    plain = SubmitRequest(
        source=path, level=Level.HIGH, recipient="id", attributes=named, **options
    )
    async with connect(embedded) as backend:
        submitted = await submit(backend, embedded, plain)
    shown = [
        {
            push.recipient: (
                *(push.title, push.body, push.data, push.collapse),
                *(push.attributes, push.trace_id),
            )
            for push in await on_lane(embedded, task)
        }
        for task in (made.task, submitted.task)
    ]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 3
    assert shown[0]["7"][-2:] == ({"text": 'quo"te', "yes": "true", "fraction": "1.0"}, "-5")


async def test_addresses_and_payloads_are_those_of_a_submit_of_the_same_rows(
    embedded, tmp_path
) -> None:
    path = tmp_path / "people.parquet"
    subscriptions = [{"endpoint": "https://x/1", "keys": {"auth": "a"}}, None]
    pq.write_table(
        pa.table({"recipient": ["a", "b"], "web": subscriptions, "phone": [None, "39"]}), path
    )
    options = {"sink": ("web", "sms"), "address": ("web=web", "sms=phone")}
    embedded = embedded.but(sinks={name: {"kind": "null"} for name in options["sink"]})
    options["payload"] = {"sms": {"to": "+{phone}"}, "*": {"sub": "{web}", "n": 1}}

    made = await run(embedded, asked(path, spec=spec(**options)))

    async with connect(embedded) as backend:
        plain = SubmitRequest(source=path, level=Level.HIGH, **options)
        submitted = await submit(backend, embedded, plain)
    fanned, sent = [
        {push.recipient: (push.addresses, push.payloads) for push in await on_lane(embedded, task)}
        for task in (made.task, submitted.task)
    ]
    assert fanned == sent
    assert sent["b"][0] == {"web": "", "sms": "39"}
    assert sent["a"][1] == {"sms": {"to": "+"}, "": {"sub": subscriptions[0], "n": 1}}
    assert made.task.sinks == ("web", "sms")


def every_kind() -> pa.Table:
    """Three rows of the kinds of values that a template may name, the last one all null."""
    at = pa.array([1_700_000_000_123_456, 0, None], pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "id": pa.array([7, 8, 9], pa.int64()),
            "text": ['quo"te\n', "  späce %s {x} ", None],
            "whole": pa.array([-5, 2**40, None], pa.int64()),
            "yes": [True, False, None],
            "fraction": [1.0, 1e22, None],
            "small": pa.array([0.1, -2.5, None], pa.float32()),
            "day": pa.array([19_000, 0, None], pa.date32()),
            "at": at,
            "list": [["a", "ü"], [], None],
            "object": [{"k": 'v"', "n": 1.5}, {"k": None, "n": 2.0}, None],
        }
    )


async def test_a_dry_run_counts_and_leaves_nothing(embedded, tmp_path) -> None:
    result = await run(embedded, asked(people(tmp_path), where="age < 10", dry_run=True))

    assert (result.task, result.counts.total) == (None, 29)
    async with connect(embedded) as backend:
        assert await listed(backend.registry) == []
    assert not (embedded.data_dir / "fanout").exists()


async def test_more_than_is_allowed_is_refused(embedded, tmp_path) -> None:
    with pytest.raises(BadInput, match="200 pushes are more than the 199 that are allowed"):
        await run(embedded, asked(people(tmp_path), most=199))

    async with connect(embedded) as backend:
        assert await listed(backend.registry) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"where": "agee > 3"}, r"no column 'agee'; did you mean 'age'\?; the columns are: rec"),
        ({"where": "age >"}, "Syntax error"),
        ({"where": "age = 1000"}, "has no rows for which 'age = 1000' holds"),
        ({"where": "1 = 0"}, "has no rows for which '1 = 0' holds"),
        ({"spec": spec(title="{nam}")}, "no column 'nam', which is needed as title template"),
        ({"spec": spec(title="{{name}}")}, r"`\{\{name\}\}` would be sent as the text \{name\}"),
        ({"spec": spec()}, "pushes would have no title, body, data or payload; give its spec a ti"),
        ({"spec": spec(), "dry_run": True}, "would have no title, body, data or payload"),
        (
            {"spec": spec(title="Hi", recipient="device")},
            "no column 'device', which is needed as recipient",
        ),
        ({"exclude": ("{people}:devise",)}, "no column 'devise'"),
        ({"exclude": ("{people}",)}, "nobody is left of 200 rows"),
    ],
)
async def test_what_cannot_be_meant_is_refused(embedded, tmp_path, given, said) -> None:
    path = people(tmp_path)
    if "exclude" in given:
        given = {"exclude": tuple(one.format(people=path) for one in given["exclude"])}

    with pytest.raises(BadInput, match=said):
        await run(embedded, asked(path, **given))


async def test_an_audience_that_is_not_there_is_named(embedded, tmp_path) -> None:
    with pytest.raises(BadInput, match=r"nothing is at .*give a path"):
        await run(embedded, asked(tmp_path / "none.parquet"))


async def test_a_recipient_must_be_a_text_or_a_number(embedded, tmp_path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"recipient": [1.5], "name": ["x"]}), path)

    with pytest.raises(BadInput, match="recipient column 'recipient' is double"):
        await run(embedded, asked(path))


async def test_rows_that_cannot_be_used_are_refused_or_skipped(embedded, tmp_path) -> None:
    rows = tmp_path / "zones.csv"
    rows.write_text("recipient,tz\na,Europe/Rome\nb,Europe/Roma\n")
    options = {"title": "Hi", "quiet": "22:00-08:00", "zone_column": "tz"}

    with pytest.raises(BadInput, match=r"1 rows .* has the unknown time zone 'Europe/Roma'"):
        await run(embedded, asked(rows, spec=spec(**options)))

    result = await run(embedded, asked(rows, spec=spec(bad_rows="skip", **options)))
    assert (result.task.total, result.counts.bad) == (1, 1)


async def test_rows_of_which_nothing_is_left_are_refused_or_skipped_or_silent(
    embedded, tmp_path
) -> None:
    rows = tmp_path / "texts.csv"
    rows.write_text("recipient,text\na,Hi\nb,\n")

    with pytest.raises(BadInput, match=r"1 rows .* has no title, body, data or payload"):
        await run(embedded, asked(rows, spec=spec(title="{text}")))

    made = [
        await run(embedded, asked(rows, spec=spec(title="{text}", **option)))
        for option in ({"bad_rows": "skip"}, {"silent": True})
    ]
    assert [(one.task.total, one.counts.bad) for one in made] == [(1, 1), (2, 0)]


async def test_the_key_of_another_or_a_cancelled_fan_out_says_so(embedded, tmp_path) -> None:
    request = asked(people(tmp_path, 20), key="k")
    task = (await run(embedded, request)).task

    with pytest.raises(TaskConflict, match=r"which differs in where and title; .* such as k-2"):
        await run(embedded, request, where="age > 3", spec=spec(title="Hello {name}"))

    async with connect(embedded) as backend:
        await backend.registry.change(task.id, task_changes.cancel)
    with pytest.raises(TaskConflict, match=r"was cancelled: 0 of its 20 pushes .* such as k-2"):
        await run(embedded, request)


async def test_json_lines_are_an_audience(embedded, tmp_path) -> None:
    path = tmp_path / "people.jsonl"
    path.write_text("\n".join(json.dumps({"recipient": f"u{n}", "name": n}) for n in range(5)))

    result = await run(embedded, asked(path, where="name >= 3"))

    assert {push.title for push in await on_lane(embedded, result.task)} == {"Hi 3", "Hi 4"}


async def test_a_table_is_an_audience_and_is_told_by_its_rows(
    embedded, tmp_path, spark, monkeypatch
) -> None:
    spark.read.parquet(str(people(tmp_path))).createOrReplaceTempView("everybody")
    log = str(tmp_path / "derby.log")
    spark.sparkContext._jvm.java.lang.System.setProperty("derby.stream.error.file", log)
    url = f"jdbc:derby:memory:t{uuid.uuid4().hex};create=true"
    rows = spark.table("everybody").where("age < 5")
    rows.write.format("jdbc").options(url=url, dbtable="people").save()
    request = asked("people", format="jdbc", options={"url": url})
    monkeypatch.setattr(fan_out, "publish_part", broken_part)
    with pytest.raises(PipelineFailed):
        await run(embedded, request)
    monkeypatch.undo()
    rows.limit(1).write.format("jdbc").options(url=url, dbtable="people").mode("append").save()

    with pytest.raises(TaskConflict, match="it had 14 rows and has 15 now"):
        await run(embedded, request)


async def test_a_job_of_ones_own_writes_to_a_lane(settings, tmp_path, spark) -> None:
    task_spec = tmp_path / "task.toml"
    task_spec.write_text('level = "high"\ntitle = "Hi {name}"\n')
    spark.dataSource.register(source_with(settings, Torn))
    columns = ("id AS seq", "concat('u', id) AS recipient", "id AS name")
    rows = spark.range(1, 101, 1, 3).selectExpr(*columns)
    write = rows.write.format("pushlane").options(spec=str(task_spec), key="own").mode("append")
    with pytest.raises(Exception, match="torn by the test"):
        write.save()
    spark.dataSource.register(source_with(settings))

    write.save()

    task = await task_of(settings, "own")
    assert task.total == 100
    assert seqs(await on_lane(settings, task)) == list(range(1, 101))


async def test_what_was_frozen_for_no_task_is_frozen_anew(embedded, tmp_path, monkeypatch) -> None:
    """Cut off between the manifest and the task: nothing of it can be on a lane."""
    audience = people(tmp_path)
    with monkeypatch.context() as cut:
        cut.setattr(EmbeddedRegistry, "add", broken_off)
        with pytest.raises(ConnectionError):
            await run(embedded, asked(audience, key="k"))

    result = await run(embedded, asked(audience, key="k", where="city = 'Rome'"))

    assert not result.resumed
    assert seqs(await on_lane(embedded, result.task)) == list(range(1, 21))


async def broken_off(registry: EmbeddedRegistry, task: Task) -> Task:
    raise ConnectionError("broken off by the test")
