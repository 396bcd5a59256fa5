"""Log lines about a push have its id and its trace's, and nothing else of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pushlane import Outcome
from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher.checked_sink import CheckedSink
from pushlane.dispatcher.sinks.http_client import Posts
from pushlane.dispatcher.sinks.processor import ProcessorSink, RaisedLog
from pushlane.util.log_ids import AtHand, ids_at_hand, ids_of
from pushlane.util.texts import Raised
from tests.core.support import MemorySink

TRACE_ID = f"{7:032x}"
IDS = {"push_id": "t-1", "trace_id": TRACE_ID}


def delivery(seq: int = 1, trace_id: str = f"00-{TRACE_ID}-{8:016x}-00") -> Delivery:
    return Delivery(Push("t", seq, "somebody@x", trace_id=trace_id), Level.HIGH)


def told(caplog: pytest.LogCaptureFixture, action: str) -> list[dict[str, str]]:
    """The ids in lines of this action."""
    lines = [vars(one) for one in caplog.records if getattr(one, "action", "") == action]
    return [{name: one[name] for name in IDS if name in one} for one in lines]


@pytest.mark.parametrize(
    ("trace_id", "traceparent", "ids"),
    [
        (f"00-{TRACE_ID}-{8:016x}-00", "", IDS),
        ("", f"00-{TRACE_ID}-{9:016x}-01", IDS),
        ("order of somebody@x", "", {"push_id": "t-1"}),
        ("", "", {"push_id": "t-1"}),
    ],
)
def test_a_trace_id_of_somebodys_own_words_is_in_no_line(
    trace_id: str, traceparent: str, ids: dict[str, str]
) -> None:
    assert ids_of(delivery(trace_id=trace_id).push, traceparent) == ids


def fails(_: Any) -> Any:
    raise LookupError("somebody@x")


@pytest.mark.parametrize(
    ("answer", "action"), [(fails, "sink_raised"), (lambda _: "ok", "sink_misanswered")]
)
async def test_a_sink_that_fails_for_one_push_names_it(
    caplog: pytest.LogCaptureFixture, answer: Any, action: str
) -> None:
    sink = CheckedSink(MemorySink(answer, batch_size=2))
    await sink.deliver([delivery()])
    await sink.deliver([delivery(1), delivery(2)])

    assert told(caplog, action) == [IDS, {}]


class Reads(Posts):
    """A sink that cannot read an answer."""

    name = "reads"

    async def send(self, delivery: Delivery) -> Outcome:
        return Outcome.delivered()

    def posted(self, delivery: Delivery, answered: Any, token: Any) -> bool:
        answered(token, object())
        return True

    outcome = staticmethod(fails)

    async def close(self) -> None:
        """It holds nothing."""


def test_an_answer_that_a_sink_fails_at_names_its_push(caplog: pytest.LogCaptureFixture) -> None:
    found: list[Outcome] = []
    Reads().post(delivery(), lambda token, outcome: found.append(outcome), "token")

    assert [one.reason for one in found] == ["sink raised LookupError"]
    assert told(caplog, "sink_raised") == [IDS]


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_processor_logs_has_the_ids_of_its_push(
    caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    found: list[dict[str, str]] = []

    def processor(push: Push) -> None:
        found.append(ids_at_hand())
        fails(push)

    async def processor_async(push: Push) -> None:
        processor(push)

    sink = ProcessorSink(processor_async if is_async else processor, 2, 30.0)
    with caplog.at_level(logging.WARNING):
        await sink.deliver([delivery()])
    await sink.close()

    assert found == [IDS]
    assert told(caplog, "processor_raised") == [IDS]
    assert ids_at_hand() == {}
    assert "somebody" not in caplog.text


def test_a_line_that_counts_errors_names_no_push(caplog: pytest.LogCaptureFixture) -> None:
    times, error = iter((0.0, 60.0)), Raised("KeyError", ("shop.py:12 in send",))
    heard = RaisedLog("shop:send", lambda: next(times))
    for seq in (1, 2):
        with AtHand([delivery(seq)]):
            heard.hear(error)

    assert told(caplog, "processor_raised") == [IDS, {}]
