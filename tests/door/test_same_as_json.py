"""What `--json` prints is what HTTP answers, for each operation that a command has alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane import Settings
from pushlane.operations.listing import OPERATIONS
from tests.command import Command
from tests.door.asking import asking

LOOKS: dict[str, tuple[tuple[str, ...], str]] = {
    "list-tasks": (("tasks",), "/v1/tasks"),
    "get-task": (("task", "show", "TASK"), "/v1/tasks/TASK"),
    "get-levels": (("levels",), "/v1/levels"),
    "list-limits": (("limits",), "/v1/limits"),
    "get-limit": (("limit", "app/shop"), "/v1/limits/app/shop"),
    "get-app-quota": (("quota", "--app", "shop"), "/v1/apps/shop/quota"),
    "list-processes": (("processes",), "/v1/processes"),
    "get-formats": (("formats",), "/v1/formats"),
    "get-pool": (("pool",), "/v1/pool"),
    "why-task": (("why", "TASK"), "/v1/tasks/TASK/why"),
    "get-overview": (("why",), "/v1/overview"),
    "get-results": (("results", "TASK"), "/v1/tasks/TASK/results"),
    "get-push": (("push", "show", "TASK-1"), "/v1/pushes/TASK-1"),
    "list-streams": (("streams", "list"), "/v1/streams"),
    "get-stream": (("streams", "show", "orders"), "/v1/streams/orders"),
    "list-sinks": (("sinks", "list"), "/v1/sinks"),
    "count-suppressions": (("suppress", "count"), "/v1/suppressions"),
    "list-dead": (("dead", "list"), "/v1/dead"),
    "list-rules": (("rules", "list"), "/v1/rules"),
    "get-rule": (("rules", "show", "weekly"), "/v1/rules/weekly"),
    "list-rule-runs": (("rules", "history"), "/v1/rule-runs"),
    "list-alerts": (("alerts", "list"), "/v1/alerts"),
    "get-alert": (("alerts", "show", "failing"), "/v1/alerts/failing"),
    "list-audit": (("audit",), "/v1/audit"),
    "list-tokens": (("access", "list"), "/v1/access"),
    "get-mode": (("access", "read-only"), "/v1/mode"),
}
OTHERWISE = {
    "get-now": "tests/operations/test_now.py: its figures are of the second",
    "get-hour": "no command shows it: tests/operations/test_now.py",
    "get-task-shares": "no command shows it: tests/operations/test_reports.py",
    "get-task-hour": "no command shows it: tests/operations/test_now.py",
    "examine": "`doctor` looks at what this shell reaches: tests/operations/test_examining.py",
    "get-caller": "no command shows it: who asks beside the backend may do all",
    "get-issuer": "no command shows it: tests/operations/test_access.py",
    "list-unreadable": "`tasks` tells of them: tests/cli/test_unreadable.py",
    "get-unreadable": "no command shows it: tests/operations/test_unreadable.py",
    "find-tasks": "no command shows it: tests/operations/test_finding.py",
    "list-ends": "the command writes CSV: tests/operations/test_ends.py",
    "get-safe-line": "no command receives lines",
    "get-terms": "no command shows it: tests/cli/test_submit_both_ways.py",
    "list-dead-addresses": "the command puts pages together, and may open addresses",
    "get-accepted": "no command shows it: tests/door/test_etags.py",
    "measure-alert": "its figures are of the minute: tests/operations/test_alerts.py",
    "get-dead": "it needs a dead push: tests/operations/test_dead.py",
    "list-sinks": "the command adds what its own settings say",
}
RULE = """
audience = "users"
cron = "0 9 * * MON"
[task]
level = "low"
title = "Hi"
"""
ALERT = ("--metric", "dead", "--when", "> 5", "--to", "https://hooks.example.com/alerts")
NOT_THE_SAME = {"used_at_ms"}
"""Fields that the question itself changes."""


def same(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: same(one) for name, one in value.items() if name not in NOT_THE_SAME}
    return [same(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [name for name in LOOKS if name not in OTHERWISE])
def test_a_look_is_the_same(command: Command, name: str) -> None:
    task = command.submit("high", 3, "--app", "shop", "--name", "sale")
    command("limit", "app/shop", "--total", "5")
    command("suppress", "add", command.file("gone.csv", "recipient\nada\n"), "--app", "shop")
    command("streams", "put", "orders", "--level", "high")
    command.file("weekly.toml", RULE)
    command("rules", "add", "weekly.toml")
    command("alerts", "add", "failing", *ALERT)
    words, path = LOOKS[name]
    settings = Settings(data_dir=Path(command.folder / "data"))

    async def ask() -> Any:
        async with asking(settings) as http:
            answer = await http("GET", path.replace("TASK", task))
            assert answer.status == 200, answer.body
            return answer.json

    over_http = asyncio.run(ask())
    printed = command(*(word.replace("TASK", task) for word in words), "--json")

    assert printed.exit_code == 0, printed.stderr
    found = over_http["dead"] if name == "list-dead" else over_http
    assert same(printed.json) == same(found)


def test_what_a_push_holds_is_the_same_with_what_is_null_in_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"page": None, "items": [{"price": None}, None]}
    settings = Settings(data_dir=Path(command.folder / "data"))
    command.file("no.py", "def send(push):\n    return False\n")
    monkeypatch.syspath_prepend(command.folder)

    async def send() -> str:
        async with asking(settings) as http:
            made = await http("POST", "/v1/tasks", {"level": "high"})
            task: str = made.json["id"]
            line = msgspec.json.encode({"recipient": "ada", "data": data})
            await http("POST", f"/v1/tasks/{task}/pushes", parts=[line])
            await http("POST", f"/v1/tasks/{task}/seal", {"total": 1})
            return task

    async def ask(path: str) -> Any:
        async with asking(settings) as http:
            return (await http("GET", path, query={"reveal": "true"})).json

    task = asyncio.run(send())
    command("dispatch", "--drain", "--sink", "no:send")
    for of in ("push", "dead"):
        over_http = asyncio.run(ask(f"/v1/{of.replace('push', 'pushes')}/{task}-1"))
        printed = command(of, "show", f"{task}-1", "--reveal", "--json")

        assert printed.json == over_http, printed.stderr
        assert over_http["message"]["data"] == data
        assert "payloads" not in over_http["message"]


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (("report", "TASK"), "/v1/reports", {"task": "TASK"}),
        (("report", "--by", "app,outcome"), "/v1/reports", {"by": "app,outcome"}),
        (("report", "--rows"), "/v1/reports/receipts", {}),
    ],
)
def test_a_report_is_the_same(
    command: Command, words: tuple[str, ...], path: str, body: dict[str, str]
) -> None:
    task = command.submit("high", 3, "--app", "shop", "--name", "sale")
    command("dispatch", "--drain", "--sink", "null")
    asked = {name: value.replace("TASK", task) for name, value in body.items()}
    settings = Settings(data_dir=Path(command.folder / "data"))

    async def ask() -> Any:
        async with asking(settings) as http:
            return (await http("POST", path, asked)).json

    over_http = asyncio.run(ask())
    printed = command(*(word.replace("TASK", task) for word in words), "--json").json

    assert len(printed["rows"] if isinstance(printed, dict) else printed) > 0
    for one in (over_http, printed):
        if isinstance(one, dict):
            del one["since_ms"], one["until_ms"]  # whose minutes may be others by now
    assert over_http == printed


def test_each_look_is_held_or_has_its_reason() -> None:
    looks = {one.word() for one in OPERATIONS if one.method == "GET"}

    assert looks == LOOKS.keys() | OTHERWISE.keys()
