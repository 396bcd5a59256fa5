"""`sinks list`, `show` and `test`; what dispatchers serve; sinks that are not in the settings."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pushlane.core.push import FORMAT
from pushlane.dispatcher import presence
from pushlane.dispatcher.sinks import spec_options
from pushlane.model.presence import Process, ServedSink
from pushlane.model.targets import SinkTargets
from pushlane.version import VERSION
from tests.command import Command
from tests.core.support import backend_in

SECRET = "hush-hush"


def port_that_refuses() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def two(command: Command) -> Command:
    """Two logs with names, `fcm.jsonl` and `sms.jsonl`."""
    with_logs(command, "fcm", "sms")
    return command


def with_logs(command: Command, *names: str) -> None:
    tables = (f'[sinks.{name}]\nkind = "log"\npath = "{name}.jsonl"\n' for name in names)
    command.file("pushlane.toml", "".join(tables))


def delivered(path: Path) -> Counter[str]:
    return Counter(json.loads(line)["task"] for line in path.read_text().splitlines())


def test_each_sink_is_listed_with_its_kind_and_who_serves_it(two: Command) -> None:
    rows = two("sinks", "list", "--json").json

    assert [(row["sink"], row["kind"], row["slots"]) for row in rows] == [
        ("fcm", "log", 50),
        ("sms", "log", 50),
    ]
    assert {row["state"] for row in rows} == {"nobody serves it"}
    assert two("sinks", "list").stdout.count("nobody serves it") == 2


def test_a_sink_that_tasks_wait_for_is_listed_though_nobody_has_it(two: Command) -> None:
    for names in ("sms", "sms,fcm", "fcm,sms"):
        two.submit("high", 1, "--sink", names)
    with_logs(two, "fcm")

    fcm, sms = two("sinks", "list", "--json").json

    assert (fcm["sink"], fcm["state"]) == ("fcm", "nobody serves it, 1 task waits")
    assert (sms["sink"], sms["kind"]) == ("sms", "not in these settings")
    assert sms["state"] == "nobody serves it, 2 tasks wait"


def test_a_sink_that_tasks_may_only_go_on_to_is_listed_as_such(two: Command) -> None:
    two.submit("high", 1, "--sink", "fcm,sms")

    _, sms = two("sinks", "list", "--json").json

    assert sms["state"] == "nobody serves it, 1 task may go on to it"


def test_without_names_there_is_the_sink_default(command: Command) -> None:
    [row] = command("sinks", "list", "--json").json

    assert (row["sink"], row["kind"]) == ("default", "null")
    assert command("sinks", "show", "default", "--json").json == {
        "kind": "null",
        "slots": 50,
        "live": "nobody serves it",
    }


def test_a_sink_whose_url_cannot_be_read_is_shown_all_the_same(command: Command) -> None:
    command.file("pushlane.toml", '[sinks.sms]\nkind = "webhook"\nurl = "http://a b.test/"\n')

    ran = command("sinks", "show", "sms", "--json")

    assert (ran.exit_code, ran.json["kind"]) == (0, "webhook")
    assert "posted_by" not in ran.json


def test_what_posts_is_shown_of_the_sink_default_too(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_SINK", "webhook:http://127.0.0.1:9/p")
    command.file("pushlane.toml", '[sinks.sms]\nkind = "webhook"\nurl = "http://127.0.0.1:9/p"\n')

    shown = [command("sinks", "show", name, "--json").json for name in ("default", "sms")]

    assert [one["posted_by"] for one in shown] == ["our own client, in the loop"] * 2


def test_no_command_shows_a_secret_of_a_sink(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMS_TOKEN", SECRET)
    command.file(
        "pushlane.toml",
        f'[sinks.sms]\nkind = "webhook"\nurl = "https://me:{SECRET}@127.0.0.1:9/p?key={SECRET}"\n'
        f'authorization_env = "SMS_TOKEN"\nheaders = {{ X-Key = "{SECRET}" }}\n',
    )

    shown = [
        command(*words, *form)
        for words in (("sinks", "show", "sms"), ("sinks", "list"), ("config",))
        for form in ((), ("--json",))
    ]

    assert [ran.exit_code for ran in shown] == [0] * 6
    assert not any(SECRET in ran.stdout + ran.stderr for ran in shown)
    assert "https://***@127.0.0.1:9/p" in shown[0].stdout
    assert "SMS_TOKEN" in shown[0].stdout


@pytest.mark.parametrize(
    "words",
    [("sinks", "show", "fmc"), ("sinks", "test", "fmc"), ("dispatch", "--drain", "--serve", "fmc")],
)
def test_a_sink_that_there_is_not_is_answered_with_those_there_are(
    two: Command, words: tuple[str, ...]
) -> None:
    ran = two(*words)

    assert ran.exit_code == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("error: there is no sink 'fmc'; the settings have: fcm, sms; ")
    assert "'fcm'" in last.rpartition("--config")[2]


@pytest.mark.parametrize(
    "words",
    [("sinks", "show", "default"), ("dispatch", "--drain", "--serve", "default,sms")],
)
def test_the_sink_default_is_refused_where_the_settings_name_others_only(
    two: Command, words: tuple[str, ...]
) -> None:
    ran = two(*words)

    assert ran.exit_code == 1
    assert "name one of them (fcm, sms), or set `sink`" in ran.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--serve", ""), "--serve '' names no sink; give fcm, sms"),
        (("--serve", ","), "--serve ',' names no sink"),
        (("--serve", "fcm", "--sink", "null"), "--serve fcm leaves that one out"),
        (("--serve", "fmc", "--workers", "2"), "there is no sink 'fmc'"),
    ],
)
def test_a_dispatcher_that_could_not_serve_what_is_asked_for_does_not_start(
    two: Command, words: tuple[str, ...], told: str
) -> None:
    ran = two("dispatch", "--drain", *words)

    assert ran.exit_code == 1
    assert told in ran.stderr.splitlines()[-1]


def test_a_dispatcher_serves_the_sink_of_its_flag_beside_a_named_one(two: Command) -> None:
    ran = two("dispatch", "--drain", "--serve", "fcm,default", "--sink", "log:out.jsonl")

    assert ran.exit_code == 0
    assert (two.folder / "out.jsonl").exists()


@pytest.mark.parametrize("words", [("sinks", "show", "sms"), ("dispatch", "--drain")])
def test_an_option_that_there_is_not_is_refused(command: Command, words: tuple[str, ...]) -> None:
    command.file("pushlane.toml", f'[sinks.sms]\nkind = "null"\ntoken = "{SECRET}"\n')

    ran = command(*words)

    assert ran.exit_code == 1
    assert "sink sms: the kind null has no option 'token'" in ran.stderr
    assert SECRET not in ran.stderr


def test_a_sink_can_be_tried_with_a_push(two: Command) -> None:
    with webhook_that_answers(204) as url:
        two.file("pushlane.toml", f'[sinks.sms]\nkind = "webhook"\nurl = "{url}"\n')

        ran = two("sinks", "test", "sms", "--to", "somebody")

    place = url.removeprefix("http://").removesuffix("/push")
    told = f"sink sms (webhook at {place}) has delivered one push\n"
    assert (ran.exit_code, ran.stderr) == (0, told)


@pytest.mark.parametrize(
    ("spec", "does"),
    [
        ("null", "throws pushes away"),
        ("print", "only prints pushes"),
        ("log:out.jsonl", "only writes pushes to a file"),
    ],
)
def test_of_a_sink_that_delivers_nothing_it_is_never_said_that_it_has(
    command: Command, spec: str, does: str
) -> None:
    command.file("pushlane.toml", f'sink = "{spec}"\n')

    ran = command("sinks", "test", "default", "--to", "somebody")

    assert (ran.exit_code, ran.stderr) == (0, f"sink default {does}: nothing was delivered\n")


def test_without_an_address_it_is_only_opened(two: Command) -> None:
    ran = two("sinks", "test", "sms")

    assert ran.exit_code == 0
    assert (two.folder / "sms.jsonl").read_text() == ""


def test_a_sink_that_is_away_is_a_service_that_does_not_answer(command: Command) -> None:
    url = f"http://127.0.0.1:{port_that_refuses()}/{SECRET}"
    command.file("pushlane.toml", f'[sinks.sms]\nkind = "webhook"\nurl = "{url}"\n')

    ran = command("sinks", "test", "sms", "--to", "somebody")

    assert ran.exit_code == 3
    assert "no connection to the webhook" in ran.stderr
    assert SECRET not in ran.stderr


@pytest.mark.parametrize("verb", ["show", "test"])
def test_a_key_file_that_others_can_read_is_named_and_used(command: Command, verb: str) -> None:
    key = command.file("key", SECRET)
    command.file(
        "pushlane.toml",
        f'[sinks.sms]\nkind = "webhook"\nurl = "http://h/p"\nauthorization_file = "{key}"\n',
    )
    key.chmod(0o604)
    warned = command("sinks", verb, "sms")
    key.chmod(0o600)
    mended = command("sinks", verb, "sms")

    assert (warned.exit_code, mended.exit_code) == (0, 0)
    told = f"warning: authorization_file {key} can be read by others than its owner; fix it with "
    assert f"{told}chmod 600 {key}\n" in warned.stderr
    assert "warning" not in mended.stderr
    assert SECRET not in warned.stdout + warned.stderr


@contextmanager
def webhook_that_answers(status: int) -> Iterator[str]:
    """Its URL. A status of 0 breaks the connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if status:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/push"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "exit_code"), [(401, 1), (403, 1), (400, 1), (500, 1), (429, 3), (503, 3), (0, 3)]
)
def test_the_exit_code_tells_a_sink_that_is_away_or_busy_from_one_that_refuses(
    command: Command, status: int, exit_code: int
) -> None:
    with webhook_that_answers(status) as url:
        command.file("pushlane.toml", f'[sinks.sms]\nkind = "webhook"\nurl = "{url}"\n')

        ran = command("sinks", "test", "sms", "--to", "somebody")

    assert ran.exit_code == exit_code
    assert ran.stderr.startswith("error: sink sms did not ")


