"""Runs what docs/http.md shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pushlane import Settings
from pushlane.core.task import now_ms
from pushlane.door.problems import _STATUS
from tests.door.asking import Answer, Asking, asking
from tests.receipt_stores import store_of

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
LINES = PAGE.partition("```json\n")[2].partition("```")[0]
_CURL = ("curl ", "ETAG=$(curl ", "PREVIEW=$(curl ")
CURLS = [line for line in PAGE.splitlines() if line.startswith(_CURL)]


async def run(ask: Asking, line: str, etag: str) -> Answer:
    """Ask what a line of the page asks with curl; `$ETAG` is what the line before it has kept."""
    asked, headers = re.sub(r"^\w+=\$\(", "", line).partition(" | ")[0], {}
    line = asked.replace("$ETAG", etag)
    words = shlex.split(line.replace("$URL", "").replace('"$AUTH"', "AUTH"))[1:]
    method, body, path = "GET", b"", ""
    while words:
        word = words.pop(0)
        if word == "-sX":
            method = words.pop(0)
        elif word == "-d":
            body = words.pop(0).encode()
        elif word == "--data-binary":
            assert words.pop(0) == "@lines.jsonl"
            body = LINES.encode()
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers |= {name: value} if value else {}
        elif word == "-sI":
            method = "HEAD"
        elif word not in ("-s", "-si"):
            path = word
    path, _, query = path.partition("?")
    given: dict[str, list[str]] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        given.setdefault(name, []).append(value)
    return await ask(method, path, query=given, parts=[body], headers=headers)


async def test_what_it_shows_is_so(settings: Settings) -> None:
    async with asking(replace(settings, rules_over_http=True)) as ask:
        token = await ask.made("operator", "shop")
        everything, etag, preview = ask.token, "", ""
        for line in CURLS:
            words = ("/levels", "/doctor", "/unreadable", "/access", "PUT $URL/v1/rules")
            of_all = any(word in line for word in words)
            ask.token = everything if of_all else token
            if found := re.search(r"^curl -sN \$URL(\S+)", line):
                async with ask.events(found[1]) as events:
                    assert (await events.next()).name == "snapshot"
                continue
            if "/reports" in line and not settings.has_reports:
                task = (await ask("GET", "/v1/tasks/sale-7")).json["id"]
                read = {"task_id": task, "app": "shop", "responded_at_ms": now_ms() - 120_000}
                store_of(settings.reports_root, [read] * 3)
            answer = await run(ask, line.replace("$PREVIEW", preview), etag.replace('"', r"\""))
            etag = answer.headers.get("etag", "")
            assert answer.status == (201 if "/streams/orders/pushes" in line else 200), answer.body
            if "/tasks/" in line and "/pushes" in line:
                assert answer.json["safe_line"] == 3
            if line.startswith("PREVIEW="):
                preview = answer.json["token"]
            if "Prefer" in line:
                assert answer.headers["preference-applied"] == "wait=30"
            if line.startswith("curl -sX POST $URL/v1/tasks/sale-7/seal"):
                assert msgspec.json.decode(answer.body)["total"] == 3


def test_it_tells_each_status_of_a_refusal() -> None:
    told = {
        int(one) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.M) for one in row.split(",")
    }

    assert {status for _, status in _STATUS} == told
