"""What `why` says of tasks that wait, with real dispatchers; and how well a dry run foresees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.processes import Pushlane, until

SINKS = """
[sinks.plain]
kind = "null"
[sinks.sms]
kind = "null"
[sinks.down]
kind = "webhook"
url = "http://127.0.0.1:9/push"
[sinks.hangs]
kind = "processor"
function = "mine:hangs"
[sinks.steady]
kind = "processor"
function = "mine:steady"
slots = 4
"""
PROCESSORS = """
import asyncio


async def hangs(push):
    await asyncio.Event().wait()


async def steady(push):
    await asyncio.sleep(0.02)
"""


@pytest.fixture
def named(pushlane: Pushlane) -> Pushlane:
    """Commands with five named sinks."""
    (pushlane.folder / "pushlane.toml").write_text(SINKS)
    (pushlane.folder / "mine.py").write_text(PROCESSORS)
    return pushlane


def serve(named: Pushlane, sink: str) -> None:
    """Start a dispatcher of this sink, and wait until it says that it is there."""
    named.dispatch("--serve", sink)
    until(lambda: any(sink in process["serves"] for process in named.json("processes")))


def stand(named: Pushlane, sink: str) -> dict[str, Any]:
    """What a process says of the sink now."""
    served = (one for process in named.json("processes") for one in process["served"])
    return next(one for one in served if one["name"] == sink)


def rests(named: Pushlane, sink: str) -> bool:
    """Tell whether the sink is found down: before that a few pushes a second still go."""
    resting = stand(named, sink).get("resting")
    return resting is not None and "(throttled)" not in resting["what"]


def causes(named: Pushlane, task: str) -> dict[str, str]:
    return {one["cause"]: one["detail"] for one in named.json("why", task)["causes"]}


def test_a_sink_that_nobody_serves(named: Pushlane) -> None:
    serve(named, "plain")
    task = named.submit("high", 10, "--sink", "sms")

    [cause] = named.json("why", task)["causes"]

    assert (cause["cause"], cause["do"]) == ("sink_unserved", "pushlane dispatch --serve sms")
    assert "which nobody serves" in named.ran("tasks").stderr


def test_a_sink_that_rests(named: Pushlane) -> None:
    serve(named, "down")
    task = named.submit("high", 10, "--sink", "down")
    until(lambda: rests(named, "down"))

    found = causes(named, task)

    assert list(found) == ["sink_rests"]
    assert "it takes no pushes now" in found["sink_rests"]


def test_a_paused_task(named: Pushlane) -> None:
    serve(named, "hangs")
    task = named.submit("high", 10, "--sink", "hangs")
    named("pause", task, "--reason", "lunch")

    assert causes(named, task) == {"paused": "it is paused: lunch"}


def test_quiet_hours(named: Pushlane) -> None:
    serve(named, "plain")
    now = datetime.now(UTC)
    hours = f"{now - timedelta(hours=2):%H:%M}-{now + timedelta(hours=2):%H:%M}"
    task = named.submit("high", 10, "--sink", "plain", "--quiet", hours)

    found = causes(named, task)

    assert next(iter(found)) == "quiet_hours"
    assert f"end {now + timedelta(hours=2):%Y-%m-%d %H:%M}:00 UTC" in found["quiet_hours"]


def test_no_end_is_foretold_before_recipients_in_their_quiet_hours_get_theirs(
    named: Pushlane,
) -> None:
    """One in three is in quiet hours, by a column of zones; the others go at once."""
    serve(named, "plain")
    now = datetime.now(UTC)
    ends = now + timedelta(hours=2)
    hours = f"{now - timedelta(hours=2):%H:%M}-{ends:%H:%M}"
    path = named.folder / "zones.csv"
    rows = [f"user-{n},{'Etc/UTC' if n % 3 == 0 else 'Etc/GMT+8'}" for n in range(300)]
    path.write_text("\n".join(["recipient,tz", *rows, ""]))
    quiet = ("--sink", "plain", "--quiet", hours, "--zone-column", "tz")
    submit = ("submit", path, "--level", "high", "--title", "Hi", *quiet)

    tried = named.json(*submit, "--dry-run")
    task = named(*submit)
    until(lambda: named.json("why", task)["later"] == 100)
    until(lambda: named.task(task)["delivered"] == 200)

    found = named.json("why", task)
    assert [one["pushes"] for one in tried["sinks"][0]["waits"]] == [100]
    assert [one["cause"] for one in found["causes"]] == ["later_quiet_hours"]
    [waits] = found["waits"]
    assert (waits["reason"], waits["pushes"]) == ("quiet_hours", 100)
    due_ms = ends.replace(second=0, microsecond=0).timestamp() * 1000
    assert waits["first_due_ms"] == waits["last_due_ms"] == pytest.approx(due_ms, abs=1)
    assert "eta_s" not in found or found["eta_s"] > 7_000
    shown = named.task(task)
    assert (shown["state"], shown["shown_state"]) == ("running", "resting")
    [sink] = [one for one in named.json("why")["sinks"] if one["name"] == "plain"]
    assert (sink["left"], sink["later"]) == (100, 100)


def test_a_limit(named: Pushlane) -> None:
    named("limit", "app/slow", "--rate", "5/s")
    serve(named, "plain")
    task = named.submit("high", 1_000, "--sink", "plain", "--app", "slow")
    until(lambda: named.task(task)["delivered"] > 0)

    shown = named.json("why", task)

    assert shown["causes"][0]["cause"] == "limit"
    assert shown["causes"][0]["detail"] == "the limit of app/slow is 5 pushes/s"
    assert 2 < shown["observed_per_s"] < 9
    assert 100 < shown["eta_s"] < 500


def test_a_total_that_is_spent(named: Pushlane) -> None:
    named("limit", "app/slow", "--a-day", "5")
    serve(named, "plain")
    task = named.submit("high", 100, "--sink", "plain", "--app", "slow")
    until(lambda: named.task(task)["delivered"] == 5)

    found = causes(named, task)

    assert found == {
        "limit_spent": "the limit of app/slow is spent: 5 pushes a day, until 00:00 UTC"
    }


def test_older_tasks_of_its_pool_lane(named: Pushlane) -> None:
    serve(named, "hangs")
    named.submit("low", 700, "--sink", "hangs")
    task = named.submit("low", 10, "--sink", "hangs")

    found = causes(named, task)

    assert "1 older task with 700 pushes are ahead" in found["pool_lane"]


def test_a_dry_run_tells_when_tasks_that_compete_will_be_through(named: Pushlane) -> None:
    """Two tasks at a sink of about 200 pushes a second, and one that comes to them."""
    serve(named, "steady")
    named.submit("high", 400, "--sink", "steady")
    until(lambda: stand(named, "steady")["delivery_s"] > 0)
    for level in ("high", "medium"):
        named.submit(level, 1_500, "--sink", "steady")
    until(lambda: stand(named, "steady")["in_flight"] == 4)
    again = ("submit", named.rows(600), "--level", "medium", "--title", "Hi", "--sink", "steady")

    predicted = named.json(*again, "--dry-run")
    task = named(*again)
    until(lambda: named.task(task)["state"] == "done")

    shown = named.task(task)
    took_s = (shown["finished_at_ms"] - shown["created_at_ms"]) / 1000
    assert predicted["sinks"][0]["entitled_share"] == pytest.approx(1 / 6, abs=0.001)
    assert took_s / 1.5 < predicted["ends_in_s"] < took_s * 1.5
