"""A message in hand: its pushes go one by one, and it knows how many are still to be settled."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import MalformedPush, OutdatedFormat, UnknownFormat
from pushlane.core.lane import Job, Lane, Message
from pushlane.core.ports import Taken
from pushlane.core.push import FORMAT, MAX_PUSH_BYTES, Push, encode
from pushlane.core.task import Level
from pushlane.wire import BUNDLE, fields_of, packed

LANE = Lane("task-t", Level.HIGH)
UNREADABLE = b"\x91\x07"  # an array, but its recipient is a number


def body_of(seq: int) -> bytes:
    return encode(Push("t", seq, f"to-{seq}", "title"))


def message_of(*seqs: int) -> Message:
    """A bundle of these."""
    [bundle] = packed(map(body_of, seqs), 512)
    return Message(Taken(bundle.message, "task-t", None))


def with_spoiled(seqs: Sequence[int], spoiled: dict[int, bytes]) -> Message:
    """A bundle of seqs that follow each other, in which some have these bytes for fields."""
    fields = [spoiled.get(seq, fields_of(body_of(seq))) for seq in seqs]
    body = msgspec.msgpack.encode([BUNDLE, "t", seqs[0], len(seqs), fields])
    return Message(Taken(body, "task-t", None))


def cut_short(*seqs: int) -> Message:
    whole = message_of(*seqs).taken.body
    return Message(Taken(whole[:-5], "task-t", None))


def push_of(job: Job) -> Push | None:
    """The push of a job, if it can be read."""
    return None if job.error else job.push


def taken_all(message: Message) -> list[Job]:
    taken = []
    while not message.is_spent:
        taken.append(message.take(LANE))
    return taken


def bits(seqs: Sequence[int], first_seq: int) -> int:
    return sum(1 << seq - first_seq for seq in seqs)


@pytest.mark.parametrize("seqs", [(1,), (1, 2, 3), (4, 7, 400)])
def test_pushes_are_taken_one_by_one_as_they_were_alone(seqs: tuple[int, ...]) -> None:
    message = message_of(*seqs)
    assert (message.task_id, message.seqs(), message.left) == ("t", list(seqs), len(seqs))

    for place, seq in enumerate(seqs):
        assert not message.is_spent
        held = message.take(LANE)
        assert (held.message, held.place, held.seq, held.error) == (message, place, seq, None)
        assert push_of(held) == Push("t", seq, f"to-{seq}", "title")
        assert held.body == body_of(seq)
        assert held.came_on == "task-t"
        assert message.seqs() == list(seqs[place + 1 :])

    assert message.is_spent
    assert message.left == len(seqs)  # none is settled


def test_a_push_that_came_alone_is_a_message_of_one() -> None:
    message = Message(Taken(body_of(9), "task-t", None))
    assert (message.task_id, message.seqs(), message.left) == ("t", [9], 1)

    held = message.take(LANE)

    assert (held.seq, push_of(held), held.body) == (9, Push("t", 9, "to-9", "title"), body_of(9))
    assert message.is_spent


@pytest.mark.parametrize(
    ("over", "rest"),
    [
        ([1, 2], [3, 4, 5]),
        ([3], [1, 2, 4, 5]),
        ([2, 4], [1, 3, 5]),
        ([4, 5], [1, 2, 3]),
        ([1, 5], [2, 3, 4]),
        ([], [1, 2, 3, 4, 5]),
        ([1, 2, 3, 4, 5], []),
    ],
)
def test_what_is_over_is_not_taken(over: list[int], rest: list[int]) -> None:
    message = message_of(1, 2, 3, 4, 5)

    assert message.drop(bits(over, 1), 1) == len(over)

    assert (message.seqs(), message.left) == (rest, len(rest))
    assert message.is_spent is not bool(rest)
    assert [held.seq for held in taken_all(message) if not held.error] == rest


def test_what_is_over_is_found_wherever_the_question_began() -> None:
    message = message_of(10, 12, 900)

    assert message.drop(bits([9, 11, 12, 13], 3), 3) == 1
    assert message.seqs() == [10, 900]
    assert message.drop(bits([900], 900), 900) == 1  # a part that leaves out its first
    assert message.seqs() == [10]


def test_what_is_told_twice_to_be_over_is_dropped_once() -> None:
    message = message_of(1, 2, 3)

    assert [message.drop(bits([2, 3], 1), 1) for _ in range(2)] == [2, 0]

    assert message.left == 1


@pytest.mark.parametrize(
    ("over", "dropped", "rest"),
    [([1, 2], 0, [3, 4, 5]), ([1, 3], 1, [4, 5]), ([4], 1, [3, 5]), ([2, 3, 4, 5], 3, [])],
)
def test_what_was_taken_is_settled_by_whoever_took_it(
    over: list[int], dropped: int, rest: list[int]
) -> None:
    message = message_of(1, 2, 3, 4, 5)
    first, second = message.take(LANE), message.take(LANE)

    assert message.drop(bits(over, 1), 1) == dropped

    assert (first.seq, second.seq, message.left) == (1, 2, 5 - dropped)
    assert [held.seq for held in taken_all(message)] == rest


@given(
    st.sets(st.integers(1, 60), min_size=1),
    st.lists(st.one_of(st.none(), st.tuples(st.integers(1, 60), st.integers(0, 2**60)))),
)
def test_none_is_left_exactly_when_all_are_settled_or_dropped(seqs, steps) -> None:
    """A step takes the next push, or drops what an answer says is over."""
    message = message_of(*sorted(seqs))
    waiting, taken, dropped = sorted(seqs), [], 0
    for step in steps:
        if step is not None:
            first_seq, answer = step
            dropped += message.drop(answer, first_seq)
            waiting = [
                seq for seq in waiting if seq < first_seq or not answer >> (seq - first_seq) & 1
            ]
        elif not message.is_spent:
            taken.append(message.take(LANE).seq)
            assert taken[-1] == waiting.pop(0)
        assert message.seqs() == waiting
        assert message.is_spent is not bool(waiting)
        assert message.left == len(taken) + len(waiting) == len(seqs) - dropped

    taken += [held.seq for held in taken_all(message)]
    for held in range(len(taken), 0, -1):
        assert message.left == held
        message.left -= 1
    assert message.left == 0


def test_one_that_cannot_be_read_spoils_no_other() -> None:
    message = with_spoiled([5, 6, 7, 8], {6: UNREADABLE})

    good, bad, *others = taken_all(message)

    assert [push_of(held) and push_of(held).seq for held in (good, *others)] == [5, 7, 8]
    assert push_of(good) == Push("t", 5, "to-5", "title")
    assert (bad.place, bad.seq, push_of(bad)) == (1, 6, None)
    assert isinstance(bad.error, MalformedPush)
    assert message.raw(bad.place) == UNREADABLE
    assert message.left == 4


@pytest.mark.parametrize(
    "spoiled",
    [b"", b"\x07", b"\x92\xa1", fields_of(body_of(6)) + b"\x07", b"\xdc", b"\xdc\xff\xff\x01"],
)
def test_whatever_stands_in_a_push_its_neighbours_are_read(spoiled: bytes) -> None:
    first, bad, last = taken_all(with_spoiled([5, 6, 7], {6: spoiled}))

    assert (push_of(first), push_of(last)) == (
        Push("t", 5, "to-5", "title"),
        Push("t", 7, "to-7", "title"),
    )
    assert (bad.seq, push_of(bad)) == (6, None)
    assert isinstance(bad.error, MalformedPush)
    assert bad.message.raw(bad.place) == spoiled


@pytest.mark.parametrize("extra", [("other", 99), ("t", 99), ("other", 6)], ids=str)
@pytest.mark.parametrize("place", [6, 7])
def test_one_that_is_too_short_takes_nothing_from_those_behind_it(
    place: int, extra: tuple[str, int]
) -> None:
    """Though as many are there in all, since another is too long."""
    fields = fields_of(body_of(5))
    short = b"\xdc" + (len(msgspec.msgpack.decode(fields)) + 1).to_bytes(2, "big") + fields[1:]
    long = fields_of(body_of(place)) + encode(Push(*extra, "somebody else"))

    held = taken_all(with_spoiled([5, 6, 7], {5: short, place: long}))

    assert [one.seq for one in held if push_of(one) is None] == [5, place]
    assert [push_of(one).seq for one in held if push_of(one) is not None] == [13 - place]


def test_of_one_that_is_too_large_the_start_is_kept() -> None:
    large = fields_of(encode(Push("t", 2, "to-2", body="x" * (MAX_PUSH_BYTES + 64))))
    first, bad, _ = taken_all(with_spoiled([1, 2, 3], {2: large}))

    assert push_of(first) is not None
    assert push_of(bad) is None
    assert bad.message.raw(bad.place) == large[:MAX_PUSH_BYTES]


def test_of_a_bundle_cut_short_every_seq_is_known() -> None:
    message = cut_short(3, 4, 9)
    assert (message.task_id, message.error, message.left) == ("t", None, 3)

    held = taken_all(message)

    assert [(one.seq, push_of(one)) for one in held] == [(3, None), (4, None), (9, None)]
    assert all(isinstance(one.error, MalformedPush) for one in held)
    raw = [message.raw(one.place) for one in held]
    assert raw == [message.taken.body, b"", b""]  # kept once


def test_what_is_over_of_a_bundle_cut_short_is_dropped_too() -> None:
    message = cut_short(3, 4, 9)

    assert message.drop(bits([4], 3), 3) == 1

    assert [one.seq for one in taken_all(message)] == [3, 9]
    assert message.left == 2


@pytest.mark.parametrize("body", [b"", b"\xffnonsense", bytes((0x95, BUNDLE, 0xA1))])
def test_what_tells_nothing_at_all_is_one_push_that_nobody_knows(body: bytes) -> None:
    message = Message(Taken(body, "task-t", None))
    assert (message.task_id, message.left) == ("", 1)

    [held] = taken_all(message)

    assert (push_of(held), held.error) == (None, message.error)
    assert isinstance(held.error, MalformedPush)
    assert message.raw(held.place) == body


def test_of_a_message_that_is_too_large_the_start_is_kept() -> None:
    body = encode(Push("t", 2, "to-2", body="x" * (MAX_PUSH_BYTES + 64)))
    [held] = taken_all(Message(Taken(body, "task-t", None)))

    assert isinstance(held.error, MalformedPush)
    assert held.message.raw(held.place) == body[:MAX_PUSH_BYTES]


@pytest.mark.parametrize("fields", [["t", [1, 2]], [], ["t", 1, 2, [b"", b""], "more"]])
def test_a_newer_format_is_said_to_be_one(fields: list[object]) -> None:
    body = msgspec.msgpack.encode([FORMAT + 1, *fields])
    message = Message(Taken(body, "task-t", None))
    assert (message.task_id, message.left) == ("", 1)

    [held] = taken_all(message)

    assert push_of(held) is None
    assert isinstance(held.error, UnknownFormat)


def test_a_batch_of_before_0_2_0_is_not_read() -> None:
    message = Message(Taken(body_of(1), "task-t", None, is_part=True))

    taken = message.take(LANE)

    assert (message.task_id, message.is_spent, push_of(taken)) == ("", True, None)
    assert isinstance(taken.error, OutdatedFormat)
    assert "run release 0.2.0" in str(taken.error)
