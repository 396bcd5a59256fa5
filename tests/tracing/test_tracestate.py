"""The tracestate of a push: how it comes in, and what may not travel is left out and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from pushlane import MemoryBackend, Producer, Settings, testing
from pushlane.backends.process_metrics import process_collector
from pushlane.core.push import MAX_PUSH_BYTES, Push, decode, encode
from pushlane.dispatcher.sinks.given import AnySink
from pushlane.util.tracestate import MOST_BYTES, LeftOut, kept_tracestate, read_tracestate
from tests.earlier_release import LAST, code_of, retried
from tests.tracing.conftest import URL, Kept

TRACEPARENT = f"00-{7:032x}-{8:016x}-01"
LONGEST = f"a={'x' * 254},b={'y' * 253}"


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> type[LeftOut]:
    """The count, which begins anew."""
    monkeypatch.setattr(LeftOut, "count", 0)
    return LeftOut


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("shop=1", "shop=1"),
        (" a=1 ,\t,b=two words , ", "a=1,b=two words"),
        ("tenant@system=x,0a_-*/=!", "tenant@system=x,0a_-*/=!"),
        (LONGEST, LONGEST),
        ("a=1," + " " * 600, "a=1"),
        ("a=1," + " " * 1_100, ""),
        ("", ""),
        (f"{LONGEST}z", ""),
        (",".join(f"k{number}=1" for number in range(33)), ""),
        ("a=1,a=2", ""),
        ("a", ""),
        ("=1", ""),
        ("a=", ""),
        ("A=1", ""),
        ("a=b=c", ""),
        ("a=é", ""),
        ("a=1\r\nb=2", ""),
        ("a=1\n", ""),
        ("x" * 2**20, ""),
    ],
)
def test_a_tracestate_is_read_whole_or_not_at_all(given: str, read: str) -> None:
    assert read_tracestate(given) == read
    assert len(read) <= MOST_BYTES


@pytest.mark.parametrize(
    ("traceparent", "given", "kept", "count"),
    [
        (TRACEPARENT, "a=1", "a=1", 0),
        (TRACEPARENT, "", "", 0),
        (TRACEPARENT, "none", "", 1),
        ("order 7", "a=1", "", 1),
        ("", "a=1", "", 1),
    ],
)
def test_what_is_left_out_is_counted(
    left_out: type[LeftOut], traceparent: str, given: str, kept: str, count: int
) -> None:
    assert kept_tracestate(traceparent, given) == kept
    assert left_out.count == count
    shown = {one.name: one.samples for one in process_collector({}).collect()}
    assert shown["pushlane_tracestates_left_out"][0].value == count


async def pushed(
    settings: Settings | None = None,
    sink: AnySink | None = None,
    *,
    trace_id: str = "",
    body: str = "",
    **state: str,
) -> list[Push]:
    """What a receiver got of a producer's push, made within a span with this tracestate."""
    memory, receiver = MemoryBackend(), testing.Receiver()
    states = trace.TraceState(list(state.items()))
    context = trace.SpanContext(7, 8, False, trace.TraceFlags(1), states)
    async with Producer("orders", connect=memory.connect) as producer:
        with trace.use_span(trace.NonRecordingSpan(context)):
            await producer.apush("r", body=body, trace_id=trace_id)
    await testing.run_until_idle(memory, sink or receiver, settings=settings)
    return receiver.pushes


async def test_a_producer_takes_that_of_the_current_span(left_out: type[LeftOut]) -> None:
    [found] = await pushed(shop="1", b="2")

    assert (found.trace_id, found.tracestate) == (TRACEPARENT, "shop=1,b=2")
    assert left_out.count == 0


async def test_with_a_trace_id_of_its_own_a_push_has_no_tracestate(
    left_out: type[LeftOut],
) -> None:
    [found] = await pushed(trace_id="order 7", shop="1")

    assert (found.trace_id, found.tracestate) == ("order 7", "")
    assert left_out.count == 0


async def test_one_that_is_too_long_is_left_out_and_the_push_goes(left_out: type[LeftOut]) -> None:
    [found] = await pushed(a="x" * 256, b="y" * 256)

    assert (found.trace_id, found.tracestate) == (TRACEPARENT, "")
    assert left_out.count == 1


async def test_a_push_that_is_too_large_with_it_goes_without(left_out: type[LeftOut]) -> None:
    [found] = await pushed(body="x" * (MAX_PUSH_BYTES - 200), a="y" * 256)

    assert (len(found.body), found.tracestate) == (MAX_PUSH_BYTES - 200, "")
    assert left_out.count == 1


async def test_spans_have_it_as_samplers_write_rates_into_it(kept: Kept) -> None:
    found: list[str] = []

    def processor(push: Push) -> None:
        with push.span("render"):
            found.append(push.tracestate)

    await pushed(Settings(trace_endpoint=URL), processor, ot="th:8")

    assert found == ["ot=th:8"]
    assert [span.context.trace_state.to_header() for span in kept.spans] == ["ot=th:8"] * 4
    assert encode_spans(kept.spans).ByteSize()


@pytest.mark.parametrize("waits", [None, b"w"])
def test_the_last_release_keeps_it_over_a_retry(tmp_path: Path, waits: bytes | None) -> None:
    push = Push("t", 1, "r", trace_id=TRACEPARENT, waits=waits, tracestate="shop=1")

    again = decode(retried(code_of(LAST, tmp_path), encode(push), 2_000_000_000_000))

    assert (again.attempt, again.trace_id, again.tracestate) == (2, TRACEPARENT, "shop=1")
    assert again.waits == waits
