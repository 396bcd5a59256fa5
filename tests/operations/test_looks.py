"""Why a task waits, how it went, what became of its pushes: as --json has it, and for whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import pushlane.diagnosis.look
from pushlane import BadInput, Dispatcher, MemoryBackend, Outcome, Push, Settings, SubmitRequest
from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, State, Task, seal
from pushlane.model.access import Access, Role
from pushlane.model.presence import Resting, ServedSink, SinkTarget
from pushlane.model.read_bounds import ReadBounds
from pushlane.operations import long_reads
from pushlane.operations.doing import do
from pushlane.operations.long_reads import LongReads
from pushlane.operations.looks import (
    GetOverview,
    GetPush,
    GetResults,
    ListReceipts,
    WhyTask,
    _rounded,
)
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.shares import SetLimit
from pushlane.operations.views import plain
from pushlane.pipeline.store import open_store
from pushlane.producers.submit import submit
from pushlane.util.errors import NotAllowed, NotFound, NotNow, UnknownTask
from tests.core.support import DEADLINE_S
from tests.diagnosis.support import busy_sink, process_of
from tests.receipt_stores import NOON_MS, store_of

ADMIN = Caller("ada", "cli")
KINDS = ("delivered", "delivered", "dead")
MINUTE_MS = 60_000
ROWS = [{"recipient": f"user-{number}", "trace": f"t-{number}"} for number in range(3)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the two looks at a task follow each other without a second between."""
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


@asynccontextmanager
async def filled(memory: MemoryBackend, settings: Settings) -> AsyncIterator[Backend]:
    """One with a task each of the apps `shop` and `bank`, with the same recipients."""
    async with memory.connect(settings) as opened:
        for app in ("shop", "bank"):
            request = SubmitRequest(
                source=ROWS,
                level=Level.HIGH,
                name=f"of-{app}",
                app=app,
                title="Hi",
                trace_id="trace",
                retention_s=3_600,
            )
            await submit(opened, settings, request)
        yield opened


async def deliver(memory: MemoryBackend, settings: Settings) -> None:
    """Deliver all but the second push of each task."""

    def send(push: Push) -> Outcome | None:
        return Outcome.dead("no such number") if push.seq == 2 else None

    async with (
        asyncio.timeout(DEADLINE_S),
        Dispatcher.open(sink=send, settings=settings, connect=memory.connect) as dispatcher,
    ):
        await dispatcher.drained()


def of_shop(role: Role = Role.VIEWER) -> Caller:
    return Caller("bob", "http", Access(role, frozenset({"shop"})))


async def test_why_says_what_a_task_waits_for(memory: MemoryBackend, settings: Settings) -> None:
    async with filled(memory, settings) as backend:
        found = await do(backend, settings, of_shop(), WhyTask(task="of-shop"))

        shown = plain(found)
        assert [one["cause"] for one in shown["causes"]] == ["no_dispatcher"]
        assert (shown["state"], shown["shown_state"], shown["backlog"]) == ("running", "waiting", 3)
        assert not {"eta_s", "since"} & {*shown, *shown["causes"][0]}
        assert not found.has_ended