def test_a_secret_that_is_missing_stops_a_dispatcher_before_it_takes_anything(
    command: Command,
) -> None:
    command.file(
        "pushlane.toml",
        '[sinks.sms]\nkind = "webhook"\nurl = "http://127.0.0.1:9/p"\n'
        'authorization_file = "none"\n',
    )
    task = command.submit("high", 3, "--sink", "sms")

    ran = command("dispatch", "--drain")

    assert ran.exit_code == 1
    assert ran.stderr.splitlines()[-1].startswith("error: sink sms: authorization_file none cannot")
    assert command("task", "show", task, "--json").json["finished"] == 0


def test_pushes_go_to_the_sink_that_their_task_names(two: Command) -> None:
    to_fcm, to_sms = (two.submit("low", 20, "--sink", name) for name in ("fcm", "sms"))

    assert two("dispatch", "--drain").exit_code == 0

    assert delivered(two.folder / "fcm.jsonl") == {to_fcm: 20}
    assert delivered(two.folder / "sms.jsonl") == {to_sms: 20}


def test_a_dispatcher_ends_when_those_are_served_that_it_serves(two: Command) -> None:
    to_fcm, to_sms = (two.submit("high", 20, "--sink", name) for name in ("fcm", "sms"))

    assert two("dispatch", "--drain", "--serve", "sms").exit_code == 0

    assert not (two.folder / "fcm.jsonl").exists()
    assert delivered(two.folder / "sms.jsonl") == {to_sms: 20}
    assert two("task", "show", to_fcm, "--json").json["state"] == "running"


