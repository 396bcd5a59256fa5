"""`submit` as a command: what it prints, where, and with which exit code."""

from __future__ import annotations

from dataclasses import fields

import pytest

import pushlane.cli.submit
from pushlane.cli.task_options import TaskFlags
from pushlane.lanes.errors import Unreachable
from pushlane.producers.request import SubmitProgress, SubmitStage
from pushlane.producers.task_options import written_options
from tests.command import Command

ROWS = "recipient,name\na,Ann\nb,Bo\n"
SINKS = '[sinks.fcm]\nkind = "null"\n[sinks.sms]\nkind = "null"\n'


def test_it_prints_the_task_id_and_nothing_else_on_stdout(command: Command) -> None:
    ran = command("submit", command.file("a.csv", ROWS), "--level", "high")

    [listed] = command("tasks", "--json").json
    assert ran.stdout == f"{listed['id']}\n"
    assert "2 pushes" in ran.stderr


def test_as_json_it_prints_the_whole_result(command: Command) -> None:
    ran = command("submit", command.file("a.csv", ROWS), "--level", "low", "--json")

    assert ran.json["task_id"] == ran.json["task"]["id"]
    assert (ran.json["published"], ran.json["rejected"]) == (2, 0)
    assert "fingerprint" not in ran.json["task"]


def test_it_reads_standard_input(command: Command) -> None:
    ran = command("submit", "-", "--format", "csv", "--level", "high", "--json", given=ROWS)

    assert ran.json["published"] == 2


def test_the_same_key_makes_one_task(command: Command) -> None:
    arguments = ("submit", command.file("a.csv", ROWS), "--level", "high", "--key", "k")

    first, second = command(*arguments), command(*arguments)

    assert (second.exit_code, second.stdout) == (0, first.stdout)
    assert "complete already" in second.stderr


def test_the_same_key_with_other_rows_is_refused(command: Command) -> None:
    command("submit", command.file("a.csv", ROWS), "--level", "high", "--key", "k")

    ran = command(
        "submit", command.file("b.csv", "recipient\nc\n"), "--level", "high", "--key", "k"
    )

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "key 'k'" in ran.stderr


def test_skipped_rows_are_counted_and_their_list_named(command: Command) -> None:
    path = command.file("a.jsonl", '{"recipient": "a"}\nno row\n')
    rejects = command.folder / "bad.jsonl"

    ran = command("submit", path, "--level", "high", "--bad-rows", "skip", "--rejects", rejects)

    assert ran.exit_code == 0
    assert "1 bad row left out" in ran.stderr
    assert rejects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.csv", "--level", "high"], "missing.csv does not exist"),
        (["{rows}", "--level", "hihg"], "did you mean 'high'?"),
        (["{rows}", "--level", "high", "--recipient", "mail"], "recipient, name"),
        (["{rows}", "--level", "high", "--title", "Hi {nam}"], "no column 'nam'"),
        (["{rows}", "--level", "high", "--quota", "0"], "quota 0"),
        (["{rows}", "--level", "high", "--expires", "2001-01-01"], "has passed"),
        (["{rows}", "--level", "high", "--expires", "soon"], "'soon' is neither"),
        (["{rows}", "--level", "high", "--delay", "1h", "--not-before", "09:00"], "give one"),
        (["{rows}", "--level", "high", "--delay", "soon"], "'soon' is not a duration"),
        (["{rows}", "--level", "high", "--not-before", "25:00"], "'25:00' is neither"),
        (["{rows}", "--level", "high", "--not-before", "2001-01-01"], "has passed"),
        (["{rows}", "--level", "high", "--delay", "2h", "--expires", "1h"], "3600 s before it sta"),
        (["{rows}", "--level", "high", "--quiet", "22-8"], "try 22:00-08:00"),
        (["{rows}", "--level", "high", "--quiet", "1:00-2:00", "--zone", "Mars"], "unknown time z"),
        (["-", "--level", "high"], "--format"),
        (["{rows}", "--level", "high", "--dedupe", "name"], "unknown dedupe 'name'; use recipient"),
    ],
)
def test_what_cannot_be_used_is_one_error_line(
    command: Command, arguments: list[str], words: str
) -> None:
    rows = str(command.file("a.csv", ROWS))

    ran = command("submit", *(word.replace("{rows}", rows) for word in arguments))

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1
    assert words in ran.stderr


