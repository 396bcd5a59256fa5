"""Which of several values of a task stands: a law, whatever order and servers they came from."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import UnknownFormat
from pushlane.core.task import Level, State, Task
from pushlane.model.task_bytes import Merged, Precedence, decode, encode, merged
from tests.unreadable import unchecked


def body(state: State = State.RUNNING, version: int = 0, quota: int = 1) -> bytes:
    task = Task(id="t", level=Level.HIGH, lane="task-t", state=state, version=version, quota=quota)
    return encode(task)


def come_to(*bodies: bytes) -> Merged:
    return reduce(Merged.then, bodies, Merged())


BODIES = st.builds(body, st.sampled_from(State), st.integers(0, 5), st.integers(1, 3))


def rank(value: bytes) -> tuple[bool, int]:
    task = decode("t", value)
    return task.state is State.CANCELLED, task.version


@given(BODIES, BODIES)
def test_the_order_of_two_decides_only_a_tie(one: bytes, other: bytes) -> None:
    there, back = come_to(one, other), come_to(other, one)

    assert (there.rank, there.top) == (back.rank, back.top)
    if rank(one) == rank(other):
        assert (there.body, back.body) == (other, one)
    else:
        assert there.body == back.body


@given(st.lists(BODIES), st.lists(BODIES), st.lists(BODIES))
def test_it_does_not_matter_what_is_merged_first(
    first: list[bytes], second: list[bytes], third: list[bytes]
) -> None:
    one, two, three = come_to(*first), come_to(*second), come_to(*third)

    assert three.behind(two.behind(one)) == three.behind(two).behind(one)
    assert come_to(*second).behind(one).body == come_to(*first, *second).body


@given(BODIES, BODIES)
def test_what_stands_changes_nothing_when_it_comes_again(one: bytes, other: bytes) -> None:
    found = come_to(one, other)

    again = found.then(found.body)

    assert (again.body, again.rank, again.top) == (found.body, found.rank, found.top)


@given(st.lists(BODIES, min_size=1))
def test_the_highest_stands_and_of_equal_ones_the_later(bodies: list[bytes]) -> None:
    found = come_to(*bodies)

    highest = max(map(rank, bodies))
    assert found.body == [each for each in bodies if rank(each) == highest][-1]
    assert found.last == bodies[-1]


@given(st.lists(BODIES, min_size=1), st.lists(BODIES, min_size=1))
def test_a_removal_ends_all_that_was_before(before: list[bytes], after: list[bytes]) -> None:
    assert come_to(*before, b"") == Merged()
    assert come_to(*before, b"", *after) == come_to(*after)


def test_a_cancelled_one_stands_over_a_newer_version_and_becomes_the_newest() -> None:
    found = come_to(body(State.CANCELLED, 2), body(State.RUNNING, 7), body(State.DONE, 5))

    task = decode("t", found.standing("t"))

    assert (task.state, task.version) == (State.CANCELLED, 8)
    assert come_to(body(State.CANCELLED, 7), body(version=7)).standing("t") == body(
        State.CANCELLED, 7
    )


def test_what_only_a_newer_version_could_write_is_refused() -> None:
    with unchecked():
        newer = encode(Task(id="t", level=Level.HIGH, lane="l", state=State.CANCELLED, format=99))

    assert merged(newer).standing("t") == newer
    with pytest.raises(UnknownFormat):
        come_to(newer, body(version=4)).standing("t")


def test_what_cannot_be_read_at_all_stands_behind_all_else() -> None:
    assert merged(b"\xff").rank == Precedence(False, 0)
    assert come_to(body(version=1), b"\xff").body == body(version=1)
