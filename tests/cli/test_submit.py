"""`submit` as a command: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

import pushlane.cli.submit
from pushlane.cli.submit import TaskFlags
from pushlane.core.errors import Unreachable
from pushlane.producers.request import SubmitProgress, SubmitStage
from pushlane.producers.task_options import written_options
from tests.command import Command

ROWS = "recipient,name\na,Ann\nb,Bo\n"
HI = ("--level", "high", "--title", "Hi")
SINKS = '[sinks.fcm]\nkind = "null"\n[sinks.sms]\nkind = "null"\n'


def test_it_prints_the_task_id_and_nothing_else_on_stdout(command: Command) -> None:
    ran = command("submit", command.file("a.csv", ROWS), *HI)

    [listed] = command("tasks", "--json").json
    assert ran.stdout == f"{listed['id']}\n"
    assert "2 pushes" in ran.stderr


def test_as_json_it_prints_the_whole_result(command: Command) -> None:
    ran = command("submit", command.file("a.csv", ROWS), "--level", "low", "--body", "Hi", "--json")

    assert ran.json["task_id"] == ran.json["task"]["id"]
    assert (ran.json["published"], ran.json["rejected"]) == (2, 0)
    assert not {"fingerprint", "made_of"} & ran.json["task"].keys()


def test_it_reads_standard_input(command: Command) -> None:
    ran = command("submit", "-", "--format", "csv", *HI, "--json", given=ROWS)

    assert ran.json["published"] == 2


def test_a_file_as_excel_writes_it_needs_what_its_errors_name(command: Command) -> None:
    path = command.folder / "kunden.csv"
    path.write_bytes("E-Mail;Straße\na@x;Süd\nb@x;Ost\n".encode("cp1252"))
    submit = ("submit", path, "--level", "high", "--title", "Hi {Straße}")

    plain = command(*submit)
    encoded = command(*submit, "--encoding", "cp1252")
    parted = command(*submit, "--encoding", "cp1252", "--delimiter", ";")
    whole = command(
        *submit, "--encoding", "cp1252", "--delimiter", "semicolon", "--recipient", "E-Mail"
    )

    assert "the name of column 1 is not UTF-8; say its encoding: --encoding cp1252" in plain.stderr
    assert encoded.stderr.endswith("separated by ';': add --delimiter ';'\n")
    assert parted.stderr.endswith("its columns are: E-Mail, Straße; add --recipient E-Mail\n")
    assert [ran.exit_code for ran in (plain, encoded, parted, whole)] == [1, 1, 1, 0]
    assert "2 pushes on the lane" in whole.stderr


def test_what_is_wrong_with_a_text_is_one_error_line_and_nothing_is_published(
    command: Command,
) -> None:
    rows = command.folder / "rows.csv"
    rows.write_bytes("recipient,name\na,ok\nb,Jürgen\n".encode("latin-1"))
    for more, words in (
        ([], "rows.csv:3 holds text in 'name' that is not UTF-8; say its encoding: --encoding cp"),
        (["--encoding", "ascii"], "rows.csv:3 holds text in 'name' that is not ascii; give anoth"),
        (["--encoding", "utf-61"], "unknown encoding 'utf-61'; use utf-8, cp1252, latin-1, utf-1"),
        (
            ["--delimiter", "tabb"],
            "delimiter 'tabb' is not a character; use one, or comma, semicolo",
        ),
    ):
        ran = command("submit", rows, "--level", "high", "--title", "{name}", *more)

        assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
        assert words in ran.stderr
        assert "rgen" not in ran.stderr
    assert command("tasks", "--all", "--json").json == []


def test_the_same_key_makes_one_task(command: Command) -> None:
    arguments = ("submit", command.file("a.csv", ROWS), *HI, "--key", "k")

    first, second = command(*arguments), command(*arguments)

    assert (second.exit_code, second.stdout) == (0, first.stdout)
    task = first.stdout.strip()
    assert f"already submitted as task {task} (running, 0 % of 2 pushes ended)" in second.stderr


def test_the_same_key_with_other_rows_is_refused(command: Command) -> None:
    command("submit", command.file("a.csv", ROWS), *HI, "--key", "k")

    ran = command("submit", command.file("b.csv", "recipient\nc\n"), *HI, "--key", "k")

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "key 'k'" in ran.stderr


def test_skipped_rows_are_counted_and_their_list_named(command: Command) -> None:
    path = command.file("a.jsonl", '{"recipient": "a"}\nno row\n')
    rejects = command.folder / "bad.jsonl"

    ran = command("submit", path, *HI, "--bad-rows", "skip", "--rejects", rejects)

    assert ran.exit_code == 0
    assert "1 bad row left out" in ran.stderr
    assert rejects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.csv", *HI], "missing.csv does not exist"),
        (["{rows}", "--level", "hihg"], "did you mean 'high'?"),
        (["{rows}", *HI, "--recipient", "mail"], "recipient, name"),
        (["{rows}", *HI, "--title", "Hi {nam}"], "no column 'nam'"),
        (["{rows}", *HI, "--quota", "0"], "quota 0"),
        (["{rows}", *HI, "--expires", "2001-01-01"], "has passed"),
        (["{rows}", *HI, "--expires", "soon"], "'soon' is neither"),
        (["{rows}", *HI, "--delay", "1h", "--not-before", "09:00"], "give one"),
        (["{rows}", *HI, "--delay", "soon"], "'soon' is not a duration"),
        (["{rows}", *HI, "--not-before", "25:00"], "'25:00' is neither"),
        (["{rows}", *HI, "--not-before", "2001-01-01"], "has passed"),
        (["{rows}", *HI, "--delay", "2h", "--expires", "1h"], "3600 s before it sta"),
        (["{rows}", *HI, "--quiet", "22-8"], "try 22:00-08:00"),
        (["{rows}", *HI, "--quiet", "1:00-2:00", "--zone", "Mars"], "unknown time z"),
        (["-", *HI], "--format"),
        (["{rows}", *HI, "--dedupe", "name"], "unknown dedupe 'name'; use recipient"),
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


async def _interrupted(client, request, bar):
    bar(SubmitProgress(SubmitStage.PUBLISHING, rows=1, total=2, task_id="t1"))
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--key", "k"], "--key k, goes on"), ([], "pushlane cancel t1")],
)
def test_an_interrupted_submit_says_how_to_go_on(
    command: Command, monkeypatch: pytest.MonkeyPatch, more: list[str], words: str
) -> None:
    monkeypatch.setattr(pushlane.cli.submit, "submitted", _interrupted)

    ran = command("submit", command.file("a.csv", ROWS), "--level", "high", *more)

    assert ran.exit_code == 130
    assert words in ran.stderr


async def _unreachable(client, request, bar):
    raise Unreachable("the broker does not answer; run `pushlane up`")


def test_a_service_that_does_not_answer_is_exit_code_3(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushlane.cli.submit, "submitted", _unreachable)

    ran = command("submit", command.file("a.csv", ROWS), "--level", "high")

    assert ran.exit_code == 3
    assert ran.stderr == "error: the broker does not answer; run `pushlane up`\n"


async def _defect(client, request, bar):
    raise ZeroDivisionError("with a recipient in it: ann@example.com")


def test_an_unexpected_error_asks_for_a_report_and_shows_no_content(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushlane.cli.submit, "submitted", _defect)

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

    ran = command("submit", rows, *HI, "--json", *places)

    assert ran.json["task"]["sinks"] == ["fcm", "sms"]
    assert command("submit", rows, *HI, "--sink", "fcm,fcm").exit_code == 1


def test_a_dry_run_shows_rows_as_they_would_go_with_masked_recipients(command: Command) -> None:
    rows = command.file("a.csv", "recipient,name,code\nann@example.com,Ann,778\n")
    templates = ("--title", "Hi {name}", "--data", "code", "--dry-run")

    ran = command("submit", rows, "--level", "high", *templates)

    assert ran.exit_code == 0
    assert "1 push, 0 bad rows left out" in ran.stdout
    assert (
        'push 1 to an…om at sink default\n  title: Hi Ann\n  data: {"code":"778"}\n' in ran.stdout
    )
    assert "ETA unknown: nothing is delivering yet\n  no dispatcher runs; it goes" in ran.stdout
    assert "ann@example.com" not in ran.stdout + ran.stderr
    assert command("tasks", "--json").json == []


def test_a_dry_run_reveals_the_recipient_if_asked(command: Command) -> None:
    rows = command.file("a.csv", "recipient,name,code\nann@example.com,Ann,778\n")
    templates = ("--title", "Hi {name}", "--data", "code", "--dry-run", "--reveal", "--json")

    [sample] = command("submit", rows, "--level", "high", *templates).json["samples"]

    assert sample == {
        "seq": 1,
        "sink": "default",
        "recipient": "ann@example.com",
        "title": "Hi Ann",
        "data": {"code": "778"},
    }


def test_a_dry_run_masks_recipients_and_addresses_wherever_they_stand(command: Command) -> None:
    rows = command.file("a.csv", "recipient,token,name\n4917001,tok-secret-1,Tom4917001\n")
    payload = command.file("p.json", '{"*": {"to": ["{recipient}", "{token}"], "text": "{name}"}}')
    texts = ("--title", "{token}!", "--body", "To {recipient}.", "--data", "recipient")
    places = ("--payload", payload, "--address", "token", "--dry-run", "--json")

    [sample] = command("submit", rows, "--level", "high", *texts, *places).json["samples"]

    assert (sample["recipient"], sample["title"], sample["body"]) == ("4…1", "to…-1!", "To 4…1.")
    assert sample["data"] == {"recipient": "4…1"}
    assert sample["payload"] == {"*": {"to": ["4…1", "to…-1"], "text": "Tom4917001"}}


def test_a_dry_run_as_json_has_counts_sizes_and_the_prediction(command: Command) -> None:
    shown = command("submit", command.file("a.csv", ROWS), *HI, "--dry-run", "--json").json

    assert (shown["rows"], shown["rejected"], shown["pushes_by_sink"]) == (2, 0, {"default": 2})
    assert shown["bytes"]["total"] == shown["bytes"]["least"] + shown["bytes"]["most"]
    assert shown["sinks"][0]["causes"][0]["cause"] == "no_dispatcher"
    assert shown["ends_in_s"] is None


def test_a_dry_run_says_whose_key_it_is(command: Command) -> None:
    rows = command.file("a.csv", ROWS)
    task = command("submit", rows, *HI, "--key", "k").stdout.strip()

    ran = command("submit", rows, *HI, "--key", "k", "--dry-run")

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
    assert "sink '' is not a name" in ran.stderr


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
    assert "x.json is not JSON: line 1, column 2" in bad.stderr


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_pushes_without_texts_are_refused_unless_they_are_silent(
    command: Command, more: tuple[str, ...]
) -> None:
    rows = command.file("a.csv", ROWS)

    ran = command("submit", rows, "--level", "low", *more)
    silent = command("submit", rows, "--level", "low", "--silent", *more)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "no title, body, data or payload; give --title or --body, or --silent" in ran.stderr
    assert silent.exit_code == 0


def test_a_column_in_doubled_braces_is_refused_unless_its_name_is_meant(command: Command) -> None:
    arguments = ("submit", command.file("a.csv", ROWS), "--level", "low", "--title", "Hi {{name}}")

    ran = command(*arguments)
    meant = command(*arguments, "--literal-braces", "--dry-run", "--json")

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "`{{name}}` would be sent as the text {name}; for the column write {name}" in ran.stderr
    assert meant.json["samples"][0]["title"] == "Hi {name}"


@pytest.mark.parametrize("key", ["", "  "])
def test_a_key_that_is_blank_is_refused(command: Command, key: str) -> None:
    ran = command("submit", command.file("a.csv", ROWS), *HI, "--key", key)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"--key {key!r} is blank: is the variable that it comes from set?" in ran.stderr


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_the_key_of_a_cancelled_task_fails_and_names_another(
    command: Command, more: tuple[str, ...]
) -> None:
    arguments = ("submit", command.file("a.csv", ROWS), *HI, "--key", "k")
    task = command(*arguments).stdout.strip()
    command("cancel", task, "--yes")

    ran = command(*arguments, *more)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"task {task}, which was cancelled: 0 of its 2 pushes were delivered" in ran.stderr
    assert "use another key, such as k-2" in ran.stderr
    assert "under another key, such as k-2" in command("resume", task).stderr


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Email,name", "; add --recipient Email"),
        ("Device Token,name", "; add --recipient 'Device Token'"),
        ("name,recipients", "; add --recipient recipients"),
        ("colour,size", "its columns are: colour, size\n"),
    ],
)
def test_a_missing_recipient_is_told_with_the_option_that_takes_the_likeliest_column(
    command: Command, header: str, said: str
) -> None:
    first = json.dumps(dict.fromkeys(header.split(","), "a"))

    ran = command("submit", command.file("a.csv", f"{header}\na,b\n"), *HI)
    of_json = command("submit", command.file("a.jsonl", first), *HI)

    assert said in ran.stderr
    assert (said.strip() in of_json.stderr) == said.startswith(";")


def test_a_dry_run_tells_of_recipients_that_occur_twice(command: Command) -> None:
    rows = command.file("a.csv", "recipient\na\nb\na\nc\n")
    once = "1 recipient occurs more than once; with --dedupe recipient 3 of 4 pushes"

    plain = command("submit", rows, *HI, "--dry-run")
    deduped = command("submit", rows, *HI, "--dry-run", "--dedupe", "recipient")
    shown = command("submit", rows, *HI, "--dry-run", "--json").json

    assert f"{once} would go\n" in plain.stdout
    assert f"{once} go\n" in deduped.stdout
    assert (shown["recipients"], shown["repeated_recipients"], shown["empty"]) == (3, 1, 0)


KEYED = (*HI, "--key", "k")


def test_one_that_is_paused_says_how_to_go_on(command: Command) -> None:
    ran = command("submit", command.file("a.csv", ROWS), *HI, "--paused")

    task = ran.stdout.strip()
    assert ran.stderr.endswith(f"it is paused; go on with: pushlane resume {task}\n")
    [listed] = command("tasks", "--json").json
    assert (listed["state"], listed["reason"]) == ("paused", "submitted paused")
    assert "it is paused: submitted paused" in command("why", task).stdout
    drained = command("dispatch", "--drain", "--sink", "print")
    assert (drained.exit_code, drained.stdout) == (0, "")


def test_one_that_was_started_before_is_not_paused_by_a_repeat(command: Command) -> None:
    path = command.file("a.csv", ROWS)
    command("submit", path, *KEYED, "--first", "1")

    ran = command("submit", path, *KEYED, "--paused")

    task = ran.stdout.strip()
    assert ran.stderr.splitlines()[-1] == (
        f"it is not paused, since it was started before; to hold it: pushlane pause {task}"
    )


def test_the_first_rows_are_told_with_how_to_go_on(command: Command) -> None:
    path = command.file("a.csv", ROWS)
    go_on = (
        "go on with the same command without --first; the task waits for that, and ends by itself "
        "if nobody does for 7d"
    )

    first = command("submit", path, *KEYED, "--first", "1")
    again = command("submit", path, *KEYED, "--first", "1")
    more = command("submit", path, *KEYED, "--first", "2", "--json")
    rest = command("submit", path, *KEYED)

    assert first.stderr.splitlines() == [
        "the first 1 of 2 pushes on the lane, level high",
        go_on,
    ]
    assert again.stderr.splitlines() == [
        "its first row was submitted before: nothing submitted now",
        go_on,
    ]
    assert (more.json["part"], more.json["published"], more.json["accepted"]) == (2, 1, 2)
    assert rest.stderr.splitlines() == ["went on with an earlier submit: 0 of 2 sent now"]
    assert first.stdout == again.stdout == rest.stdout


def test_limits_are_those_of_the_task_and_one_that_was_there_stays(command: Command) -> None:
    path = command.file("a.csv", ROWS)
    limits = ("--rate", "30/min", "--in-flight", "2")
    task = command("submit", path, *KEYED, *limits, "--first", "1").stdout.strip()

    [limited] = command("limits", "--json").json
    assert (limited["subject"], limited["limit"]) == (
        f"task/{task}",
        {"rate_per_s": 0.5, "in_flight": 2},
    )
    command("limit", f"task/{task}", "--rate", "1/s")
    ran = command("submit", path, *KEYED, *limits)

    assert ran.stderr.splitlines()[-1] == (
        "its limits stay as they were (rate 1/s, in flight 2); to change them: "
        f"pushlane limit task/{task}"
    )


def test_a_test_says_to_whom_it_went_with_a_mask(command: Command) -> None:
    path = command.file("sale.csv", ROWS)

    ran = command("submit", path, *KEYED, "--test-to", "anna.tester@corp.example,+491701234567")

    task = ran.stdout.strip()
    assert ran.stderr.splitlines() == [
        f"2 pushes to an…le, +4…67 alone, as task {task}, 'test of sale'",
        f"next: pushlane task show {task}",
    ]
    [listed] = command("tasks", "--json").json
    assert (listed["key"], listed["name"], listed["total"]) == ("", "test of sale", 2)


def test_an_address_that_is_a_json_object_has_commas_of_its_own(command: Command) -> None:
    given = '{"endpoint": "https://push.example/1", "keys": {}}'
    path = command.file("sale.csv", ROWS)

    ran = command("submit", path, *HI, "--test-to", given, "--test-to", "a,b", "--json")

    assert ran.json["published"] == 3


def test_a_dry_run_says_how_long_it_takes_at_its_rate_and_that_it_would_wait(
    command: Command,
) -> None:
    path = command.file("a.csv", ROWS)

    ran = command(
        "submit", path, *KEYED, "--dry-run", "--rate", "30/min", "--paused", "--first", "1"
    )

    assert ran.stderr.splitlines() == [
        "with rate 30/min 2 pushes take at least 4s",
        "only the first row would be submitted now (--first)",
        "it would be paused, and send nothing until it is resumed",
        "nothing was submitted; --reveal shows recipients",
    ]
    assert command("tasks", "--json").json == []


NOT_0 = "0 would send nothing of the task; to hold it until you resume it, submit it --paus"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "0"], f"rate {NOT_0}"),
        (["--rate", "0/s"], f"rate {NOT_0}"),
        (["--rate", "-1/s"], "rate -1 is below 0"),
        (
            ["--rate", "100"],
            "--rate '100' is not a rate; use one like 100/s, 30/min, 500/h or 9/day\n",
        ),
        (["--rate", "x/s"], "--rate 'x/s' is not a rate: there is no number before the"),
        (["--in-flight", "0"], f"in flight {NOT_0}"),
        (["--first", "1"], "--first 1 needs a --key"),
        (["--first", "1", "--key", "k", "--test-to", "a"], "leave one of the two out"),
        (["--test-to", "a", "--dry-run"], "--test-to sends something and --dry-run nothing"),
        (
            ["--spool", "spool", "--paused", "--rate", "1/s"],
            "--rate, --paused cannot be used with --spool",
        ),
    ],
)
def test_what_cannot_be_meant_of_its_start_is_refused(
    command: Command, arguments: list[str], words: str
) -> None:
    ran = command("submit", command.file("a.csv", ROWS), *HI, *arguments)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert words in ran.stderr
    assert command("tasks", "--json").json == []
