"""The story of pushes: steps in the order of attempts, from the log, or a store and what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane import BadInput, MemoryBackend, Settings
from pushlane.backends.backend import Backend
from pushlane.core.task import Level, Task
from pushlane.model.access import Access, Role
from pushlane.operations.doing import do
from pushlane.operations.looks import GetPush, ListReceipts, ReceiptView
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.steps import StepView, steps_of
from pushlane.operations.stories import OF_LOG, OF_STORE
from pushlane.operations.tracing import TracePushes
from pushlane.operations.views import plain
from pushlane.pipeline.store import open_store
from pushlane.pipeline.store.writing import open_writer
from pushlane.util.errors import NotAllowed, NotFound, UnknownTask
from tests.operations.test_looks import ADMIN, deliver, filled, of_shop
from tests.receipt_bodies import NOON_MS, body
from tests.receipt_stores import OLDER, make_older, store_of


def receipt(outcome: str, attempt: int, sent: int, answered: int, **more: Any) -> ReceiptView:
    """One of a push that was submitted at noon; times in ms behind that."""
    given = {
        "push": "a-1",
        "task_id": "a",
        "seq": 1,
        "outcome": outcome,
        "reason": "",
        "attempt": attempt,
        "sink": "fcm",
        "recipient": "…",
        "submitted_at_ms": NOON_MS,
        "dispatched_at_ms": NOON_MS + sent,
        "responded_at_ms": NOON_MS + answered,
        "trace_id": "",
    }
    return msgspec.convert(given | more, ReceiptView)


def clicked(at: int) -> ReceiptView:
    return receipt("clicked", 0, 0, at, dispatched_at_ms=0, submitted_at_ms=0)


def told(steps: list[StepView]) -> list[tuple[str, str, int | None]]:
    return [(one.what, one.cause or one.outcome, one.took_ms) for one in steps]


RETRIED = receipt("retry", 1, 1_000, 1_050, waits={"quiet": 900, "share": 100})
QUIET = {"quiet": 900, "share": 100, "tried": 50, "retry": 400, "slot": 50}
DELIVERED = receipt("delivered", 2, 1_500, 1_520, waits=QUIET)


def test_between_two_attempts_stands_what_the_second_waited_more() -> None:
    steps = steps_of([DELIVERED, clicked(9_000), RETRIED])

    assert told(steps) == [
        ("submitted", "", None),
        ("wait", "quiet", 900),
        ("wait", "share", 100),
        ("attempt", "retry", 50),
        ("wait", "retry", 400),
        ("wait", "slot", 50),
        ("attempt", "delivered", 20),
        ("event", "clicked", None),
    ]
    assert not any(one.clock_off_ms for one in steps)
    waited = sum(one.took_ms or 0 for one in steps)
    assert waited == DELIVERED.responded_at_ms - NOON_MS


def test_attempts_stay_in_their_order_where_clocks_differ() -> None:
    behind = receipt("delivered", 2, 200, 220, waits=QUIET)
    steps = steps_of([behind, clicked(100), RETRIED])

    assert [one.outcome for one in steps if one.outcome] == ["retry", "delivered", "clicked"]
    assert [one.clock_off_ms for one in steps if one.clock_off_ms] == [200 - 1_050, 100 - 200]


def test_a_submit_whose_clock_is_ahead_is_said() -> None:
    [submitted, attempt] = steps_of([receipt("delivered", 1, -60_000, -59_990, waits={})])

    assert (submitted.clock_off_ms, attempt.clock_off_ms) == (60_000, 0)


def test_an_attempt_without_a_receipt_is_said_where_it_was() -> None:
    waits = {"quiet": 900, "share": 100, "tried": 80, "retry": 800}
    steps = steps_of([RETRIED, receipt("delivered", 3, 1_880, 1_900, waits=waits)])

    assert told(steps)[4:] == [
        ("missing", "", None),
        ("wait", "retry", 800),
        ("wait", "tried", 30),
        ("attempt", "delivered", 20),
    ]
    assert steps[4].attempt == 2


def test_a_wait_that_is_not_told_is_a_step_of_unknown_length() -> None:
    steps = steps_of([receipt("delivered", 1, 1_000, 1_050)])

    assert told(steps)[1] == ("wait", "", None)


def test_a_push_that_was_never_sent_has_its_end() -> None:
    gone = receipt("expired", 1, 0, 700, dispatched_at_ms=0, waits={"quiet": 700})

    assert told(steps_of([gone]))[1:] == [("wait", "quiet", 700), ("end", "expired", None)]


def test_what_a_dead_push_does_when_it_is_sent_again_comes_behind_its_death() -> None:
    dead = receipt("dead", 1, 1_000, 1_010, waits={"slot": 1_000})
    again = receipt("retry", 1, 90_000, 90_010, waits={"slot": 2})

    steps = steps_of([again, dead])

    assert [one.outcome for one in steps if one.outcome] == ["dead", "retry"]
    assert not any(one.clock_off_ms for one in steps)


def test_of_nothing_there_are_no_steps() -> None:
    assert steps_of([]) == []


@pytest.mark.parametrize(
    ("what", "of", "pushes"),
    [
        ("of-shop-2", "push", {"of-shop"}),
        ("t-1", "trace", {"of-shop", "of-bank"}),
        (" user-1 ", "recipient", {"of-shop", "of-bank"}),
    ],
)
async def test_a_push_is_found_by_its_id_its_trace_and_its_recipient(
    memory: MemoryBackend, settings: Settings, what: str, of: str, pushes: set[str]
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)

        found = await do(backend, settings, ADMIN, TracePushes.made(what=what))
        mine = await do(backend, settings, of_shop(), TracePushes.made(what=what))

    assert (found.of, found.source, found.more) == (of, OF_LOG, 0)
    assert {one.name for one in found.pushes} == pushes
    assert {one.name for one in mine.pushes} == {"of-shop"}
    assert {one.outcome for one in found.pushes} == {"dead"}
    assert "user-1" not in str(plain(found))


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


async def test_what_waits_has_no_steps_yet(memory: MemoryBackend, settings: Settings) -> None:
    async with filled(memory, settings) as backend:
        [push] = (await do(backend, settings, ADMIN, TracePushes(what="of-shop-1"))).pushes

    assert (push.steps, push.has_ended) == ([], False)


@pytest.mark.parametrize("what", ["nobody", "nobody-1", "of-bank-1"])
async def test_what_is_not_known_is_refused_and_not_repeated(
    memory: MemoryBackend, settings: Settings, what: str
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        with pytest.raises(NotFound, match="no task has that push") as caught:
            await do(backend, settings, of_shop(), TracePushes(what=what))

    assert what not in str(caught.value)


@pytest.mark.parametrize("what", ["sale", "sale-1"])
async def test_a_name_of_several_tasks_is_refused_with_their_ids(
    memory: MemoryBackend, settings: Settings, what: str
) -> None:
    async with filled(memory, settings) as backend:
        for one in ("t1", "t2"):
            await backend.registry.add(
                Task(id=one, level=Level.LOW, lane=f"task-{one}", name="sale")
            )
        with pytest.raises(UnknownTask, match=r"several tasks are named 'sale'.* t2 .*, t1 "):
            await do(backend, settings, ADMIN, TracePushes(what=what))


async def test_one_push_is_revealed_to_operators_and_that_is_in_the_audit(
    memory: MemoryBackend, settings: Settings
) -> None:
    operator = of_shop(Role.OPERATOR)
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        asked = TracePushes(what="of-shop-2", reveal=True)

        [push] = (await do(backend, settings, operator, asked)).pushes
        with pytest.raises(NotAllowed, match="to reveal a push needs"):
            await do(backend, settings, of_shop(), asked)
        with pytest.raises(BadInput, match="only one push at a time can be revealed"):
            await do(backend, settings, operator, TracePushes(what="t-1", reveal=True))
        [entry] = await do(backend, settings, operator, ListAudit())

    assert push.message is not None
    assert push.message.recipient == "user-1"
    assert (entry.operation, entry.subject) == ("trace-pushes", f"push/{push.push}")


async def test_of_many_the_newest_are_told_and_the_others_counted(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with memory.connect(settings) as backend:
        await backend.registry.add(Task(id="a", level=Level.HIGH, lane="task-a", app="shop"))
        traced = [
            body("a", [seq], at_ms=NOON_MS + 1_000 * seq, trace_id="t-9") for seq in range(1, 24)
        ]
        await backend.receipts.append([*traced, body("a", [23], "clicked", at_ms=NOON_MS + 99_000)])
        found = await do(backend, settings, ADMIN, TracePushes(what="t-9"))

    assert [one.seq for one in found.pushes] == [*range(23, 3, -1)]
    assert (found.more, found.is_cut) == (3, False)
    assert found.pushes[0].steps[-1].outcome == "clicked"


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize("what", [PARENT, OTHER, TRACE_ID])
@pytest.mark.parametrize("has_store", [False, True])
async def test_a_trace_is_all_that_has_its_id(
    memory: MemoryBackend, settings: Settings, tmp_path: Path, what: str, has_store: bool
) -> None:
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    async with memory.connect(settings) as backend:
        if has_store:
            await with_store(backend, settings, [STORED | {"trace_id": PARENT}])
        else:
            await backend.receipts.append([body("a", [1], trace_id=PARENT)])
        await backend.receipts.append([body("a", [2], trace_id=OTHER), body("a", [3])])
        found = await do(backend, settings, ADMIN, TracePushes(what=what))

    assert (found.of, {one.push for one in found.pushes}) == ("trace", {"a-1", "a-2"})


@pytest.mark.parametrize("lacking", OLDER, ids=["0.2", "no hashes"])
@pytest.mark.parametrize("which", [slice(None), slice(1), slice(1, None)])
@pytest.mark.parametrize("what", [PARENT, OTHER, TRACE_ID])
async def test_a_trace_is_found_in_files_without_hashes_and_beside_them(
    memory: MemoryBackend,
    settings: Settings,
    tmp_path: Path,
    lacking: Sequence[str],
    which: slice,
    what: str,
) -> None:
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    async with memory.connect(settings) as backend:
        await with_store(backend, settings, [STORED | {"trace_id": PARENT}])
        more = [STORED | {"seq": seq, "trace_id": text} for seq, text in ((2, OTHER), (3, "t-9"))]
        store_of(settings.reports_root, more)
        make_older(
            settings.reports_root,
            open_store(settings.reports_root).files("detail")[which],
            lacking,
        )
        found = await do(backend, settings, ADMIN, TracePushes(what=what))
        other = await do(backend, settings, ADMIN, TracePushes(what="t-9"))

    assert {one.push for one in found.pushes} == {"a-1", "a-2"}
    assert {one.push for one in other.pushes} == {"a-3"}


async def test_the_wait_of_a_push_is_that_of_its_last_attempt_whatever_clocks_say(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with memory.connect(settings) as backend:
        await backend.registry.add(Task(id="a", level=Level.HIGH, lane="task-a", app="shop"))
        told = [
            body("a", [1], "retry", at_ms=NOON_MS, waits={"slot": 400}),
            body("a", [1], at_ms=NOON_MS - 5_000, attempt=2, waits={"slot": 400, "retry": 900}),
        ]
        await backend.receipts.append(told)
        shown = await do(backend, settings, ADMIN, GetPush(push="a-1"))

    assert shown.waits == {"slot": 400, "retry": 900}
    assert shown.waited == "1.3 s: 900 ms backoff, 400 ms sink's capacity"


async def test_what_is_older_than_since_is_not_looked_for(
    memory: MemoryBackend, settings: Settings, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    async with memory.connect(settings) as backend:
        await with_store(backend, settings, [STORED])
        with pytest.raises(NotFound, match="or older"):
            await do(
                backend, settings, ADMIN, TracePushes(what="t-9", since_ms=NOON_MS + 86_400_000)
            )


async def with_store(backend: Backend, settings: Settings, rows: list[Mapping[str, Any]]) -> None:
    """A store that has read the log up to where it is now."""
    await backend.registry.add(
        Task(id="a", level=Level.HIGH, lane="task-a", app="shop", created_at_ms=NOON_MS)
    )
    store_of(settings.reports_root, rows)
    positions = await backend.receipts.advance(await backend.receipts.first())
    with open_writer(settings.reports_root) as writer:
        writer.publish("batch", writer.begin(), positions=positions)


STORED = {
    "task_id": "a",
    "outcome": "retry",
    "reason": "busy",
    "submitted_at_ms": NOON_MS,
    "dispatched_at_ms": NOON_MS + 1_000,
    "responded_at_ms": NOON_MS + 1_050,
    "waits": [("quiet", 900), ("share", 100)],
    "trace_id": "t-9",
    "recipient_hash": 7_919,
}


async def test_the_store_is_read_and_what_the_log_has_behind_it(
    memory: MemoryBackend, settings: Settings, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    async with memory.connect(settings) as backend:
        await backend.receipts.append([body("a", [1], "dead", at_ms=NOON_MS + 3)])
        await with_store(backend, settings, [STORED])
        waits = {"quiet": 900, "share": 1_000}
        later = body("a", [1], at_ms=NOON_MS + 2_000, attempt=2, waits=waits, trace_id="t-9")
        await backend.receipts.append([later])

        for asked in ("a-1", "t-9"):
            found = await do(backend, settings, ADMIN, TracePushes(what=asked))
            [push] = found.pushes
            assert (found.source, push.outcome) == (OF_STORE, "delivered")
            assert told([*push.steps])[1:] == [
                ("wait", "quiet", 900),
                ("wait", "share", 100),
                ("attempt", "retry", 50),
                ("wait", "share", 900),
                ("attempt", "delivered", 100),
            ]
        shown = await do(backend, settings, ADMIN, GetPush(push="a-1"))
        listed = await do(backend, settings, ADMIN, ListReceipts(task="a", seq=1))

    assert shown.receipts == listed.rows == push.receipts


async def test_the_store_shows_nothing_of_other_apps(
    memory: MemoryBackend, settings: Settings, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    bank = Caller("bob", "http", Access(Role.VIEWER, frozenset({"bank"})))
    async with memory.connect(settings) as backend:
        await with_store(backend, settings, [STORED])
        for asked in ("a-1", "t-9"):
            with pytest.raises(NotFound):
                await do(backend, settings, bank, TracePushes(what=asked))


async def test_a_push_of_a_task_that_was_forgotten_is_found_in_the_store(
    memory: MemoryBackend, settings: Settings, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    async with memory.connect(settings) as backend:
        await with_store(backend, settings, [{**STORED, "task_id": "gone", "outcome": "delivered"}])
        found = await do(backend, settings, ADMIN, TracePushes(what="gone-1"))

    [push] = found.pushes
    assert (found.of, push.task_state, push.outcome) == ("push", "", "delivered")


async def test_what_may_be_missing_is_said_wherever_receipts_are_read(
    memory: MemoryBackend, settings: Settings
) -> None:
    settings = msgspec.structs.replace(settings, receipts="off")
    async with filled(memory, settings) as backend:
        for asked in (
            TracePushes(what="of-shop-1"),
            GetPush(push="of-shop-1"),
            ListReceipts(trace_id="t-1"),
        ):
            notes: Any = plain(await do(backend, settings, ADMIN, asked))["notes"]
            assert "receipts are off" in notes[0]


async def test_events_are_found_with_their_pushes(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with memory.connect(settings) as backend:
        said = body("a", [1, 2], "clicked", at_ms=NOON_MS + 99)
        await backend.receipts.append([said, body("a", [1], trace_id="t-9")])

        found = await do(backend, settings, ADMIN, ListReceipts(trace_id="t-9"))

    assert [(one.seq, one.outcome) for one in found.rows] == [(1, "delivered"), (1, "clicked")]
