"""The ways that marked pushes go: rows that are refused, producers, every sink, and every command
that shows anything, meanwhile and afterwards.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from pushlane import Producer, PushEvent, Settings
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from tests.integration.marked_providers import PROVIDERS
from tests.integration.marked_pushes import (
    ANSWERS,
    FIELDS,
    PROCESSORS,
    MarkedPushes,
    free_port,
    logged,
    scraped,
)
from tests.processes import Running, until

NEVER_OVER = ("fails", "refuses", "busy", "says_retry", "says_pause", "misanswers", "moved")
SINKS = (*ANSWERS, "slow", *PROCESSORS, "typed", "file", *PROVIDERS)
LOOKED_AT = ("ok", "gone", "refuses", "busy", "says_pause", "says_dead", "chain", "suppressed")
_OPTIONS = (
    *("--level", "low", "--sink", "ok", "--title", "{title}", "--body", "{body}", "--data", "data"),
    *("--zone-column", "zone", "--expires-column", "time", "--debug"),
)


def refuse_rows(run: MarkedPushes) -> None:
    """Rows that cannot be used: the first one stops a submit, or all are skipped and listed."""
    value = run.canaries.value
    good = {**{field: value(field) for field in FIELDS}, "zone": "", "time": ""}
    bad = {
        "not JSON": json.dumps(good)[:-9],
        "no recipient": json.dumps({**good, "recipient": [value("recipient")]}),
        "no field": json.dumps({"recipient": value("recipient"), value("a name"): 1}),
        "zone": json.dumps({**good, "zone": value("zone")}),
        "time": json.dumps({**good, "time": value("time")}),
        "too large": json.dumps({**good, "body": value("body") * 4_000}),
        "half a character": json.dumps(good).replace("\\u00e9", "\\ud800"),
    }
    for name, line in bad.items():
        path = run.file(f"{name}.jsonl", f"{json.dumps(good)}\n{line}\n")
        run.run(f"stop: {name}", "submit", path, *_OPTIONS, fails=True)
    every = run.file("bad.jsonl", "\n".join([json.dumps(good), *bad.values()]))
    skip = (*_OPTIONS, "--bad-rows", "skip")
    run.run("skip", "submit", every, *skip, "--rejects", run.made / "rejects.jsonl")
    for form in ((), ("--json",)):  # it shows rows as they would go, but their recipients
        dry = run.pushlane.ran("submit", every, *skip, "--dry-run", *form)
        run.said[f"dry {form}"] = dry.stderr
        assert run.canaries.word("title") in dry.stdout
        assert run.canaries.word("recipient") not in dry.stdout


def refuse_files(run: MarkedPushes) -> None:
    """Files that cannot be used: without a header, with a broken payload, with wrong events."""
    value = run.canaries.value
    headless = run.file("headless.csv", f"{value('recipient')},{value('body')}".replace('"', ""))
    run.run("no header", "submit", headless, "--level", "low", "--debug", fails=True)
    run.run("no header: suppress", "suppress", "add", headless, "--debug", fails=True)
    broken = run.file("broken.json", json.dumps({"ok": {"a": value("payload")}})[:-1])
    options = ("--level", "low", "--sink", "ok", "--payload", broken, "--debug")
    run.run("bad payload", "submit", run.rows("ok"), *options, fails=True)
    for field in ("push_id", "event", "at"):
        event = {"push_id": "task-1", "event": "clicked", "at": 2_000_000_000, field: value(field)}
        events = run.file("events.jsonl", json.dumps(event))
        run.run(f"event: {field}", "receipts", "add", events, "--debug", fails=True)
    for option in ("key", "url", "headers", "secrets"):
        table = f'[sinks.x]\nkind = "webhook"\n{option} = "{run.canaries.word(option)}"\n'
        wrong = ("sinks", "test", "x", "--config", run.file("wrong.toml", table), "--debug")
        run.run(f"wrong {option}", *wrong, fails=True)


def produce(run: MarkedPushes) -> None:
    """Pushes from an application, good and bad, with a spool and without a broker."""
    value = run.canaries.value
    wrong = [
        {"data": {"x": object()}},
        {"data": {"x": value("data") * 4_000}},
        {"zone": value("zone")},
        {"address": {value("sink"): value("address")}},
        {"payload": [value("payload")]},
        {"expires": value("time")},
        {"recipient": 7, "body": value("body")},
        {"body": value("body") + "\ud800"},
    ]
    told: list[str] = []
    with logged() as lines:
        with Producer("code", sink="ok", settings=Settings(data_dir=run.store)) as producer:
            producer.push(value("recipient"), body=value("body"), address=value("address"))
            for one in wrong:
                with pytest.raises((PushlaneError, TypeError, ValueError)) as refused:
                    producer.push(**{"recipient": value("recipient"), **one})
                told.append(f"{refused.value} {refused.value!r} {producer!r}")
        with pytest.raises(PushlaneError) as refused:
            PushEvent(value("push_id"), "clicked", 2_000_000_000_000)
        told.append(str(refused.value))
        away = Settings(broker="pulsar://127.0.0.1:1", data_dir=run.folder / "none")
        later = Producer("spooled", spool=run.folder / "spool", settings=away).open()
        later.push(value("recipient"), body=value("body"))
        later.close(timeout_s=0.1)
    run.said["producer"] = "\n".join([*told, *lines])
    run.run("spool show", "spool", "show", run.folder / "spool")


def submit_all(run: MarkedPushes, form: str) -> dict[str, str]:
    """A task for each sink, and for each guard; their ids by name."""
    payload = run.file("payload.json", json.dumps({"*": {"text": "{payload}"}}))
    given = {
        **{name: (name, ()) for name in SINKS},
        "busy": (
            "busy",
            ("--max-attempts", "100"),
        ),  # tried until it rests
        "chain": ("gone,ok", ()),
        "once": ("ok", ("--delivery", "once")),
        "ordered": ("ok", ("--ordered-by", "ordered")),
        "collapsed": ("ok", ("--collapse", "{collapse}")),
        "suppressed": ("ok", ("--app", "hushed")),
        "capped": ("ok", ("--app", "capped", "--dedupe", "recipient")),
        "payload": ("gone", ("--payload", str(payload))),
    }
    tasks = {
        name: run.submit(f"{name} {form}", sink, *more) for name, (sink, more) in given.items()
    }
    run.run("suppress", "suppress", "add", run.rows("hushed"), "--app", "hushed")
    run.run("cap", "limit", "app/capped", "--recipient-a-day", "all=0")
    publish_no_push(run, tasks["ok"])
    return tasks


def deliver(run: MarkedPushes, form: str, workers: int) -> None:
    """Push to every sink at once, until all has happened that can; ask while it goes on."""
    tasks = submit_all(run, form)
    port = free_port()
    metrics = ("--metrics-port", str(port), "--workers", str(workers))
    dispatching = run.pushlane.start("dispatch", "--log-format", form, *metrics)
    over = [task for name, task in tasks.items() if name not in (*NEVER_OVER, *PROVIDERS)]
    until(lambda: all(run.pushlane.task(task)["state"] == "done" for task in over))
    until(lambda: all(f"sink {name} rests" in dispatching.text for name in ("refuses", "busy")))
    until(lambda: run.pushlane.task(tasks["says_pause"])["state"] == "paused")
    until(lambda: all(_was_heard_of(run, tasks[one], one, dispatching) for one in PROVIDERS))
    until(lambda: run.pushlane.json("tokens", "dead", "--sink", "apns"))
    run.said[f"metrics {form}"] = scraped(port)
    ask(run, form, tasks)
    assert dispatching.stop() == 0
    run.said[f"dispatch {form}"] = dispatching.text + dispatching.output


def _was_heard_of(run: MarkedPushes, task: str, sink: str, dispatching: Running) -> bool:
    """Tell whether a provider has answered to one of the task's pushes."""
    return run.pushlane.task(task)["finished"] > 0 or f"sink {sink} rests" in dispatching.text