async def test_limits_of_others_that_cannot_be_read_are_not_named(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        for subject in ("app/shop", "app/bank"):
            await backend.documents.put("limit", subject, b'{"rate_per_s": "fast"}', None)

        mine = await do(backend, settings, of_shop(), WhyTask(task="of-shop"))
        all_of_them = await do(backend, settings, ADMIN, WhyTask(task="of-shop"))

        assert mine.unread_limits == ["app/shop"]
        assert sorted(all_of_them.unread_limits) == ["app/bank", "app/shop"]


async def test_the_overview_has_sinks_levels_and_the_worst_tasks(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        shown = plain(await do(backend, settings, ADMIN, GetOverview()))

        [sink] = shown["sinks"]
        assert (sink["name"], sink["served_by"], sink["left"]) == ("default", 0, 6)
        assert [(one["level"], one["tasks"]) for one in sink["levels"]] == [("high", 2)]
        assert [one["name"] for one in shown["tasks"]] == ["of-shop", "of-bank"]
        assert shown["states"] == {"waiting": 2}
        assert not shown["is_cut"]


async def test_results_count_by_receipts(settings: Settings, memory: MemoryBackend) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)

        shown = plain(await do(backend, settings, of_shop(), GetResults(task="of-shop")))

        assert (shown["total"], shown["counts"]["delivered"], shown["counts"]["dead"]) == (3, 2, 1)
        assert shown["reasons"] == [{"outcome": "dead", "reason": "no such number", "pushes": 1}]
        assert shown["delivery"]["n"] == 2
        assert "user-" not in str(shown)


async def test_results_of_what_has_not_begun_have_no_times(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        shown = plain(await do(backend, settings, ADMIN, GetResults(task="of-shop")))

        assert not {"per_s", "wait", "delivery"} & shown.keys()


@pytest.mark.parametrize("given", [{"recipient": " user-1 "}, {"trace_id": "t-1"}])
async def test_of_a_recipient_the_receipts_of_the_callers_apps_are_shown(
    settings: Settings, memory: MemoryBackend, given: Any
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)

        mine = await do(backend, settings, of_shop(), ListReceipts.made(**given))
        both = await do(backend, settings, ADMIN, ListReceipts.made(**given))

        shop = await backend.registry.get("of-shop")
        assert [(one.push, one.outcome) for one in mine.rows] == [(f"{shop.id}-2", "dead")]
        assert len(both.rows) == 2
        assert "user-1" not in str(plain(both))
        assert "recipient_hash" not in plain(mine)["rows"][0]


async def test_all_is_found_that_was_for_whom_a_push_was_for(
    settings: Settings, memory: MemoryBackend
) -> None:
    async with filled(memory, settings) as backend:
        asked = ListReceipts(recipient_of="of-shop-2")
        with pytest.raises(NotFound, match=r"no receipt of push .*-2 says whom it was for"):
            await do(backend, settings, ADMIN, asked)
        await deliver(memory, settings)

        both = await do(backend, settings, ADMIN, asked)
        mine = await do(backend, settings, of_shop(Role.OPERATOR), asked)

        shop, bank = [await backend.registry.get(f"of-{app}") for app in ("shop", "bank")]
        assert {one.push for one in both.rows} == {f"{shop.id}-2", f"{bank.id}-2"}
        assert [one.push for one in mine.rows] == [f"{shop.id}-2"]
        assert both.task_id is None
        assert "user-1" not in str(plain(both))


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER])
async def test_whom_a_push_was_for_is_nothing_for_who_may_not_reveal_it(
    settings: Settings, memory: MemoryBackend, role: Role
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        with pytest.raises(NotAllowed, match="needs operator"):
            await do(backend, settings, of_shop(role), ListReceipts(recipient_of="of-shop-2"))


async def test_whom_a_push_of_others_was_for_is_not_found(
    settings: Settings, memory: MemoryBackend
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        asked = ListReceipts(recipient_of="of-bank-2")
        with pytest.raises(UnknownTask):
            await do(backend, settings, of_shop(Role.OPERATOR), asked)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "say which receipts"),
        ({"seq": 3}, "a seq needs its task"),
        ({"recipient": ""}, "no push can have this value"),
        ({"recipient": "ada", "recipient_of": "of-shop-2"}, "give a recipient, or recipient_of"),
        ({"recipient_of": "of-shop"}, "is not a push"),
    ],
)
async def test_receipts_of_nothing_are_refused(
    memory: MemoryBackend, settings: Settings, given: Any, told: str
) -> None:
    async with filled(memory, settings) as backend:
        with pytest.raises(BadInput, match=told):
            await do(backend, settings, ADMIN, ListReceipts(**given))