def test_no_level_is_wrong_usage(command: Command) -> None:
    assert command("submit", command.file("a.csv", ROWS)).exit_code == 2


async def _interrupted(backend, settings, request, bar):
    bar(SubmitProgress(SubmitStage.PUBLISHING, rows=1, total=2, task_id="t1"))
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--key", "k"], "--key k, goes on"), ([], "pushlane cancel t1")],
)
def test_an_interrupted_submit_says_how_to_go_on(
    command: Command, monkeypatch: pytest.MonkeyPatch, more: list[str], words: str
) -> None:
    monkeypatch.setattr(pushlane.cli.submit, "submit_rows", _interrupted)

    ran = command("submit", command.file("a.csv", ROWS), "--level", "high", *more)

    assert ran.exit_code == 130
    assert words in ran.stderr


async def _unreachable(backend, settings, request, bar):
    raise Unreachable("the broker does not answer; run `pushlane up`")


def test_a_service_that_does_not_answer_is_exit_code_3(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushlane.cli.submit, "submit_rows", _unreachable)

    ran = command("submit", command.file("a.csv", ROWS), "--level", "high")

    assert ran.exit_code == 3
    assert ran.stderr == "error: the broker does not answer; run `pushlane up`\n"


async def _defect(backend, settings, request, bar):
    raise ZeroDivisionError("with a recipient in it: ann@example.com")


def test_an_unexpected_error_asks_for_a_report_and_shows_no_content(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushlane.cli.submit, "submit_rows", _defect)

    ran = command("submit", command.file("a.csv", ROWS), "--level", "high")

    assert ran.exit_code == 1
    assert "ZeroDivisionError" in ran.stderr
    assert "--debug" in ran.stderr
    assert "ann@example.com" not in ran.stderr


def test_debug_shows_where_an_error_came_from(command: Command) -> None:
    ran = command("submit", "missing.csv", "--level", "high", "--debug")

    assert ran.exit_code == 1
    assert "Traceback" in ran.stderr


def test_a_task_keeps_its_delivery_mode_and_shows_it(command: Command) -> None:
    task = command.submit("high", 3, "--delivery", "once", "--on-unknown", "bury")

    shown = command("task", "show", task, "--json").json
    assert (shown["delivery"], shown["on_unknown"]) == ("once", "bury")
    assert "once (on unknown: bury)" in command("task", "show", task).stdout


def test_a_task_is_delivered_at_least_once_unless_told_otherwise(command: Command) -> None:
    task = command.submit("high")

    assert command("task", "show", task, "--json").json["delivery"] == "at_least_once"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delivery", "twice"], "use at_least_once, at_most_once, once"),
        (["--delivery", "once", "--on-unknown", "drop"], "use resend, bury"),
        (["--on-unknown", "bury"], "cannot be given with delivery at_least_once"),
        (["--delivery", "at_most_once", "--on-unknown", "resend"], "delivery at_most_once"),
    ],
)
def test_a_promise_that_cannot_be_meant_is_refused(
    command: Command, options: list[str], said: str
) -> None:
    ran = command("submit", command.file("a.csv", ROWS), "--level", "high", *options)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert said in ran.stderr


def test_every_option_of_a_task_has_a_flag() -> None:
    assert [field.name for field in fields(TaskFlags)] == list(written_options())


def test_sinks_and_addresses_are_named_by_flags(command: Command) -> None:
    command.file("pushlane.toml", SINKS)
    rows = command.file("a.csv", "recipient,token,phone\na,t,1\n")
    places = ("--sink", "fcm,sms", "--address", "fcm=token", "--address", "sms=phone")

    ran = command("submit", rows, "--level", "high", "--json", *places)

    assert ran.json["task"]["sinks"] == ["fcm", "sms"]
    assert command("submit", rows, "--level", "high", "--sink", "fcm,fcm").exit_code == 1


def test_a_dry_run_shows_what_would_go_without_what_rows_hold(command: Command) -> None:
    rows = command.file("a.csv", "recipient,name,code\nann@example.com,Ann,778\n")
    templates = ("--title", "Hi {name}", "--data", "code", "--dry-run")

    ran = command("submit", rows, "--level", "high", *templates)

    assert ran.exit_code == 0
    assert "1 push, 0 bad rows left out" in ran.stdout
    assert "push 1 to an…om at sink default\n  title: Hi {name}\n  data: code\n" in ran.stdout
    assert "no_dispatcher: no dispatcher runs" in ran.stdout
    assert not any(word in ran.stdout + ran.stderr for word in ("ann@example.com", "Ann", "778"))
    assert command("tasks", "--json").json == []