def publish_no_push(run: MarkedPushes, task_id: str) -> None:
    """Put bytes on the task's lane that are no push, but hold what one does."""

    async def publish() -> None:
        async with connect(Settings(data_dir=run.store)) as backend:
            task = await backend.registry.get(task_id)
            await backend.broker.publish(task.first_lane, [run.canaries.value("junk").encode()])

    asyncio.run(publish())


def ask(run: MarkedPushes, form: str, tasks: dict[str, str]) -> None:
    """Every command that shows anything, as text or as JSON."""
    words = ["tasks", "limits", "levels", "processes", "config", "pool", "dead list", "sinks list"]
    words += ["suppress count", "alerts list", "formats", "tokens dead"]
    words += [f"sinks show {name}" for name in SINKS]
    words += [f"{verb} {tasks[name]}" for name in LOOKED_AT for verb in ("task show", "why")]
    words += [f"dead show {one['push']}" for one in run.pushlane.json("dead", "list")[::4]]
    for word in words:
        run.run(f"{word} {form}", *word.split(), *(["--json"] if form == "json" else []))


def use_up(run: MarkedPushes) -> None:
    """What is done to sinks, alerts and dead pushes by hand."""
    value, hook = run.canaries.value("recipient"), f"https://h.example/{run.canaries.word('hook')}"
    run.run("check", "suppress", "check", f"{value}0", "--debug")
    run.run("alert", "alerts", "add", "a", "--metric", "dead", "--when", "> 1", "--to", hook)
    run.run("alert show", "alerts", "show", "a", "--json")
    spec, word = (
        run.file("task.toml", 'level = "low"\nsilent = true\n'),
        run.canaries.word("password"),
    )
    source = ("--audience", f"jdbc:postgresql://me:{word}@h/db", "--format", "jdbc")
    when = ("--option", f"password={word}", "--cron", "0 9 * * MON", "--task-spec", spec)
    run.run("rule", "rules", "add", "weekly", *source, *when, "--debug")
    run.run("rule show", "rules", "show", "weekly")
    run.run("rule show json", "rules", "show", "weekly", "--json")
    for name in SINKS:
        ran = run.pushlane.ran("sinks", "test", name, "--to", value, "--debug")
        run.said[f"sinks test {name}"] = ran.stdout + ran.stderr
    run.run(
        "register",
        "tokens",
        "register",
        run.rows("tokens"),
        "--column",
        "address",
        "--sink",
        "gone",
    )
    run.run("retry", "dead", "retry", "--all")
    run.run("purge", "dead", "purge", "--all", "--yes")
