"""Functions by the type of a push: which one gets it, in which batches, and what is refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pushlane
from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.sinks.processor import TypeSink, batch, load_marked, on

DEADLINE_S = 30
SHOP = """
from pushlane import batch, on

CALLS = []

@on("order.paid")
def paid(push):
    CALLS.append(("paid", push.seq))

@on("order.*")
async def order(push):
    CALLS.append(("order", push.seq))

@on("news", "digest")
@batch(3)
def news(pushes):
    CALLS.append(("news", *(push.seq for push in pushes)))
    return [push.seq % 2 == 0 for push in pushes]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module of the user's, which is found in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name: str, text: str) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)

    return write


def push(seq: int, kind: Any = None, task: str = "task") -> Push:
    return Push(task, seq, "ann", data=None if kind is None else {"type": kind})


async def deliver(functions: dict[str, Any], *pushes: Push) -> list[Outcome]:
    sink = TypeSink(functions, 2, DEADLINE_S)
    try:
        return list(await sink.deliver([Delivery(each, Level.HIGH) for each in pushes]))
    finally:
        await sink.close()


def noting(calls: list[Any], name: str) -> Callable[[Push], None]:
    return lambda push: calls.append((name, push.seq))


async def test_each_push_goes_to_the_function_of_its_type(module: Any) -> None:
    module("shop_push", SHOP)
    sink = open_sink("on:shop_push", slots=4, timeout_s=DEADLINE_S)
    pushes = [push(1, "order.paid"), push(2, "order.lost"), push(3, "news"), push(4, "digest")]

    outcomes = await sink.deliver([Delivery(each, Level.HIGH) for each in pushes])
    await sink.close()

    calls = importlib.import_module("shop_push").CALLS
    assert sorted(calls) == [("news", 3, 4), ("order", 2), ("paid", 1)]
    assert [outcome.kind for outcome in outcomes] == [
        Kind.DELIVERED,
        Kind.DELIVERED,
        Kind.DEAD,
        Kind.DELIVERED,
    ]
    assert sink.batch_size == 3


async def test_a_full_type_goes_before_a_prefix_and_a_longer_prefix_before_a_shorter() -> None:
    calls: list[Any] = []
    names = ("a.*", "a.b.*", "a.b.c", "")
    functions = {name: noting(calls, name) for name in names}

    for seq, kind in enumerate(["a.b.c", "a.b.d", "a.x", "z"], start=1):
        await deliver(functions, push(seq, kind))

    assert calls == [("a.b.c", 1), ("a.b.*", 2), ("a.*", 3), ("", 4)]


@pytest.mark.parametrize("kind", [None, 7, "other"])
async def test_what_nobody_takes_goes_to_the_function_for_all_others(kind: Any) -> None:
    calls: list[Any] = []

    await deliver({"news": noting(calls, "news"), "": noting(calls, "others")}, push(1, kind))

    assert calls == [("others", 1)]


@pytest.mark.parametrize("kind", [None, 7, "order.secret"])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_push_that_nobody_handles_is_dead_and_its_type_is_not_told(
    kind: Any, count: int
) -> None:
    functions = {name: noting([], name) for name in ("order.paid", "news", "mail.*")}

    outcomes = await deliver(functions, *(push(seq, kind) for seq in range(1, count + 1)))

    for outcome in outcomes:
        assert (outcome.kind, outcome.arrival) == (Kind.DEAD, Arrival.REFUSED)
        assert outcome.reason.endswith("there are some for: mail.*, news, order.paid")


async def test_batches_are_of_one_function_and_one_task() -> None:
    calls: list[list[tuple[str, int]]] = []

    @batch(2)
    def news(pushes: list[Push]) -> None:
        calls.append([(each.task_id, each.seq) for each in pushes])

    @batch(10, mixes_tasks=True)
    def mail(pushes: list[Push]) -> None:
        calls.append([(each.task_id, each.seq) for each in pushes])

    seqs = range(1, 4)
    pushes = [push(seq, kind, task) for kind in ("news", "mail") for task in "xy" for seq in seqs]
    outcomes = await deliver({"news": news, "mail": mail}, *pushes)

    assert {outcome.kind for outcome in outcomes} == {Kind.DELIVERED}
    assert sorted(calls) == [
        [("x", 1), ("x", 2)],
        [("x", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 2), ("y", 3)],
        [("x", 3)],
        [("y", 1), ("y", 2)],
        [("y", 3)],
    ]


async def test_a_function_that_raises_leaves_the_others_alone() -> None:
    def fails(push: Push) -> None:
        raise ValueError("ann")

    @batch(5)
    def news(pushes: list[Push]) -> None:
        return None

    failed, sent = await deliver({"bad": fails, "news": news}, push(1, "bad"), push(2, "news"))

    assert (failed.kind, failed.arrival) == (Kind.RETRY, Arrival.UNKNOWN)
    assert failed.reason.startswith("processor raised ValueError at ")
    assert sent == Outcome.delivered()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def send(push): pass\n", "no function that is marked with @on"),
        (
            "from pushlane import on\n@on('a')\ndef one(p): pass\n"
            "@on('b', 'a')\ndef two(p): pass\n",
            r"one and two are both marked with @on\('a'\)",
        ),
        (
            "from pushlane import on\n@on()\ndef one(p): pass\n@on()\ndef two(p): pass\n",
            r"one and two are both marked with @on\(\)",
        ),
        ("1 / 0", "raised ZeroDivisionError on import"),
    ],
)
def test_a_module_that_leaves_open_who_gets_a_push_is_refused(
    module: Any, text: str, said: str
) -> None:
    module("shop_bad", text)

    with pytest.raises(BadInput, match=said):
        load_marked("shop_bad")


def test_a_function_of_two_names_is_one_function(module: Any) -> None:
    module("shop_names", "from pushlane import on\n@on('a')\ndef one(p): pass\ntwo = one\n")

    assert list(load_marked("shop_names")) == ["a"]


@pytest.mark.parametrize("name", ["", "*", "a.*.b"])
def test_a_type_that_cannot_be_meant_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"write @on\(\) for all other types"):
        on(name)


def test_it_is_a_public_name() -> None:
    assert pushlane.on is on
