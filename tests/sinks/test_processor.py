"""A user's own function as a sink: what it may return, and what happens when it fails or hangs."""

import asyncio
import sys
import threading
from functools import partial

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.sinks.processor import ProcessorSink, batch, load

DEADLINE_S = 30
HERE = "tests/sinks/test_processor.py"


def unheard(reason):
    """A retry of what may have arrived."""
    return Outcome.retry(reason, arrival=Arrival.UNKNOWN)


def deliveries(count=1):
    return [Delivery(Push("task", seq, "x@y", "t", "b"), Level.LOW) for seq in range(1, count + 1)]


async def deliver(function, count=1, *, timeout_s=DEADLINE_S, **options):
    sink = ProcessorSink(function, 2, timeout_s, **options)
    try:
        return await sink.deliver(deliveries(count))
    finally:
        await sink.close()


@pytest.mark.parametrize("make_async", [False, True])
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, Outcome.delivered()),
        (True, Outcome.delivered()),
        (False, Outcome.dead("processor returned False")),
        (Outcome.retry("later", 3.0), Outcome.retry("later", 3.0)),
    ],
)
async def test_what_a_function_returns_is_the_outcome(make_async, answer, outcome):
    async def answers_async(push):
        return answer

    assert await deliver(answers_async if make_async else lambda push: answer) == [outcome]


async def test_a_function_gets_the_push():
    seen = []
    await deliver(seen.append)
    assert [push.push_id for push in seen] == ["task-1"]


async def test_a_batch_function_gets_a_list_and_answers_each():
    @batch(10)
    def process(pushes):
        return [push.seq != 2 for push in pushes]

    kinds = [outcome.kind for outcome in await deliver(process, 3)]
    assert kinds == [Kind.DELIVERED, Kind.DEAD, Kind.DELIVERED]


async def test_one_answer_of_a_batch_function_counts_for_all():
    @batch(10)
    async def process(pushes):
        return None

    assert await deliver(process, 3) == [Outcome.delivered()] * 3


def test_the_decorator_sets_what_the_dispatcher_asks_of_a_sink():
    sink = ProcessorSink(batch(7, mixes_tasks=True)(lambda pushes: None), 2, 1.0)
    assert (sink.batch_size, sink.mixes_tasks) == (7, True)
    plain = ProcessorSink(print, 2, 1.0)
    assert (plain.batch_size, plain.mixes_tasks) == (1, False)


async def test_a_wrong_answer_pauses_the_task_and_loses_no_push():
    (outcome,) = await deliver(lambda push: {"ok": 1})
    assert outcome.pause_task
    assert "returned a dict" in outcome.reason


async def test_a_list_of_the_wrong_length_pauses_the_task():
    outcomes = await deliver(batch(5)(lambda pushes: [None]), 2)
    assert [outcome.pause_task for outcome in outcomes] == [True, True]
    assert "1 outcomes for 2 pushes" in outcomes[0].reason


@pytest.mark.parametrize("error", [ValueError, TimeoutError, SystemExit, StopIteration])
async def test_what_a_function_raises_is_retried_and_only_its_name_is_kept(error):
    def process(push):
        raise error(push.recipient)

    place = f"{HERE}:{process.__code__.co_firstlineno + 1} in process"
    assert await deliver(process) == [unheard(f"processor raised {error.__name__} at {place}")]


async def test_what_an_async_function_raises_is_retried():
    async def process(push):
        raise KeyError(push.recipient)

    place = f"{HERE}:{process.__code__.co_firstlineno + 1} in process"
    assert await deliver(process) == [unheard(f"processor raised KeyError at {place}")]


async def hangs(push):
    await asyncio.Event().wait()


def timed_out(kind):
    return Outcome(kind, "timed out after 0.01 s", arrival=Arrival.UNKNOWN, is_silent=True)


async def test_a_hanging_function_is_dead_since_it_may_have_delivered():
    assert await deliver(hangs, timeout_s=0.01) == [timed_out(Kind.DEAD)]


async def test_a_hanging_function_is_retried_when_asked():
    outcomes = await deliver(hangs, timeout_s=0.01, retry_timeouts=True)
    assert outcomes == [timed_out(Kind.RETRY)]


async def test_threads_that_hang_are_replaced_up_to_a_bound_then_tasks_pause():
    release = threading.Event()

    sink = ProcessorSink(lambda push: release.wait(DEADLINE_S), 2, 0.01)
    try:
        first, second, third = [(await sink.deliver(deliveries()))[0] for _ in range(3)]
    finally:
        release.set()
        await sink.close()

    assert first.kind is second.kind is Kind.DEAD
    assert third.pause_task
    assert "2 calls of the processor never came back" in third.reason


