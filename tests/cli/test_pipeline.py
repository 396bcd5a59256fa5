"""`pushlane pipeline …`: what is wrong is said before Spark starts, with an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.pipeline.store.writing import open_writer
from tests.command import Command
from tests.receipt_stores import make_store

SPARK_COMMANDS = [["run", "--until-idle"], ["compact"], ["replay", "--since", "1h"]]


@pytest.fixture
def reports(command: Command) -> Path:
    return command.folder / "data" / "reports"


def names(commands: list[list[str]]) -> list[str]:
    return [words[0] for words in commands]


def test_status_without_a_store_says_how_to_make_one(command):
    ran = command("pipeline", "status")
    assert ran.exit_code == 1
    assert "holds no receipts yet: `pushlane pipeline run`" in ran.stderr


def test_status_shows_what_the_store_holds(command, reports):
    make_store(reports, receipts=300)
    found = command("pipeline", "status", "--json")
    assert found.exit_code == 0, found.stderr
    assert found.json["counts"]["receipts"] >= 300
    assert (found.json["running"], found.json["mode"]) == (False, "full")
    assert "300 rows in 2 files" in command("pipeline", "status").stdout


def test_status_beside_a_job_says_that_one_runs(command, reports):
    make_store(reports)
    with open_writer(reports):
        assert command("pipeline", "status", "--json").json["running"]


def test_status_without_a_usable_log_exits_with_3(command, reports):
    make_store(reports)
    (command.folder / "data" / "receipts").write_text("no folder")
    ran = command("pipeline", "status")
    assert ran.exit_code == 3
    assert "the log of receipts" in ran.stderr


@pytest.mark.parametrize("words", SPARK_COMMANDS, ids=names(SPARK_COMMANDS))
def test_a_store_that_another_process_writes_is_refused(command, reports, words):
    make_store(reports)
    with open_writer(reports):
        ran = command("pipeline", *words)
    assert ran.exit_code == 1
    assert f"writes the store in {reports}: wait for it, or stop it" in ran.stderr


@pytest.mark.parametrize("words", [["run"], ["compact"], ["status"]], ids=lambda words: words[0])
def test_a_damaged_manifest_is_named_with_what_mends_it(command, reports, words):
    make_store(reports)
    last = sorted((reports / "gen-000001" / "manifests").iterdir())[-1]
    last.write_bytes(b"{")
    ran = command("pipeline", *words)
    assert ran.exit_code == 1
    assert f"{last}: this manifest cannot be read" in ran.stderr
    assert "`pushlane pipeline replay --since TIME`" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--every", "soon"], "'soon' is not a duration like 90s"),
        (["replay", "--since", "never"], "'never'"),
    ],
)
def test_a_time_that_cannot_be_read_is_named(command, words, said):
    ran = command("pipeline", *words)
    assert ran.exit_code == 1
    assert said in ran.stderr


@pytest.mark.parametrize("words", [["run", "--max-bodies", "0"], ["replay"], ["run", "--slow"]])
def test_wrong_usage_exits_with_2(command, words):
    assert command("pipeline", *words).exit_code == 2
