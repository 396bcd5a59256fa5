"""What may be committed of a partition, over random ends, replays and takings away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pushlane.ingest.offsets import Offsets

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("came"), st.integers(1, 5)),
        st.tuples(st.just("ended"), st.integers(0, 1_000)),
        st.tuples(st.just("replay"), st.integers(0, 20)),
        st.tuples(st.just("stray"), st.integers(0, 60)),
        st.tuples(st.just("taken"), st.just(0)),
    ),
    max_size=60,
)


def test_nothing_came_commits_where_it_began() -> None:
    assert Offsets(7).committable() == 7


def test_ends_out_of_order_wait_for_the_lowest() -> None:
    offsets = Offsets(0)
    for offset in (0, 3, 4, 9):  # a log with holes
        offsets.begin(offset)
    offsets.end(4)
    offsets.end(3)
    before = offsets.committable()
    offsets.end(0)
    after = offsets.committable()
    offsets.end(9)

    assert (before, after, offsets.committable()) == (0, 9, 10)
    assert offsets.in_progress == 0


def test_what_is_done_and_was_not_in_progress_is_dropped() -> None:
    offsets = Offsets(5)
    offsets.end(2)  # of before a replay
    offsets.begin(5)
    before = offsets.committable()
    offsets.end(5)

    assert (before, offsets.committable()) == (5, 6)


@given(_STEPS)
def test_all_below_what_is_committed_is_done_and_nothing_done_is_held_back(
    steps: list[tuple[str, int]],
) -> None:
    offsets, coming = Offsets(0), 0
    in_progress: list[int] = []
    highest = 0
    for what, number in steps:
        if what == "came":
            coming += number - 1  # the log has holes
            offsets.begin(coming)
            in_progress.append(coming)
            coming += 1
        elif what == "ended" and in_progress:
            done = in_progress.pop(number % len(in_progress))
            offsets.end(done)
            highest = max(highest, done + 1)
        elif what == "replay":  # a seek back, once all that came is done
            if not in_progress:
                coming = max(0, coming - number)
        elif what == "stray" and number < min(in_progress, default=coming):
            offsets.end(number)
        elif what == "taken":
            in_progress.clear()
            offsets.empty(coming)
            highest = coming
        if in_progress:
            assert offsets.committable() == min(in_progress)
        else:
            assert offsets.committable() <= max(highest, coming)
    for offset in in_progress:
        offsets.end(offset)
    assert offsets.in_progress >= 0
    offsets.committable()
    assert offsets.in_progress == 0