async def test_a_sync_function_does_not_hold_up_the_event_loop():
    meet = threading.Barrier(2)

    sink = ProcessorSink(lambda push: meet.wait(DEADLINE_S) >= 0, 2, DEADLINE_S)
    try:
        outcomes = await asyncio.gather(sink.deliver(deliveries()), sink.deliver(deliveries()))
    finally:
        await sink.close()

    assert outcomes == [[Outcome.delivered()], [Outcome.delivered()]]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of the user's into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


async def test_a_function_is_found_in_the_current_folder(module):
    module("my_processor", "class A:\n  @staticmethod\n  def send(push): return True\n")
    sink = open_sink("my_processor:A.send", slots=1, timeout_s=5.0)
    assert await sink.deliver(deliveries()) == [Outcome.delivered()]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module:send", "there is no module 'no_such_module'"),
        ("my_broken:send", "my_broken' raised ZeroDivisionError on import"),
        ("my_good:sent", "my_good has no 'sent'; did you mean 'send'"),
        ("my_good:NUMBER", "is a int, not a function"),
    ],
)
def test_a_spec_that_leads_to_no_function_says_why(module, spec, message):
    module("my_broken", "1 / 0")
    module("my_good", "NUMBER = 3\ndef send(push): pass\n")
    with pytest.raises(BadInput, match=message):
        load(spec)


def test_a_batch_under_one_is_refused():
    with pytest.raises(BadInput, match="batch size 0"):
        batch(0)


async def test_what_a_batch_function_raises_names_its_place_for_each_push():
    @batch(10)
    def process(pushes):
        raise KeyError(pushes[0].recipient)

    reasons = {outcome.reason for outcome in await deliver(process, 3)}
    assert reasons == {f"processor raised KeyError at {place_in(process, 2)}"}


async def test_errors_are_logged_with_their_places_and_no_values(caplog):
    def fails(push):
        raise KeyError(push.recipient)

    def process(push):
        fails(push)

    await deliver(process)

    [line] = [record.getMessage() for record in caplog.records]
    called = f", called from {place_in(process, 1)}"
    name = f"{process.__module__}:{process.__qualname__}"
    assert line == f"processor {name} raised KeyError at {place_in(fails, 1)}{called}"
    assert "x@y" not in caplog.text


async def test_a_cause_is_named_with_its_place():
    def fails(push):
        raise KeyError(push.recipient)

    def process(push):
        try:
            fails(push)
        except KeyError as error:
            raise RuntimeError(push.recipient) from error

    [outcome] = await deliver(process)
    assert outcome.reason == (
        f"processor raised RuntimeError from KeyError at {place_in(fails, 1)}"
    )


def place_in(function, line):
    return f"{HERE}:{function.__code__.co_firstlineno + line} in {function.__name__}"


class Sender:
    def __call__(self, push):
        return None

    def two(self, push, other):
        return None


def two(push, other):
    return None


def none():
    return None


def two_of_a_batch(pushes, other):
    return None


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (two, r"takes \(push, other\), but is called with one argument, the push.*def two\(push\)"),
        (none, r"takes \(\), but is called"),
        (batch(5)(two_of_a_batch), r"one argument, a list of pushes.*two_of_a_batch\(pushes\)"),
        (lambda *, push: None, r"takes \(push\), but is called"),
        (Sender().two, r"takes \(push, other\)"),
        (Sender, "is a class, not a function"),
        (7, "cannot be called"),
    ],
)
def test_a_function_that_takes_no_single_push_is_refused_at_the_start(function, told):
    with pytest.raises(BadInput, match=told):
        ProcessorSink(function, 2, 1.0)


@pytest.mark.parametrize(
    "function",
    [print, [].append, Sender(), partial(two, other=1), lambda push, *, key=None: None, max],
)
def test_what_can_be_called_with_one_push_is_taken(function):
    assert ProcessorSink(function, 2, 1.0).batch_size == 1


def test_a_default_is_not_shown():
    with pytest.raises(BadInput) as refused:
        ProcessorSink(lambda push, other, key="s3cr3t": None, 2, 1.0)
    assert "s3cr3t" not in str(refused.value)


def test_a_syntax_error_names_the_line_of_the_module(tmp_path, monkeypatch):
    (tmp_path / "my_syntax.py").write_text("import os\ndef send(push:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    with pytest.raises(BadInput, match=r"raised SyntaxError on import, at my_syntax\.py:2$"):
        load("my_syntax:send")
