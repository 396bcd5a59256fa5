"""What a client can do, side by side with the commands, and that it does it."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pushlane import (
    BadInput,
    Client,
    Dispatcher,
    InvalidChange,
    MemoryBackend,
    Outcome,
    Push,
    Settings,
    State,
    SubmitRequest,
    UnknownTask,
    UserError,
)
from pushlane.cli.main import _MODULES, commands_of
from pushlane.client.connection import Connection
from pushlane.client.operations import OPERATIONS
from pushlane.client.sync import SyncClient
from pushlane.core.errors import PushlaneError
from pushlane.core.push import Kind
from pushlane.model.recipients import EVERYWHERE, SuppressionScope
from tests.core.support import DEADLINE_S

OF_SPARK = "it runs Spark, or works on the store of reports"
OF_SETTINGS = "it reads the settings and sinks of the process that asks"
OF_OPERATORS = "it is for who runs pushlane, where it runs"
CLI_ONLY = {
    "sample": "it writes a file to begin with",
    "dispatch": "that is `Dispatcher`",
    "ingest *": "it feeds lanes from a process of its own, beside its source",
    "mcp": "an agent speaks with it",
    "spool *": "it is of a folder on the machine of a producer",
    **dict.fromkeys(("fanout", "rules serve", "pipeline *"), OF_SPARK),
    "alerts run": OF_SPARK,
    **dict.fromkeys(("sinks show", "sinks test", "config *"), OF_SETTINGS),
    **dict.fromkeys(("doctor", "stats-dump", "backup", "restore"), OF_OPERATORS),
    **dict.fromkeys(("registry *", "bootstrap", "demo", "up", "down"), OF_OPERATORS),
    **dict.fromkeys(("access *", "serve"), OF_OPERATORS),
}


def commands() -> set[str]:
    """All commands, like `dead list`."""
    found: set[str] = set()
    for name, module in _MODULES.items():
        command = commands_of(module)[name]
        parts = getattr(command, "commands", None)
        found |= {f"{name} {part}" for part in parts} if parts else {name}
    return found


def is_cli_only(command: str) -> bool:
    return command in CLI_ONLY or f"{command.partition(' ')[0]} *" in CLI_ONLY


def test_a_client_does_what_the_commands_do() -> None:
    done = {command for operation in OPERATIONS for command in operation.commands}

    assert done <= commands()
    assert {one for one in commands() - done if not is_cli_only(one)} == set()


def test_no_reason_is_left_of_a_command_that_is_not_there() -> None:
    there = commands() | {f"{one.partition(' ')[0]} *" for one in commands()}

    assert set(CLI_ONLY) - there == set()


def test_the_list_has_all_methods_of_a_client_and_of_the_one_that_blocks() -> None:
    listed = [operation.name for operation in OPERATIONS]
    methods = {
        name
        for name, member in inspect.getmembers(Client, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "do"
    }

    assert len(listed) == len(set(listed))
    assert set(listed) == methods
    assert {name for name in vars(SyncClient) if not name.startswith("_")} == methods
    for operation in OPERATIONS:
        blocking = getattr(SyncClient, operation.name)
        assert (blocking.__wrapped__, blocking.__doc__) == (operation.call, operation.call.__doc__)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_an_operation_has_plain_parameters_types_and_a_sentence(operation: Any) -> None:
    signature = inspect.signature(operation.call)
    kinds = {one.kind for one in signature.parameters.values()}

    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    assert signature.return_annotation is not inspect.Signature.empty
    assert operation.call.__doc__


ROWS = [{"recipient": f"user-{number}"} for number in range(4)]


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


async def submitted(client: Client, **options: Any) -> str:
    given: dict[str, Any] = {"source": ROWS, "level": "high", "title": "Hi", **options}
    return (await client.submit(SubmitRequest(**given))).task.id


async def delivered(memory: MemoryBackend, settings: Settings, sink: Any) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        Dispatcher.open(sink=sink, settings=settings, connect=memory.connect) as dispatcher,
    ):
        await dispatcher.drained()


async def test_tasks_are_found_by_what_they_have(memory, settings) -> None:
    async with Client(settings, connect=memory.connect) as client:
        sale = await submitted(client, name="sale", app="shop")
        news = await submitted(client, name="news", level="low")
        await client.pause(news)

        async def found(*states: str, **given: Any) -> list[str]:
            return [task.id for task in await client.tasks(states, **given)]

        assert await found() == [sale, news]
        assert await found(limit=1) == [news]
        assert await found(find="SAL") == [sale]
        assert await found(app="shop") == [sale]
        assert await found(level="LOW") == [news]
        assert await found("PAUSED") == [news]
        with pytest.raises(BadInput, match="unknown level 'urgent'"):
            await client.tasks(level="urgent")


async def test_it_waits_until_a_task_is_done(memory, settings) -> None:
    async with Client(settings, connect=memory.connect) as client:
        task_id = await submitted(client, key="sale")
        with pytest.raises(TimeoutError, match=f"task {task_id} is still running"):
            await client.wait("sale", timeout_s=0.01)
        async with Dispatcher.open(sink="null", settings=settings, connect=memory.connect):
            done = await client.wait("sale", timeout_s=timedelta(minutes=1))

        assert (done.id, done.state) == (task_id, State.DONE)
        assert done.delivered == 4
        results = await client.results(task_id)
        assert results.counts[Kind.DELIVERED] == 4
        story = await client.receipts(task_id, recipient="user-1")
        assert [(row.seq, row.outcome) for row in story.rows] == [(2, "delivered")]
        assert (await client.receipts(task_id, seq=2)).rows == story.rows
        assert (await client.why(task_id)).task_id == task_id
        assert (await client.overview()).states == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "say which receipts"),
        ({"seq": 3}, "a seq needs its task"),
        ({"recipient": 5}, "no push can have this value"),
    ],
)
async def test_receipts_of_nothing_are_refused(memory, settings, given: Any, told: str) -> None:
    async with Client(settings, connect=memory.connect) as client:
        with pytest.raises(BadInput, match=told):
            await client.receipts(**given)


async def test_dead_pushes_are_listed_retried_and_purged(memory, settings) -> None:
    def refuse(push: Push) -> Outcome:
        return Outcome.dead("no such number")

    async with Client(settings, connect=memory.connect) as client:
        task_id = await submitted(client, key="sale")
        await delivered(memory, settings, refuse)

        found = await client.dead(task="sale", newer_than="1h", limit=3)
        assert [(one.push, one.reason) for one in found] == [
            (f"{task_id}-{seq}", "no such number") for seq in (1, 2, 3)
        ]
        assert all(one.message is None for one in found)
        one = await client.dead_push(found[1].push)
        assert one.message is not None
        assert (one.message.recipient, one.message.title) == ("user-1", "Hi")
        assert "user-1" not in repr(one)

        [retried] = await client.retry_dead(found[0].push)
        assert (retried.task, retried.pushes) == (task_id, 1)
        assert await client.purge_dead(older_than=timedelta(hours=1)) == 0
        assert await client.purge_dead([found[1].push]) == 1
        assert await client.purge_dead(all_there_are=True) == 2
        with pytest.raises(UserError, match=f"there is no dead push {found[1].push}"):
            await client.dead_push(found[1].push)


async def test_dead_pushes_that_nothing_chooses_are_left(memory, settings) -> None:
    async with Client(settings, connect=memory.connect) as client:
        with pytest.raises(BadInput, match="say which dead pushes"):
            await client.purge_dead()
        with pytest.raises(BadInput, match="say which dead pushes"):
            await client.retry_dead()
        with pytest.raises(
            BadInput, match="nothing is dead for longer than 7200 s and for less than 3600 s"
        ):
            await client.dead(older_than="2h", newer_than="1h")
        with pytest.raises(UnknownTask):
            await client.dead(task="sale")


async def test_what_is_suppressed_is_counted_and_cleared(memory, settings, tmp_path: Path) -> None:
    file = tmp_path / "left.csv"
    file.write_text("who\nuser-7\nuser-8\n")
    async with Client(settings, connect=memory.connect) as client:
        assert (await client.suppress(["user-1", "user-2"], app="shop")).changed == 2
        assert (await client.suppress(file, column="who")).changed == 2
        assert (await client.unsuppress(["user-7", "user-9"])).changed == 1

        shop = SuppressionScope("app", "shop")
        assert await client.suppressions() == {shop: 2, EVERYWHERE: 1}
        assert await client.suppressed_in("user-1") == [shop]
        assert await client.clear_suppressions(app="shop") == 2
        assert await client.suppressions() == {EVERYWHERE: 1}
        with pytest.raises(BadInput, match="values is one text; give a list of texts, or the Path"):
            await client.suppress("user-1")
        assert (await client.register_addresses("fcm", ["token-1"])).given == 1
        assert await client.dead_addresses(timedelta(days=2)) == []


async def test_a_task_that_has_ended_is_forgotten(memory, settings) -> None:
    async with Client(settings, connect=memory.connect) as client:
        task_id = await submitted(client)
        with pytest.raises(InvalidChange):
            await client.forget(task_id)
        await client.cancel(task_id)

        await client.forget(task_id)

        assert await client.tasks() == []


async def test_limits_are_set_as_people_write_them_and_cleared(memory, settings) -> None:
    async with Client(settings, connect=memory.connect) as client:
        assert (await client.set_limit("app/shop", rate_per_s="600/min")).limit.rate_per_s == 10
        await client.set_app_quota("shop", 3)

        assert (await client.limit("app/shop")).limit.quota == 3
        assert [one.subject for one in await client.limits()] == ["app/shop"]
        assert (await client.clear_limit("app/shop")).limit.rate_per_s is None
        assert (await client.app_quota("shop")).quota == 3
        assert (await client.clear_app_quota("shop")).quota is None
        with pytest.raises(BadInput, match="rate_per_s '5/year' is not a rate"):
            await client.set_limit("app/shop", rate_per_s="5/year")


def test_a_client_of_a_loop_that_is_closed_says_so(memory, settings) -> None:
    client: Connection = Client(settings, connect=memory.connect)
    asyncio.run(client.__aenter__())

    async def use() -> None:
        await Client.tasks(client)  # type: ignore[arg-type]

    with pytest.raises(PushlaneError, match="was opened on another event loop; open one on each"):
        asyncio.run(use())