def test_a_dry_run_reveals_what_is_asked_for_and_masks_the_recipient(command: Command) -> None:
    rows = command.file("a.csv", "recipient,name,code\nann@example.com,Ann,778\n")
    templates = ("--title", "Hi {name}", "--data", "code", "--dry-run", "--reveal", "--json")

    [sample] = command("submit", rows, "--level", "high", *templates).json["samples"]

    assert sample == {
        "seq": 1,
        "sink": "default",
        "recipient": "an…om",
        "title": "Hi Ann",
        "data": {"code": "778"},
    }


def test_a_dry_run_shows_a_payload_as_a_template_or_as_it_would_go(command: Command) -> None:
    payload = command.file("payload.json", '{"*": {"text": "Hi {name}"}}')
    arguments = ("submit", command.file("a.csv", ROWS), "--level", "high", "--payload", payload)

    shown = command(*arguments, "--dry-run")
    revealed = command(*arguments, "--dry-run", "--reveal")

    assert '  payload: {"*":{"text":"Hi {name}"}}\n' in shown.stdout
    assert "Ann" not in shown.stdout
    assert '{"text":"Hi Ann"}' in revealed.stdout


def test_a_dry_run_as_json_has_counts_sizes_and_the_prediction(command: Command) -> None:
    shown = command(
        "submit", command.file("a.csv", ROWS), "--level", "high", "--dry-run", "--json"
    ).json

    assert (shown["rows"], shown["rejected"], shown["pushes_by_sink"]) == (2, 0, {"default": 2})
    assert shown["bytes"]["total"] == shown["bytes"]["least"] + shown["bytes"]["most"]
    assert shown["sinks"][0]["causes"][0]["cause"] == "no_dispatcher"
    assert shown["ends_in_s"] is None


def test_a_dry_run_says_whose_key_it_is(command: Command) -> None:
    rows = command.file("a.csv", ROWS)
    task = command("submit", rows, "--level", "high", "--key", "k").stdout.strip()

    ran = command("submit", rows, "--level", "high", "--key", "k", "--dry-run")

    assert f"the key is that of task {task} already: a submit would do nothing" in ran.stderr


def test_a_sink_that_nobody_knows_is_refused_with_the_nearest(command: Command) -> None:
    command.file("pushlane.toml", SINKS)
    rows = command.file("a.csv", ROWS)

    for more in ((), ("--dry-run",)):
        ran = command("submit", rows, "--level", "high", "--sink", "smss", *more)

        assert (ran.exit_code, ran.stdout) == (1, "")
        assert "did you mean 'sms'?; known are: fcm, sms" in ran.stderr


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--sink", "fcm,default")])
def test_a_task_without_a_sink_is_refused_where_the_settings_name_others(
    command: Command, more: tuple[str, ...]
) -> None:
    command.file("pushlane.toml", SINKS)

    ran = command("submit", command.file("a.csv", ROWS), "--level", "high", *more)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "name a sink with --sink (fcm, sms), or set `sink`" in ran.stderr


def test_a_task_without_a_sink_goes_to_that_of_the_setting_sink(command: Command) -> None:
    command.file("pushlane.toml", f'sink = "log:out.jsonl"\n{SINKS}')

    assert command.submit("high")


@pytest.mark.parametrize("given", ["", " ", ","])
def test_a_sink_without_a_name_is_refused(command: Command, given: str) -> None:
    ran = command("submit", command.file("a.csv", ROWS), "--level", "high", "--sink", given)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "sink '' is no name of one" in ran.stderr


def test_to_reveal_samples_without_a_dry_run_is_wrong_usage(command: Command) -> None:
    ran = command("submit", command.file("a.csv", ROWS), "--level", "high", "--reveal")

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "add --dry-run" in ran.stderr
    assert command("tasks", "--json").json == []


def test_a_payload_is_a_file(command: Command) -> None:
    payload = command.file("payload.json", '{"*": {"text": "Hi {name}"}}')
    rows = command.file("a.csv", ROWS)

    ran = command("submit", rows, "--level", "high", "--payload", payload, "--json")
    bad = command("submit", rows, "--level", "high", "--payload", command.file("x.json", "{"))

    assert ran.json["published"] == 2
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert "x.json is no JSON: line 1, column 2" in bad.stderr
