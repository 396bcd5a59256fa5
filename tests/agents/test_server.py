"""The tools over the protocol: at a server, by who asks, and over stdio, as an agent starts it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from pushlane.agents.tools import tools_for
from pushlane.settings import Settings
from tests.command import Command
from tests.served import served


class Agent:
    """Asks at `/mcp` with a token, a request each, as agents do without a session."""

    def __init__(self, url: str, token: str) -> None:
        self._at = urlsplit(url).netloc
        self._headers = {
            "Authorization": f"Bearer {token.strip()}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    def ask(self, method: str, **params: Any) -> tuple[int, Any]:
        connection = HTTPConnection(self._at, timeout=60)
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        connection.request("POST", "/mcp", json.dumps(asked), self._headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def use(self, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Whether it was refused, and the text of the answer."""
        status, answer = self.ask("tools/call", name=tool, arguments=arguments)
        assert status == 200, answer
        shown = answer["result"]
        return bool(shown.get("isError")), shown["content"][0]["text"]


@pytest.fixture
def shop(command: Command) -> Iterator[tuple[Agent, Agent, str]]:
    """Agents of `shop` and of `blog`, and a task of `shop`."""
    task = command.submit("high", 3, "--app", "shop", "--key", "sale")
    tokens = [
        command("access", "create", app, "--role", "viewer", "--app", app).stdout
        for app in ("shop", "blog")
    ]
    settings = Settings(data_dir=command.folder / "data")
    with served(settings, command.folder / "token", for_agents=True) as url:
        yield Agent(url, tokens[0]), Agent(url, tokens[1]), task


def test_each_call_has_the_rights_of_its_token(shop: tuple[Agent, Agent, str]) -> None:
    ours, theirs, task = shop
    status, listed = ours.ask("tools/list")
    is_refused, why = ours.use("why_task", task="sale")
    hidden, told = theirs.use("why_task", task=task)

    assert (status, is_refused, hidden) == (200, False, True)
    names = [one.name for one in tools_for(may_apply=False)]
    assert [one["name"] for one in listed["result"]["tools"]] == names
    assert all(one["annotations"]["readOnlyHint"] for one in listed["result"]["tools"])
    assert json.loads(why)["data"]["task_id"] == task
    assert told == f"there is no task '{task}' of an app that you may see"


def test_nothing_can_be_changed(shop: tuple[Agent, Agent, str]) -> None:
    ours, _, task = shop

    assert ours.use("cancel_task", task=task)[0]
    assert ours.use("find_push", push=f"{task}-1", reveal=True)[0]


def test_who_has_no_token_is_refused_before_anything_is_read(
    shop: tuple[Agent, Agent, str],
) -> None:
    ours, _, _ = shop
    ours._headers["Authorization"] = "Bearer pl_nobody"

    status, answer = ours.ask("tools/list")

    assert (status, answer["status"]) == (401, 401)


def test_over_stdio_an_agent_asks_why(command: Command) -> None:
    task = command.submit("high", 3)
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "pushlane", "mcp"], env={**os.environ}
    )

    async def ask() -> tuple[str, Any]:
        async with (
            stdio_client(started) as (incoming, outgoing),
            ClientSession(incoming, outgoing) as session,
        ):
            met = await session.initialize()
            return met.server_info.name, await session.call_tool("why_task", {"task": task})

    name, answer = asyncio.run(ask())

    assert name == "pushlane"
    assert json.loads(answer.content[0].text)["data"]["causes"][0]["cause"] == "no_dispatcher"