@pytest.mark.parametrize("level", ["high", "low"])
def test_tasks_of_a_sink_that_was_taken_out_wait_until_it_is_back(two: Command, level: str) -> None:
    waits = two.submit(level, 20, "--sink", "sms")
    with_logs(two, "fcm")

    assert two("dispatch", "--drain").exit_code == 0
    shown = two("task", "show", waits, "--json").json
    assert (shown["state"], shown["finished"]) == ("running", 0)

    with_logs(two, "fcm", "sms")
    assert two("dispatch", "--drain").exit_code == 0
    assert delivered(two.folder / "sms.jsonl") == {waits: 20}


def announce(command: Command, *served: tuple[str, str], sink: str = "default") -> None:
    """Processes that each serve the sink, with a spec each."""

    async def work() -> None:
        async with backend_in(command.folder / "data") as (backend, _):
            targets = SinkTargets(backend.documents)
            await targets.load()
            for number, (process_id, spec) in enumerate(served, 1):
                target = targets.of(spec_options(spec).target())
                process = Process(
                    id=process_id,
                    kind="dispatcher",
                    pid=number,
                    version=VERSION,
                    format=FORMAT,
                    sinks=(sink,),
                    serves=(sink,),
                    served=(ServedSink(name=sink, slots=5, target=target),),
                    started_at_ms=number,
                )
                await backend.presence.announce(process, 60.0)

    asyncio.run(work())


HERE, THERE = "webhook:http://here.example.com/push", "webhook:http://there.example.com/push"
DIFFERENT = (
    "sink default: this shell's settings lead to null, and live processes deliver to webhook at "
    "there.example.com by d-1 (pid 1)"
)


