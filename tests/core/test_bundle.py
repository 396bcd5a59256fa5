"""Bundles: what is packed comes out as it was, is cut at the same places, and bad bytes harm none.

A bundle that is sent again is kept once only if it is the same one: hence the laws about borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushlane.core.errors import MalformedPush, UnknownFormat
from pushlane.core.push import MAX_PUSH_BYTES, MAX_SEQ, Push, decode, encode
from pushlane.wire import (
    MOST_BYTES,
    MOST_PUSHES,
    Bundle,
    Packed,
    bodies_of,
    fields_of,
    is_bundle,
    numbered,
    open_bundle,
    open_message,
    packed,
    unnumbered,
)

MOST_FRAME_BYTES = 8 * 1024  # of a bundle besides its pushes
FIELDS = msgspec.msgpack.decode(encode(Push("t1", 1, "to-1", "Hello", "words")))[2:]
ODD = [
    b"",
    b"\xc1",
    b"\x93",
    b"words",
    b"\xdc\x00",
    b"\xdc\xff\xff\x00",
    b"\xdd\xff\xff\xff\xff\xa0",
]

pack = msgspec.msgpack.encode

task_ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
mosts = st.integers(1, MOST_PUSHES)
numbers = st.integers(1, MAX_SEQ)
steps = st.lists(
    st.integers(1, 200).map(lambda step: 1 if step < 150 else step) | st.integers(1, 2**24),
    max_size=150,
)
new_fields = st.lists(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.lists(st.booleans()),
    max_size=40,
)
contents = st.tuples(st.integers(1, len(FIELDS)), st.booleans(), new_fields)


@st.composite
def rising_seqs(draw: st.DrawFn) -> list[int]:
    """Some that follow each other, some that do not."""
    first = draw(st.integers(1, 300) | numbers)
    seqs = list(accumulate(draw(steps), initial=first))
    return [seq for seq in seqs if seq <= MAX_SEQ]


def body(task_id: str, seq: int, size: int = 0) -> bytes:
    return encode(Push(task_id, seq, f"to-{seq}", body="x" * size))


def body_of_some_version(task_id: str, seq: int, content: tuple[int, bool, list[Any]]) -> bytes:
    """An older one left out the last fields; a newer one has more behind them."""
    known, is_newer, new = content
    fields = [*FIELDS, None, None, "", None, "", *new] if is_newer else FIELDS[:known]
    return pack([task_id, seq, *fields])


def messages(task_id: str, seqs: Sequence[int], most: int) -> list[Packed]:
    return list(packed([body(task_id, seq) for seq in seqs], most))


def bundle_of(places: Any, pushes: list[bytes], first_seq: int = 7, task_id: str = "t1") -> bytes:
    return pack([2, task_id, first_seq, places, pushes])


GOOD = [fields_of(body("t1", seq)) for seq in (7, 8, 9)]


@given(task_ids, rising_seqs(), mosts, st.lists(contents, min_size=1, max_size=20))
def test_what_is_packed_comes_out_as_it_was_and_in_order(task_id, seqs, most, contents) -> None:
    bodies = [
        body_of_some_version(task_id, seq, contents[place % len(contents)])
        for place, seq in enumerate(seqs)
    ]

    found = list(packed(bodies, most))

    assert [one for message, *_ in found for one in bodies_of(message)] == bodies
    opened = [open_message(message) for message, *_ in found]
    assert [seq for bundle in opened for seq in bundle.seqs] == seqs
    for bundle, (_, last_seq, pushes) in zip(opened, found, strict=True):
        assert (bundle.task_id, bundle.problem) == (task_id, "")
        assert (bundle.seqs[-1], len(bundle)) == (last_seq, pushes)
    assert [one for bundle in opened for one in bundle.all_bodies()] == bodies


@given(task_ids, rising_seqs(), mosts)
def test_a_bundle_ends_behind_a_multiple_of_the_most_or_when_it_has_the_most(
    task_id, seqs, most
) -> None:
    found = [list(open_message(message).seqs) for message, *_ in messages(task_id, seqs, most)]

    assert all(len(bundle) <= most for bundle in found)
    assert all(seq % most for bundle in found for seq in bundle[:-1])
    assert all(bundle[-1] % most == 0 or len(bundle) == most for bundle in found[:-1])


@given(st.integers(1, 2_000), st.integers(1, 1_200), mosts)
@example(1, 1_100, MOST_PUSHES)
def test_seqs_that_follow_each_other_are_cut_at_every_multiple(first, count, most) -> None:
    seqs = range(first, first + count)

    found = [list(open_message(message).seqs) for message, *_ in messages("t1", seqs, most)]

    blocks = groupby(seqs, key=lambda seq: (seq - 1) // most)
    assert found == [list(block) for _, block in blocks]


sizes = st.lists(
    st.sampled_from([0, 9, 2_000, 60_000, MOST_BYTES // 3, MOST_BYTES // 2, MOST_BYTES + 1]),
    max_size=24,
)


@given(sizes, st.integers(2, 24))
def test_the_pushes_of_a_bundle_are_within_the_byte_limit_or_it_is_one_alone(sizes, most) -> None:
    bodies = [body("t1", seq, size) for seq, size in enumerate(sizes, start=1)]

    found = list(packed(bodies, most))

    for message, _, pushes in found:
        bundle = open_bundle(message)
        if pushes > 1:
            assert sum(len(bundle.fields(place)) for place in range(pushes)) <= MOST_BYTES
            assert len(message) <= MOST_BYTES + MOST_FRAME_BYTES
    assert [one for message, *_ in found for one in bodies_of(message)] == bodies


def test_a_bundle_that_is_as_large_as_can_be_has_little_besides_its_pushes() -> None:
    seqs = range(MAX_SEQ // 2, MAX_SEQ, 100_000)[:MOST_PUSHES]

    [one] = packed([body("i" * 300, seq) for seq in seqs], MAX_SEQ)

    bundle = open_bundle(one.message)
    fields = sum(len(bundle.fields(place)) for place in range(MOST_PUSHES))
    assert len(one.message) <= fields + MOST_FRAME_BYTES


def test_pushes_that_just_fit_travel_together_and_one_byte_more_does_not() -> None:
    rest = MOST_BYTES - len(fields_of(body("t1", 1, 600_000)))
    size = rest - len(fields_of(body("t1", 2, 400_000))) + 400_000

    fitting = [body("t1", 1, 600_000), body("t1", 2, size)]
    too_large = [body("t1", 1, 600_000), body("t1", 2, size + 1)]

    assert [one.pushes for one in packed(fitting, 32)] == [2]
    assert [one.pushes for one in packed(too_large, 32)] == [1, 1]


def assert_same_from_every_border(bodies: list[bytes], most: int) -> None:
    whole = list(packed(bodies, most))
    done = 0
    for place, one in enumerate(whole):
        assert list(packed(bodies[done:], most)) == whole[place:]
        done += one.pushes


@given(task_ids, rising_seqs(), mosts)
def test_from_any_border_on_the_same_pushes_are_in_the_same_bundles(task_id, seqs, most) -> None:
    assert_same_from_every_border([body(task_id, seq) for seq in seqs], most)


@given(sizes, st.integers(2, 24))
def test_so_they_are_behind_a_border_that_their_bytes_have_made(sizes, most) -> None:
    bodies = [body("t1", seq, size) for seq, size in enumerate(sizes, start=1)]

    assert_same_from_every_border(bodies, most)


@given(task_ids, rising_seqs())
def test_each_is_alone_when_a_bundle_has_one(task_id, seqs) -> None:
    bodies = [body(task_id, seq) for seq in seqs]

    assert list(packed(bodies, 1)) == [
        Packed(one, seq, 1) for one, seq in zip(bodies, seqs, strict=True)
    ]


def test_a_bundle_says_how_many_or_the_steps_from_one_to_the_next() -> None:
    [follow] = messages("t1", [1, 2, 3], 8)
    [apart] = messages("t1", [1, 2, 5], 8)
    [alone] = messages("t1", [5], 8)

    assert msgspec.msgpack.decode(follow.message)[:4] == [2, "t1", 1, 3]
    assert msgspec.msgpack.decode(apart.message)[:4] == [2, "t1", 1, [1, 3]]
    assert msgspec.msgpack.decode(alone.message)[:4] == [2, "t1", 5, 1]


def test_nothing_is_packed_into_nothing() -> None:
    assert list(packed([], 1)) == list(packed([], 8)) == []


@given(task_ids, numbers, st.lists(contents, min_size=1, max_size=MOST_PUSHES))
def test_a_bundle_that_gets_its_seqs_later_is_the_same(task_id, first, contents) -> None:
    first = min(first, MAX_SEQ - len(contents))
    bodies = [
        body_of_some_version(task_id, seq, content)
        for seq, content in enumerate(contents, start=first)
    ]

    rest = unnumbered([fields_of(one) for one in bodies])

    assert list(bodies_of(numbered(task_id, first, rest))) == bodies


@given(task_ids, numbers, contents)
def test_a_push_that_is_alone_is_opened_as_a_bundle_of_one(task_id, seq, content) -> None:
    alone = body_of_some_version(task_id, seq, content)
    assert not is_bundle(alone)

    bundle = open_message(alone)

    assert (bundle.task_id, list(bundle.seqs), bundle.problem) == (task_id, [seq], "")
    assert list(bundle.bodies()) == list(bodies_of(alone)) == [alone]


@pytest.mark.parametrize(
    "alone",
    [
        b"\xdc\x00\x03\xa2t1\x07\xa1r",
        b"\xdd\x00\x00\x00\x03\xa2t1\x07\xa1r",
        b"\x93\xd9\x02t1\x07\xa1r",
        b"\x93\xda\x00\x02t1\x07\xa1r",
        b"\x93\xdb\x00\x00\x00\x02t1\x07\xa1r",
        b"\x93\xa2t1\xcc\x07\xa1r",
        b"\x93\xa2t1\xcf\x00\x00\x00\x00\x00\x00\x00\x07\xa1r",
        b"\x93\xa2t1\xd0\x07\xa1r",
        b"\x93\xa2t1\xd2\x00\x00\x00\x07\xa1r",
        b"\x93\xa2t1\xd3\x00\x00\x00\x00\x00\x00\x00\x07\xa1r",
    ],
)
def test_a_push_that_others_have_written_at_more_length_is_read_too(alone: bytes) -> None:
    push = Push("t1", 7, "r")
    assert decode(alone) == push

    assert [decode(one) for one in open_message(alone).bodies()] == [push]
    [one] = packed([alone], 8)
    assert [decode(one) for one in bodies_of(one.message)] == [push]


def test_what_a_newer_version_adds_to_a_bundle_is_let_be() -> None:
    newer = pack([2, "t1", 7, 3, GOOD, "new", {"a": [1, 2]}])

    assert list(bodies_of(newer)) == [body("t1", seq) for seq in (7, 8, 9)]


def test_what_is_shown_of_a_bundle_is_nothing_personal() -> None:
    assert "to-7" not in repr(open_bundle(bundle_of(3, GOOD)))


def assert_unread(bundle: Bundle, seqs: Sequence[int], task_id: str = "t1") -> None:
    """Whose pushes they are is known, and that none of them can be read."""
    assert (bundle.task_id, list(bundle.seqs)) == (task_id, list(seqs))
    assert bundle.problem
    assert list(bundle.bodies()) == []
    for place in range(len(seqs)):
        with pytest.raises(MalformedPush, match=bundle.problem):
            bundle.body(place)


@pytest.mark.parametrize("task_id", ["t1", "i" * 32, "i" * 300, "é" * 300])
@pytest.mark.parametrize(
    "seqs",
    [
        [1],
        [1, 2, 3],
        [127, 128, 255, 256],
        [65_535, 65_536],
        [1, 200, 70_000, MAX_SEQ],
        range(1, 41),
    ],
)
def test_a_bundle_that_is_cut_short_says_whose_pushes_it_had_once_that_can_be_read(
    task_id: str, seqs: Sequence[int]
) -> None:
    [one] = packed([body(task_id, seq) for seq in seqs], 2**33)
    *beginning, pushes = msgspec.msgpack.decode(one.message)
    known = len(one.message) - len(pack(pushes))
    assert one.message[1:known] == b"".join(map(pack, beginning))

    for length in range(len(one.message)):
        cut = one.message[:length]
        if length < known:
            with pytest.raises(MalformedPush):
                open_message(cut)
        else:
            assert_unread(open_message(cut), seqs, task_id)
        assert list(bodies_of(cut)) == [] or not is_bundle(cut)


@pytest.mark.parametrize("number", [4, 200, 70_000])
def test_a_newer_format_is_told_when_it_is_whole(number: int) -> None:
    newer = pack([number, "t1", 7, 3, GOOD])

    with pytest.raises(UnknownFormat, match=f"format {number}"):
        open_message(newer)
    for length in range(len(newer)):
        with pytest.raises(MalformedPush):
            open_message(newer[:length])


@pytest.mark.parametrize("places", [1, 2, 4, MOST_PUSHES])
def test_a_count_that_lies_makes_all_of_it_unreadable(places: int) -> None:
    assert_unread(open_bundle(bundle_of(places, GOOD)), range(7, 7 + places))


@pytest.mark.parametrize("steps", [[], [3], [3, 1, 2]])
def test_so_do_steps_that_are_too_many_or_too_few(steps: list[int]) -> None:
    assert_unread(open_bundle(bundle_of(steps, GOOD)), list(accumulate(steps, initial=7)))


@pytest.mark.parametrize(
    "places",
    [0, -1, MOST_PUSHES + 1, 2.5, None, "3", [0, 1], [1, -1], [MAX_SEQ + 1, 1], [1] * MOST_PUSHES],
)
def test_a_count_or_a_step_that_cannot_be_leaves_nothing_known(places: Any) -> None:
    with pytest.raises(MalformedPush):
        open_bundle(bundle_of(places, GOOD))


@pytest.mark.parametrize(
    ("first_seq", "places", "left"),
    [
        (MAX_SEQ - 1, 3, [MAX_SEQ - 1, MAX_SEQ]),
        (MAX_SEQ, [1, 1], [MAX_SEQ]),
        (7, [MAX_SEQ - 7, 1], [7, MAX_SEQ]),
        (7, [MAX_SEQ - 6, MAX_SEQ], [7]),
    ],
)
def test_seqs_that_go_over_the_highest_are_left_out(first_seq, places, left) -> None:
    assert_unread(open_bundle(bundle_of(places, GOOD, first_seq)), left)


@pytest.mark.parametrize(("first_seq", "task_id"), [(0, "t1"), (MAX_SEQ + 1, "t1"), (7, 5)])
def test_a_task_or_a_seq_that_cannot_be_leaves_nothing_known(first_seq, task_id) -> None:
    with pytest.raises(MalformedPush):
        open_bundle(bundle_of(3, GOOD, first_seq, task_id))


def test_seqs_up_to_the_highest_can_be() -> None:
    [one] = messages("t1", [1, MAX_SEQ - 1, MAX_SEQ], MAX_SEQ + 1)

    assert [decode(found).seq for found in bodies_of(one.message)] == [1, MAX_SEQ - 1, MAX_SEQ]


def is_push(bundle: Bundle, place: int) -> bool:
    try:
        decode(bundle.body(place))
    except MalformedPush:
        return False
    return True


@pytest.mark.parametrize("odd", ODD)
def test_a_push_that_cannot_be_read_spoils_no_other(odd: bytes) -> None:
    bundle = open_bundle(bundle_of(3, [GOOD[0], odd, GOOD[2]]))

    assert [is_push(bundle, place) for place in range(3)] == [True, False, True]
    assert (bundle.problem, bundle.fields(1)) == ("", odd)
    assert (bundle.body(0), bundle.body(2)) == (body("t1", 7), body("t1", 9))
    assert together(bundle) == one_by_one(bundle)
    found = list(bundle.bodies())
    assert (found[0], found[-1]) == (body("t1", 7), body("t1", 9))


def test_no_push_can_be_of_another_task_or_seq_than_its_place_says() -> None:
    other = fields_of(body("another", 4))

    [_, second, _] = bodies_of(bundle_of(3, [GOOD[0], other, GOOD[2]]))

    assert (decode(second).task_id, decode(second).seq) == ("t1", 8)


def test_a_push_over_the_limit_spoils_no_other() -> None:
    large = fields_of(body("t1", 8, MAX_PUSH_BYTES + 64))
    bundle = open_bundle(bundle_of(3, [GOOD[0], large, GOOD[2]]))

    assert [is_push(bundle, place) for place in range(3)] == [True, False, True]


def test_a_bundle_over_the_limit_is_not_read_but_known() -> None:
    large = [bytes(MOST_BYTES)] * 3

    assert_unread(open_bundle(bundle_of(3, large)), range(7, 10))


def test_a_newer_format_over_the_limit_is_told() -> None:
    with pytest.raises(UnknownFormat):
        open_message(pack([4, bytes(3 * MOST_BYTES)]))


@pytest.mark.parametrize("nested", [b"\x91", b"\x9f", b"\xdc\x02\x00", b"\x81\xa0"])
def test_what_nests_too_deep_is_malformed(nested: bytes) -> None:
    with pytest.raises(MalformedPush):
        open_message(b"\x95\x02\xa2t1\x07" + nested * 60_000)


def together(bundle: Bundle) -> list[bytes] | None:
    """All of its pushes at once; None when one of them is no array."""
    try:
        return bundle.all_bodies()
    except MalformedPush:
        return None


def one_by_one(bundle: Bundle) -> list[bytes] | None:
    try:
        return [bundle.body(place) for place in range(len(bundle))]
    except MalformedPush:
        return None


def assert_harmless(message: bytes) -> None:
    """Whatever it is, nobody who opens it and reads all of it meets an error of another kind."""
    list(bodies_of(message))
    try:
        bundle = open_message(message)
    except (MalformedPush, UnknownFormat):
        return
    assert bundle.task_id is not None
    seqs = list(bundle.seqs)
    assert 1 <= len(bundle) == len(seqs) <= MOST_PUSHES
    assert seqs == sorted(set(seqs))
    assert 1 <= seqs[0] <= seqs[-1] <= MAX_SEQ
    for place in range(len(bundle)):
        is_push(bundle, place)
    assert together(bundle) == one_by_one(bundle)


@given(st.binary(max_size=200))
def test_any_bytes_are_harmless(message) -> None:
    for beginning in (b"", b"\x95\x02", b"\x95\x02\xa2t1\x07", b"\x93\xa2t1\x07"):
        assert_harmless(beginning + message)


@given(rising_seqs(), st.integers(2, 64), st.data())
def test_a_bundle_with_other_bytes_in_it_is_harmless(seqs, most, data) -> None:
    message = bytearray(data.draw(st.sampled_from(messages("t1", seqs, most))).message)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(
            st.integers(0, min(40, len(message) - 1)) | st.integers(0, len(message) - 1)
        )
        message[place] = data.draw(st.integers(0, 255))

    assert_harmless(bytes(message))
