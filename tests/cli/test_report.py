"""`pushlane report`: tables, CSV, JSON, pages and pictures of a store of receipts."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from pushlane.core.task import now_ms
from tests.receipt_stores import make_store, store_of

HOSTILE = "<script>alert('x')</script> & $\\frac{"


@pytest.fixture
def reports(command):
    """A folder for the store of this command."""
    return command.folder / "data" / "reports"


@pytest.fixture
def store(reports):
    """Receipts of the last hour."""
    return make_store(reports, receipts=300, since_ms=now_ms() - 3_600_000, span_ms=3_500_000)


def test_without_a_store_of_reports_the_log_answers(command):
    task = command.submit("high", 5, "--name", "sale")
    command("dispatch", "--drain", "--sink", "null")

    ran = command("report", "sale")

    assert ran.exit_code == 0
    assert "delivered   5 (100.0%)" in ran.stdout
    assert "from the log of receipts: there is no store of reports" in ran.stderr
    rows = command("report", "sale", "--rows", "--json").json
    assert {(row["task_id"], row["outcome"]) for row in rows} == {(task, "delivered")}
    by_outcome = command("report", "--by", "outcome", "--csv")
    assert by_outcome.stdout.splitlines() == ["outcome,n", "delivered,5"]


def test_a_name_that_several_tasks_have_is_refused_once_with_each_of_them(command):
    ids = [command.submit("low", 1, "--name", "spring") for _ in range(2)]
    command("dispatch", "--drain", "--sink", "null")

    ran = command("report", "spring")

    assert ran.exit_code == 1
    assert ran.stderr.count("several tasks are named 'spring'") == 1
    assert all(f"{one} (low, done, submitted " in ran.stderr for one in ids)


def test_a_name_of_several_tasks_is_refused_though_only_one_has_receipts(command):
    command.submit("low", 1, "--name", "spring")
    command("dispatch", "--drain", "--sink", "null")
    command.submit("low", 1, "--name", "spring")

    ran = command("report", "spring")

    assert ran.exit_code == 1
    assert "several tasks are named 'spring'" in ran.stderr


def test_a_value_that_no_push_has_is_refused_with_the_nearest(command):
    ran = command("report", "--where", "outcome=daed")

    assert ran.exit_code == 1
    assert "there is no outcome 'daed'; use delivered, " in ran.stderr
    assert "did you mean 'dead'?" in ran.stderr


def test_pictures_need_a_store_of_reports(command):
    command.submit("high", 1, "--name", "sale")

    ran = command("report", "sale", "--html", "r.html")

    assert ran.exit_code == 1
    assert "pictures are made of a store of reports" in ran.stderr
    assert "`pushlane pipeline run`" in ran.stderr


def test_a_report_of_nothing_says_how_there_is_something(command):
    command.submit("high", 1, "--name", "sale")

    ran = command("report")

    assert ran.exit_code == 0
    assert (
        "no receipts of this kind in this period; what `pushlane dispatch` has sent" in ran.stderr
    )


def test_a_report_of_a_period_shows_the_funnel_and_a_table(command, store):
    ran = command("report")
    assert ran.exit_code == 0, ran.stderr
    for word in ("submitted", "clicked", "recipients", "TASK", "spring", "task-a"):
        assert word in ran.stdout


def test_a_report_of_a_task_counts_its_pushes_alone(command, store):
    whole = command("report", "--json").json
    parts = [command("report", task, "--json").json for task in ("task-a", "news", "digest")]
    assert sum(part["total"]["n"] for part in parts) == whole["total"]["n"]
    assert parts[1]["title"] == "Task news (task-b)"


def test_submitted_is_the_total_that_the_registry_knows(command, reports):
    task = command.submit("high", 5)
    store_of(reports, [{"task_id": task}] * 3)
    assert command("report", task, "--json").json["funnel"]["submitted"] == 5


def test_a_key_finds_its_task(command, reports):
    task = command.submit("high", 5, "--key", "spring-2030")
    store_of(reports, [{"task_id": task}] * 3)
    assert command("report", "spring-2030", "--json").json["total"]["n"] == 3


def test_an_unknown_task_is_refused_with_the_nearest(command, store):
    ran = command("report", "sprng")
    assert ran.exit_code == 1
    assert "did you mean 'spring'" in ran.stderr


def test_json_and_csv_hold_the_same_rows(command, store):
    asked = ("report", "--by", "level,hour,attribute:version", "--latency", "--recipients")
    rows = command(*asked, "--json").json["rows"]
    table = list(csv.DictReader(io.StringIO(command(*asked, "--csv").stdout)))
    assert [row["n"] for row in table] == [str(row["n"]) for row in rows]
    assert list(table[0]) == list(rows[0])
    assert rows[0]["wait_p99_ms"] > rows[0]["wait_p50_ms"] > 0
    assert 0 < rows[0]["recipients"] <= rows[0]["n"]


def test_where_selects_and_by_outcome_gives_one_number(command, store):
    rows = command("report", "--by", "outcome", "--where", "outcome=dead|retry", "--json").json
    assert {row["outcome"] for row in rows["rows"]} == {"dead", "retry"}
    assert set(rows["rows"][0]) == {"outcome", "n"}


def test_an_unknown_dimension_is_refused_with_the_nearest(command, store):
    ran = command("report", "--by", "levle")
    assert ran.exit_code == 1
    assert "did you mean 'level'" in ran.stderr


def test_rows_are_as_many_as_asked_for(command, store):
    rows = command("report", "--rows", "--where", "level=high", "--limit", "4", "--json").json
    assert len(rows) == 4
    assert {row["level"] for row in rows} == {"high"}
    assert {row["recipient"] for row in rows} == {"d***"}
    table = command("report", "--rows", "--limit", "4").stdout.splitlines()
    assert len(table) == 5


def test_it_says_where_the_wait_went_by_level_and_of_how_many_that_is_not_known(command, store):
    shown = [line.split() for line in command("report").stdout.splitlines()]
    said = command("report", "--json").json
    command("report", "--html", "r.html")
    page = (command.folder / "r.html").read_text()

    assert ["LEVEL", "WAITED", "FOR", "PUSHES", "TOTAL", "P50", "P95"] in shown
    assert {(one["level"], one["cause"]) for one in said["waits"]} == {
        (level, cause)
        for level in ("high", "medium")
        for cause in ("waited", "delay", "share", "slot")
    }
    told = sum(one["n"] for one in said["waits"] if one["cause"] == "waited")
    assert 0 < told < said["total"]["delivered"]
    missing = f"of {said['total']['delivered'] - told} of {said['total']['delivered']} delivered"
    assert missing in " ".join(" ".join(line) for line in shown)
    assert "<td>sink&#39;s capacity</td>" in page
    assert f"Where the wait {missing} pushes went is not known" in page


def test_a_row_says_where_its_wait_went_and_an_event_nothing(command, store):
    asked = ("report", "--rows", "--limit", "1000")
    high, low = (command(*asked, "--where", f"level={level}") for level in ("high", "low"))
    rows = list(csv.DictReader(io.StringIO(command(*asked, "--csv").stdout)))

    assert "s: " in high.stdout
    assert "sink's capacity" in high.stdout
    assert "not known: written by an older version" in low.stdout
    assert "not known" not in high.stdout
    told = {(row["level"], row["outcome"] == "displayed"): row["waits"] for row in rows}
    assert told["high", False].startswith("delay=10, share=")
    assert (told["high", True], told["low", False]) == ("", "")


def test_rows_that_are_left_out_are_said_on_stderr(command, store):
    ran = command("report", "--by", "minute", "--limit", "2")
    assert len(ran.stdout.splitlines()) == 3
    assert re.search(r"and \d+ more rows", ran.stderr)


def test_a_period_without_receipts_says_so(command, store):
    ran = command("report", "--since", "3h", "--until", "2h", "--by", "level")
    assert ran.exit_code == 0
    assert ran.stdout == ""
    assert "no receipts of this kind" in ran.stderr
    assert "`pushlane pipeline run`" in ran.stderr


def test_a_task_that_nobody_knows_is_said_to_be_unknown(command, store):
    command.submit("high", 1, "--key", "autumn")
    ran = command("report", "autum")
    assert ran.exit_code == 1
    assert "there is no task 'autum'; did you mean 'autumn'?" in ran.stderr


def test_a_task_without_receipts_yet_says_how_it_gets_some(command, store):
    task = command.submit("high", 1)
    ran = command("report", task)
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert f"no receipts of task {task}" in ran.stderr
    assert "`pushlane pipeline run`" in ran.stderr


def test_forms_that_exclude_each_other_are_refused(command, store):
    assert command("report", "--csv", "--json").exit_code == 1
    assert command("report", "--rows", "--png", "x.png").exit_code == 1


def test_a_page_is_one_file_that_links_nowhere(command, store):
    ran = command("report", "--html", "r.html")
    assert ran.exit_code == 0, ran.stderr
    page = (command.folder / "r.html").read_text()
    assert "http-equiv" in page
    links = re.findall(r"(?:src|href)\s*=\s*\"([^\"]*)", page)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert page.count("<svg") == page.count('role="img"') == 6
    assert "Share of the sinks by level: high sent" in page


def test_a_page_escapes_what_strangers_wrote(command, reports):
    hostile = {"task_name": HOSTILE, "outcome": "dead", "reason": HOSTILE, "app": HOSTILE}
    store_of(reports, [hostile | {"responded_at_ms": now_ms() - 60_000}])
    ran = command("report", "--by", "task,app", "--html", "r.html", "--png", "r.png")
    assert ran.exit_code == 0, ran.stderr
    page = (command.folder / "r.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_picture_is_a_png(command, store):
    assert command("report", "task-a", "--png", "r.png").exit_code == 0
    assert (command.folder / "r.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_named(command, store):
    ran = command("report", "--png", "nowhere/r.png")
    assert ran.exit_code == 1
    assert "nowhere/r.png cannot be written" in ran.stderr


def test_a_damaged_store_is_named_with_the_command_that_mends_it(command, store):
    for path in store.rglob("minutes/**/*.parquet"):
        path.write_bytes(b"damaged")
    ran = command("report")
    assert ran.exit_code == 1
    assert "minutes" in ran.stderr
    assert "pushlane pipeline replay --since" in ran.stderr


def test_a_sample_is_told_with_its_error(command, reports):
    sampled = {"sample_weight": 8.0, "attributes": [("region", "eu")]}
    store_of(reports, [sampled | {"responded_at_ms": now_ms() - 60_000}] * 50)
    ran = command("report", "--by", "attribute:region,reason", "--json")
    assert "estimated from a sample" in ran.stderr
    document = json.loads(ran.stdout)
    assert document["is_estimate"]
    assert document["rows"][0]["n"] == 400
    assert document["rows"][0]["plus_minus"] > 0
