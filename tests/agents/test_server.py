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

from pushlane.agents.tools import DATA, tools_for
from pushlane.core.task import now_ms
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


@pytest.fixture
def steering(command: Command) -> Iterator[tuple[Agent, Agent, str]]:
    """An agent that may steer, one that may look alone, and a task."""
    task = command.submit("high", 3, "--app", "shop", "--key", "sale")
    tokens = [
        command("access", "create", role, "--role", role).stdout for role in ("operator", "viewer")
    ]
    settings = Settings(data_dir=command.folder / "data")
    with served(settings, command.folder / "token", for_agents=True) as url:
        yield Agent(url, tokens[0]), Agent(url, tokens[1]), task


def previewed(agent: Agent, operation: str, **parameters: Any) -> str:
    is_refused, told = agent.use("preview", operation=operation, parameters=parameters)
    assert not is_refused, told
    token: str = json.loads(told)["data"]["token"]
    return token


def test_an_agent_without_the_right_previews_and_has_no_apply(
    steering: tuple[Agent, Agent, str],
) -> None:
    operator, viewer, task = steering
    token = previewed(viewer, "pause-task", task=task)
    mine = previewed(operator, "pause-task", task=task)
    listed = [one["name"] for one in viewer.ask("tools/list")[1]["result"]["tools"]]

    assert "apply" not in listed
    is_refused, told = viewer.use("apply", token=token)
    assert is_refused
    assert told.startswith("there is no tool 'apply'")
    is_refused, told = operator.use("apply", token=token)
    assert is_refused
    assert "the preview was made by viewer" in told
    assert not operator.use("apply", token=mine)[0]


def test_an_agents_token_that_is_old_cut_or_of_a_task_that_has_ended_is_refused(
    steering: tuple[Agent, Agent, str], monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    operator, _, task = steering
    token = previewed(operator, "set-quota", task=task, quota=5)
    assert (
        "not the token of a preview, or it is incomplete"
        in operator.use("apply", token=token[:-9])[1]
    )
    other = previewed(operator, "cancel-task", task=task)
    assert "not the token of a preview" in operator.use("apply", token=token[:46] + other[46:])[1]
    assert command("cancel", task, "--yes").exit_code == 0
    assert f"task {task} is cancelled" in operator.use("apply", token=token)[1]
    later_ms = now_ms() + 601_000
    monkeypatch.setattr("pushlane.operations.previewing.now_ms", lambda: later_ms)
    is_refused, told = operator.use("apply", token=token)

    assert (is_refused, told) == (
        True,
        "the preview is over ten minutes old: preview the change again",
    )


def test_an_agent_that_somebody_has_overtaken_is_shown_the_preview_of_now(
    steering: tuple[Agent, Agent, str], command: Command
) -> None:
    operator, _, _ = steering
    token = previewed(operator, "set-levels", weights="1:1:1")
    command("levels", "5:3:2")
    is_refused, told = operator.use("apply", token=token)
    shown = json.loads(told)

    assert is_refused
    assert "somebody has changed the same" in shown["data"]["refused"]
    assert shown["note"] == DATA
    assert not operator.use("apply", token=shown["data"]["preview"]["token"])[0]


def test_an_agent_suppresses_whom_it_was_given_and_is_shown_nobody(
    steering: tuple[Agent, Agent, str], command: Command
) -> None:
    operator, _, _ = steering
    asked = {"operation": "suppress", "parameters": {"values": ["anna@example.org"]}}
    _, told = operator.use("preview", **asked)
    data = json.loads(told)["data"]
    is_refused, done = operator.use("apply", token=data["token"])

    assert [one["told"] for one in data["counts"]] == ["suppresses 1 recipient (everywhere)"]
    assert not is_refused, done
    assert "anna" not in told + done
    assert command("suppress", "check", "anna@example.org").stdout == "suppressed: everywhere\n"
