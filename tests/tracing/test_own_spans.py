"""Spans of a processor's own, and where else its code goes on in a push's trace."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.propagate import inject

from pushlane import MemoryBackend, Outcome, Producer, Push, Settings, batch, testing
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, NO_SPAN
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.processor import ProcessorSink
from tests.core.support import MemorySink
from tests.tracing.conftest import URL, Kept

CALLER = f"00-{7:032x}-{8:016x}"
RECIPIENT = "somebody@example.com"


async def handled(processor: Any, *, rate: float = 1.0, trace_id: str = "", count: int = 1) -> None:
    """Have pushes processed by a dispatcher with traces on."""
    memory = MemoryBackend()
    async with Producer("orders", level="high", connect=memory.connect) as producer:
        for _ in range(count):
            await producer.apush(RECIPIENT, title="t", trace_id=trace_id)
    settings = Settings(trace_endpoint=URL, trace_sample=rate)
    await testing.run_until_idle(memory, processor, settings=settings)


def by_name(kept: Kept) -> dict[str, Any]:
    return {span.name: span for span in kept.spans}


def nested(push: Push) -> None:
    with push.span("render"), push.span("look up"):
        pass
    with push.span("post"):
        pass


async def nested_async(push: Push) -> None:
    with push.span("render"):
        await asyncio.sleep(0)
        with push.span("look up"):
            await asyncio.sleep(0)
    with push.span("post"):
        await asyncio.to_thread(lambda: None)


@pytest.mark.parametrize("processor", [nested, nested_async])
async def test_spans_of_a_processor_are_below_the_send(
    kept: Kept, processor: Callable[[Push], Any]
) -> None:
    await handled(processor)
    spans = by_name(kept)
    sent = spans["send high/{task}"].context

    assert spans["render"].parent.span_id == spans["post"].parent.span_id == sent.span_id
    assert spans["look up"].parent.span_id == spans["render"].context.span_id
    assert {span.context.trace_id for span in kept.spans} == {sent.trace_id}
    assert spans["render"].start_time <= spans["look up"].start_time
    assert spans["look up"].end_time <= spans["render"].end_time <= spans["post"].start_time
    assert spans["send high/{task}"].start_time <= spans["render"].start_time
    assert encode_spans(kept.spans).ByteSize()


@pytest.mark.parametrize(("rate", "trace_id"), [(0.0, ""), (1.0, f"{CALLER}-00")])
async def test_a_push_that_is_not_sampled_has_none(kept: Kept, rate: float, trace_id: str) -> None:
    found = []

    def processor(push: Push) -> None:
        found.append(push.span("render"))
        nested(push)

    await handled(processor, rate=rate, trace_id=trace_id)

    assert found == [NO_SPAN]
    assert kept.spans == []


async def test_each_push_of_a_batch_has_its_own(kept: Kept) -> None:
    @batch(10, mixes_tasks=True)
    def processor(pushes: list[Push]) -> None:
        with pushes[0].span("0 outer"):
            for number, push in enumerate(pushes):
                with push.span(f"{number} inner"):
                    pass

    await handled(processor, count=3)
    spans = by_name(kept)
    sent = {s.context.trace_id: s.context.span_id for s in kept.spans if s.name.startswith("send")}

    assert len(sent) == 3
    for number in range(3):
        inner = spans[f"{number} inner"]
        outer = spans["0 outer"].context.span_id if number == 0 else sent[inner.context.trace_id]
        assert inner.parent.span_id == outer


async def test_a_sink_of_somebodys_own_has_them_too(kept: Kept) -> None:
    def answer(delivery: Delivery) -> Outcome:
        nested(delivery.push)
        return DELIVERED

    await handled(MemorySink(answer, hosts_code=True))

    assert {"render", "look up", "post"} < set(by_name(kept))


async def test_what_is_raised_in_one_marks_it_and_is_not_told(kept: Kept) -> None:
    calls = []

    def processor(push: Push) -> None:
        calls.append(push.attempt)
        if len(calls) == 1:
            with push.span("render"):
                raise LookupError(push.recipient)
        with push.span("again"):
            pass

    await handled(processor)
    spans = by_name(kept)

    assert calls == [1, 2]
    assert spans["render"].status.status_code is trace.StatusCode.ERROR
    assert spans["render"].attributes["error.type"] == "LookupError"
    assert spans["again"].status.status_code is trace.StatusCode.UNSET
    sent = [span for span in kept.spans if span.name.startswith("send")]
    assert spans["render"].parent.span_id == sent[0].context.span_id
    assert spans["again"].parent.span_id == sent[1].context.span_id
    assert RECIPIENT not in "".join(span.to_json() for span in kept.spans)


async def test_a_thread_of_its_own_has_them_in_a_copy_of_the_context(kept: Kept) -> None:
    def processor(push: Push) -> None:
        with push.span("render"):
            thread = Thread(target=copy_context().run, args=(nested, push))
            thread.start()
            thread.join()

    await handled(processor)
    renders = [span for span in kept.spans if span.name == "render"]

    assert renders[0].parent.span_id == renders[1].context.span_id


def headers() -> dict[str, str]:
    """What an instrumented client would send on."""
    found: dict[str, str] = {}
    inject(found)
    return found


async def test_instrumented_code_goes_on_from_the_send_and_from_own_spans(kept: Kept) -> None:
    found: list[dict[str, str]] = []

    def processor(push: Push) -> None:
        found.append(headers())
        with push.span("render"):
            found.append(headers())
        found.append(headers())

    await handled(processor)
    spans = by_name(kept)
    ids = [one["traceparent"][36:52] for one in found]
    send, render = [
        f"{spans[name].context.span_id:016x}" for name in ("send high/{task}", "render")
    ]

    assert ids == [send, render, send]
    assert headers() == {}


@pytest.mark.parametrize("flag", ["00", "01"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_without_traces_instrumented_code_goes_on_from_the_caller(
    flag: str, is_async: bool
) -> None:
    found: list[dict[str, str]] = []

    def processor(push: Push) -> None:
        found.append(headers())

    async def processor_async(push: Push) -> None:
        found.append(headers())

    sink = ProcessorSink(processor_async if is_async else processor, 2, 30.0)
    for trace_id in (f"{CALLER}-{flag}", "order-4711", ""):
        await sink.deliver(
            [Delivery(Push("t", 1, "r", trace_id=trace_id, tracestate="shop=1"), Level.HIGH)]
        )
    await sink.close()

    assert found == [{"traceparent": f"{CALLER}-{flag}", "tracestate": "shop=1"}, {}, {}]


def test_it_works_without_opentelemetry_and_loads_none() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import asyncio\n"
        "from pushlane import MemoryBackend, Producer, testing\n"
        "seen = []\n"
        "def processor(push):\n"
        "    with push.span('render'), push.span('more'):\n"
        "        seen.append(push.recipient)\n"
        "memory = MemoryBackend()\n"
        "with Producer('orders', connect=memory.connect) as producer:\n"
        f"    producer.push('r', trace_id='{CALLER}-01')\n"
        "asyncio.run(testing.run_until_idle(memory, processor))\n"
        "assert seen == ['r']\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