def test_a_test_says_by_whose_settings_it_goes_where_a_process_serves_the_sink(
    command: Command,
) -> None:
    alone = command("sinks", "test", "default").stderr
    announce(command, ("d-1", "null"))

    beside = command("sinks", "test", "default").stderr

    assert "this shell's settings" not in alone
    assert beside.startswith("live processes serve sink default; this test goes by this shell's")


def test_what_live_processes_deliver_to_is_listed_and_that_this_shell_leads_elsewhere(
    command: Command,
) -> None:
    announce(command, ("d-1", THERE))

    listed, shown = command("sinks", "list"), command("sinks", "show", "default")
    [row] = command("sinks", "list", "--json").json

    assert (row["kind"], row["state"]) == ("webhook at there.example.com", "delivers")
    assert row["targets"][0]["host"] == "there.example.com"
    assert row["differs"] == DIFFERENT
    assert DIFFERENT in listed.stderr
    assert DIFFERENT in shown.stderr
    assert "webhook at there.example.com by d-1 (pid 1)" in shown.stdout
    tried = command("sinks", "test", "default", "--to", "x")
    assert tried.exit_code == 0
    assert f"{DIFFERENT}; this test goes by this shell's settings, not by those" in tried.stderr
    assert "run it with the same --config and PUSHLANE_ variables" in tried.stderr
    assert "delivered one" not in tried.stderr


def test_a_misspelt_kind_is_told_when_a_campaign_is_submitted_to_it(command: Command) -> None:
    command.file("pushlane.toml", '[sinks.sms]\nkind = "webhok"\n')

    rows = command.file("rows.csv", "recipient,title\na,Hi\n")

    submitted = command("submit", rows, "--level", "low", "--title", "{title}", "--sink", "sms")
    tried = command("sinks", "test", "sms")

    told = "sink sms: there is no kind 'webhok'"
    assert submitted.exit_code == 0
    assert f"warning: {told}" in submitted.stderr
    assert f"error: {told}" in tried.stderr


def test_a_shell_of_the_same_settings_says_nothing(command: Command) -> None:
    command.file("pushlane.toml", f'sink = "{THERE}?key=another"\n')
    announce(command, ("d-1", THERE))

    listed = command("sinks", "list", "--json")

    assert "differs" not in listed.json[0]
    assert "this shell" not in command("sinks", "list").stderr


@pytest.mark.parametrize("words", [("sinks", "list"), ("processes",), ("doctor",)])
def test_two_targets_of_one_name_are_told(command: Command, words: tuple[str, ...]) -> None:
    announce(command, ("d-1", HERE), ("d-2", THERE), ("d-3", THERE))

    ran = command(*words)

    assert (
        "sink default is delivered to 2 different targets: webhook at here.example.com by d-1 "
        "(pid 1); webhook at there.example.com by d-2 (pid 2), d-3 (pid 3)"
    ) in ran.stdout + ran.stderr


def test_a_live_sink_that_throws_away_does_not_deliver(command: Command) -> None:
    announce(command, ("d-1", "null"))

    [row] = command("sinks", "list", "--json").json

    assert row["state"] == "throws pushes away"
    assert row["targets"][0]["delivers"] is False


def test_a_kind_that_there_is_not_is_listed_with_what_is_wrong(command: Command) -> None:
    command.file("pushlane.toml", '[sinks.sms]\nkind = "webhok"\n')

    [row] = command("sinks", "list", "--json").json

    assert "there is no kind 'webhok'" in row["state"]
    assert row["state"] == command("sinks", "show", "sms").stderr.strip().removeprefix("error: ")


@pytest.mark.parametrize("more", [(), ("--replace-sink",)])
def test_what_throws_away_does_not_start_beside_what_delivers(
    command: Command, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setattr(presence, "PATIENCE_S", 0.0)
    announce(command, ("d-1", THERE))

    ran = command("dispatch", "--drain", "--sink", "null", *more)

    assert ran.exit_code == 1
    told = ran.stderr.splitlines()[-1]
    assert told.startswith("error: sink default would go to null here, which delivers nothing")
    assert "d-1 (pid 1) delivers it to webhook at there.example.com" in told


def test_another_url_starts_only_to_replace_the_one_that_is_live(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "PATIENCE_S", 0.0)
    announce(command, ("d-1", THERE))
    here = ("dispatch", "--drain", "--sink", HERE)

    refused, replaces = command(*here), command(*here, "--replace-sink")

    assert refused.exit_code == 1
    assert "--replace-sink" in refused.stderr.splitlines()[-1]
    assert replaces.exit_code == 0
    monkeypatch.setenv("PUSHLANE_REPLACE_SINK", "True")
    assert command(*here).exit_code == 0