async def test_a_push_shows_how_it_ended(settings: Settings, memory: MemoryBackend) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)

        shown = plain(await do(backend, settings, of_shop(), GetPush(push="of-shop-2")))

        assert (shown["outcome"], shown["reason"]) == ("dead", "no such number")
        assert (shown["has_ended"], shown["task_state"]) == (True, "done")
        assert [one["push"] for one in shown["receipts"]] == [shown["push"]]
        assert "message" not in shown
        assert "user-1" not in str(shown)


async def test_what_a_push_holds_is_for_operators_who_ask(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        asked = GetPush(push="of-shop-2", reveal=True)

        found = await do(backend, settings, of_shop(Role.OPERATOR), asked)
        with pytest.raises(
            NotAllowed, match="bob has the role submitter, and to reveal a push needs"
        ):
            await do(backend, settings, of_shop(Role.SUBMITTER), asked)

        assert plain(found)["message"] == {"recipient": "user-1", "title": "Hi", "body": ""}
        assert "user-1" not in repr(found)
        assert not {"outcome", "reason"} & plain(found).keys()


@pytest.mark.parametrize(
    ("push", "kind", "told"),
    [
        ("of-shop", BadInput, "'of-shop' is not a push: give its task and its number"),
        ("of-shop-4", NotFound, "has 3 pushes: there is no push 4"),
        ("of-shop-0", NotFound, "has 3 pushes: there is no push 0"),
        ("of-bank-1", NotFound, "there is no task 'of-bank'"),
    ],
)
async def test_a_push_that_there_is_not_is_refused(
    memory: MemoryBackend, settings: Settings, push: str, kind: type[Exception], told: str
) -> None:
    async with filled(memory, settings) as backend:
        with pytest.raises(kind, match=told):
            await do(backend, settings, of_shop(), GetPush(push=push))


async def test_where_seqs_have_steps_a_push_behind_the_total_is_shown(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        await backend.registry.change("of-shop", seal(3, 9))

        assert plain(await do(backend, settings, of_shop(), GetPush(push="of-shop-9")))["seq"] == 9
        with pytest.raises(NotFound, match="there is no push 10"):
            await do(backend, settings, of_shop(), GetPush(push="of-shop-10"))


async def test_who_looks_leaves_nothing_in_the_audit(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        for asked in (
            WhyTask(task="of-shop"),
            GetOverview(),
            GetPush(push="of-shop-1"),
        ):
            await do(backend, settings, ADMIN, asked)

        assert await do(backend, settings, ADMIN, ListAudit()) == []


async def test_who_has_a_push_revealed_is_in_the_audit_and_whom_it_was_for_is_not(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        asked = GetPush(push="of-shop-2", reveal=True)
        shown = await do(backend, settings, of_shop(Role.OPERATOR), asked)
        [entry] = await do(backend, settings, of_shop(Role.OPERATOR), ListAudit())

    assert (entry.who, entry.operation, entry.subject) == ("bob", "get-push", f"push/{shown.push}")
    assert entry.after == {"revealed": "recipient and content"}
    assert "user-1" not in str(plain(entry))


async def test_what_cannot_be_audited_is_not_revealed(
    memory: MemoryBackend, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unreachable("the registry does not answer")

    async with filled(memory, settings) as backend:
        monkeypatch.setattr(backend.documents, "put", away)
        with pytest.raises(Unreachable):
            await do(backend, settings, ADMIN, GetPush(push="of-shop-2", reveal=True))


def test_a_small_number_keeps_the_digits_that_people_see() -> None:
    shown = [_rounded(number, 2) for number in (None, 0.0, 1234.5678, 0.00123456, 12.3456)]

    assert shown == [None, 0.0, 1234.57, 0.001235, 12.35]


@pytest.mark.parametrize(
    "asked",
    [
        GetResults(task="of-shop"),
        ListReceipts(task="of-shop", seq=1),
        ListReceipts(trace_id="t-1"),
        GetPush(push="of-shop-1"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_reads_of_the_log_have_their_bounds(
    memory: MemoryBackend, settings: Settings, monkeypatch: pytest.MonkeyPatch, asked: Any
) -> None:
    monkeypatch.setattr(long_reads, "WAIT_S", 0.0)
    async with filled(memory, settings) as backend:
        too_long = LongReads(ReadBounds(at_once=1, most_s=0.0))
        with pytest.raises(BadInput, match="longer than 0 s"):
            await do(backend, settings, of_shop(), asked, reads=too_long)
        reads = LongReads(ReadBounds(at_once=1))
        async with reads.one():
            with pytest.raises(NotNow, match="reads receipts for at most 1 at once"):
                await do(backend, settings, of_shop(), asked, reads=reads)
        await do(backend, settings, of_shop(), asked, reads=reads)


def damage_counts(root: Path) -> None:
    for path in open_store(root).files("latency"):
        Path(path).write_bytes(b"PAR1")


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_why_says_where_the_wait_of_what_was_delivered_went(
    memory: MemoryBackend, settings: Settings, tmp_path: Path, is_damaged: bool
) -> None:
    """By the counts of a store of reports; why is told whether they can be read or not."""
    settings = msgspec.structs.replace(settings, reports_dir=tmp_path / "reports")
    waits = [("share", 8 * MINUTE_MS), ("slot", MINUTE_MS)]
    receipts = [{"task_id": "a", "outcome": kind, "waits": waits} for kind in KINDS]
    store_of(settings.reports_root, [*receipts, {"task_id": "b", "waits": [("quiet", MINUTE_MS)]}])
    if is_damaged:
        damage_counts(settings.reports_root)
    async with memory.connect(settings) as backend:
        made = Task(id="a", level=Level.HIGH, lane="task-a", created_at_ms=NOON_MS)
        await backend.registry.add(made)
        found = await do(backend, settings, ADMIN, WhyTask(task="a"))

    assert found.causes
    if is_damaged:
        assert (found.waited, found.so_far) == ((), "")
    else:
        assert [(one.cause, one.n) for one in found.waited] == [
            ("waited", 2),
            ("share", 2),
            ("slot", 2),
        ]
        assert re.fullmatch(
            r"so far a push waited [89](\.\d)? min: [78](\.\d)? min others' turns, "
            r"\d+(\.\d)? (s|min) sink's capacity \(mean of 2 delivered\)",
            found.so_far,
        )


async def test_where_a_resting_sink_delivers_to_is_told_to_who_sees_all_apps(
    memory: MemoryBackend, settings: Settings
) -> None:
    target = SinkTarget("webhook", "10.0.0.7:9000", "hash")
    rests = Resting("sink default (open)", 1, "no connection", 0)
    sink = ServedSink(name="default", target=target, slots=1, resting=rests)
    task = Task(id="t", level=Level.HIGH, lane="task-t", state=State.RUNNING, total=9)
    async with memory.connect(settings) as backend:
        await backend.registry.add(task)
        await backend.presence.announce(process_of(sink), 60)
        some = Caller("ada", "http", Access(Role.VIEWER, frozenset({"default"})))
        told, hidden = [
            str(plain(await do(backend, settings, one, WhyTask(task="t")))) for one in (ADMIN, some)
        ]

    assert "sink default (webhook at 10.0.0.7:9000) rests" in told
    assert "sink default rests" in hidden
    assert "10.0.0.7" not in hidden


@pytest.mark.parametrize("rests", [False, True])
async def test_no_limit_is_used_up_at_a_sink_that_rests(
    memory: MemoryBackend, settings: Settings, *, rests: bool
) -> None:
    why = Resting("sink default (open)", 1, "no connection", 0) if rests else None
    sink = replace(busy_sink(), resting=why)
    task = Task(id="t", level=Level.HIGH, lane="task-t", state=State.RUNNING, total=900)
    async with memory.connect(settings) as backend:
        await backend.registry.add(task)
        await backend.presence.announce(process_of(sink), 60)
        await do(backend, settings, ADMIN, SetLimit(subject="t", rate_per_s=20))

        found = await do(backend, settings, ADMIN, GetOverview())

    assert list(found.limits) == ([] if rests else ["task/t: 20 pushes/s, all of it used"])
