"""How a task went, by its receipts: each push once, and what is not known is said to be lacking."""

from __future__ import annotations

from pushlane.core.push import Kind
from pushlane.core.task import Level, Progress, Task
from pushlane.diagnosis.ends import FirstEnds
from pushlane.diagnosis.results import (
    MOST_REASONS,
    Results,
    TaskReceipts,
    Times,
    row_of,
    rows_of,
)
from pushlane.model.reasons import Reasons
from pushlane.model.receipt import decode_receipts
from pushlane.model.wait_words import WAITED, WaitPart
from tests.receipt_bodies import NOON_MS, body

TASK = Task(id="a", level=Level.HIGH, lane="task-a")
NOTHING = Reasons("a")


def results(*bodies: bytes, progress: Progress | None = None, known: Reasons = NOTHING) -> Results:
    receipts = TaskReceipts("a")
    for one in bodies:
        receipts.add(decode_receipts(one))
    return receipts.results(TASK, progress or Progress("a"), known)


def test_each_push_counts_once_with_the_first_receipt_of_its_end() -> None:
    said = results(
        body("a", [1, 2, 3], "dead", at_ms=NOON_MS + 50, reason="HTTP 410"),
        body("a", [2, 3, 4], at_ms=NOON_MS),
        body("a", [1], "retry", at_ms=NOON_MS - 900),
        body("a", [4], "displayed", at_ms=NOON_MS - 900),
        body("b", [9], "expired"),
    )

    assert said.counts == {Kind.DELIVERED: 3, Kind.DEAD: 1, Kind.EXPIRED: 0, Kind.DROPPED: 0}
    assert said.reasons == [(Kind.DEAD, "HTTP 410", 1)]


def test_what_the_task_counts_beyond_its_receipts_is_lacking() -> None:
    said = results(
        body("a", [1, 2]), progress=Progress("a", delivered=5, dead=1, expired=0, dropped=0)
    )

    assert said.lacking == {Kind.DELIVERED: 3, Kind.DEAD: 1, Kind.EXPIRED: 0, Kind.DROPPED: 0}


def test_times_and_rate_are_of_what_was_delivered() -> None:
    said = results(body("a", range(1, 1001)), body("a", [2000], "dead", at_ms=NOON_MS + 9_900))

    assert said.wait == Times(1000, 300, 300, 300, 300)
    assert said.delivery == Times(1000, 100, 100, 100, 100)
    assert (said.first_at_ms, said.last_at_ms) == (NOON_MS - 100, NOON_MS + 9_900)
    assert said.per_s == 100.0


def test_nothing_is_said_of_what_is_not_known() -> None:
    said = results(body("b", [1, 2]))

    assert (said.per_s, said.wait, said.delivery, said.first_at_ms) == (None, None, None, 0)
    assert said.reasons == []


def test_a_number_that_no_task_has_takes_no_more_room_than_another() -> None:
    said = results(body("a", [1, 2**32 - 1]))

    assert said.counts[Kind.DELIVERED] == 2


def test_only_the_most_frequent_reasons_are_named() -> None:
    bodies = [
        body("a", range(100 * number, 101 * number), "dead", reason=f"HTTP {number}")
        for number in range(1, MOST_REASONS + 3)
    ]

    said = results(*bodies)

    assert len(said.reasons) == MOST_REASONS
    assert said.reasons[0] == (Kind.DEAD, "HTTP 22", 22)
    assert said.others == 1 + 2


def test_rows_are_those_that_count_each_once() -> None:
    batches = [
        decode_receipts(body("a", [1, 2], "dead", at_ms=NOON_MS + 50, reason="HTTP 410")),
        decode_receipts(body("a", [2], at_ms=NOON_MS)),
        decode_receipts(body("a", [2], at_ms=NOON_MS)),
    ]
    ends = [row_of(batch, row) for batch in batches for row in rows_of("a", batch)]
    firsts = FirstEnds()
    for end in ends:
        firsts.add(end.seq, end.responded_at_ms)

    rows = [end for end in ends if firsts.take(end.seq, end.responded_at_ms)]

    assert [(row.seq, row.outcome, row.reason) for row in rows] == [
        (1, "dead", "HTTP 410"),
        (2, "delivered", ""),
    ]
    assert {row.recipient for row in rows} == {"d***"}


def test_where_receipts_lack_the_reasons_are_those_that_the_task_has_counted() -> None:
    said = results(
        body("a", [1], "dead", reason="HTTP 410: gone"),
        body("a", [2], "dropped", reason="suppressed"),
        progress=Progress("a", dead=3, dropped=1),
        known=Reasons("a", dead={"HTTP 410": 3}, dropped={"suppressed": 1}),
    )

    assert said.counts == {Kind.DELIVERED: 0, Kind.DEAD: 3, Kind.EXPIRED: 0, Kind.DROPPED: 1}
    assert said.lacking[Kind.DEAD] == 2
    assert said.reasons == [(Kind.DEAD, "HTTP 410", 3), (Kind.DROPPED, "suppressed", 1)]


def test_the_wait_of_what_was_delivered_is_split_by_cause_the_largest_first() -> None:
    said = results(
        body("a", range(1, 20), waits={"share": 100, "quiet": 0, "slot": 300}),
        body("a", [20], waits={"share": 200, "quiet": 200}),
        body("a", [21], "dead", waits={"keys": 400}),
    )

    assert said.waits == [
        WaitPart(WAITED, 20, 8_000, 400, 400),
        WaitPart("slot", 19, 5_700, 300, 300),
        WaitPart("share", 20, 2_100, 100, 200),
        WaitPart("quiet", 1, 200, 200, 200),
    ]


def test_a_receipt_that_comes_before_another_takes_its_wait_back() -> None:
    said = results(
        body("a", [1], at_ms=NOON_MS + 50, waits={"share": 400}),
        body("a", [1], at_ms=NOON_MS, waits={"quiet": 400}),
        body("a", [2], at_ms=NOON_MS + 50, waits={"share": 400}),
        body("a", [2], at_ms=NOON_MS),
    )

    assert said.waits == [WaitPart(WAITED, 1, 400, 400, 400), WaitPart("quiet", 1, 400, 400, 400)]


def test_receipts_of_an_older_version_tell_nothing_of_waits() -> None:
    said = results(body("a", [1, 2]), body("a", [3], waits={}), body("a", [4], waits={"slot": 0}))

    assert said.waits == []
    assert said.wait is not None


def test_a_receipt_says_its_parts_and_none_where_it_does_not_know() -> None:
    told = decode_receipts(body("a", [1], waits={"slot": 400, "quiet": 0}))
    older = decode_receipts(body("a", [1]))

    assert row_of(told, 0).waits == {"slot": 400}
    assert row_of(older, 0).waits is None
