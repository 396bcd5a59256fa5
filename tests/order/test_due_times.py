"""Due gives what a search through a table would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pushlane.dispatcher.tasks import DueTimes

names = st.sampled_from("abcdef")
steps = st.one_of(
    st.tuples(st.just("put"), names, st.integers(0, 20)),
    st.tuples(st.just("discard"), names, st.just(0)),
    st.tuples(st.just("take"), st.integers(0, 20), st.integers(0, 4)),
)


@given(st.lists(steps, max_size=60))
def test_it_gives_what_a_search_would_find(history) -> None:
    due, table = DueTimes(), {}
    for step, first, second in history:
        if step == "put":
            due.put(first, second)
            table[first] = second
        elif step == "discard":
            due.discard(first)
            table.pop(first, None)
        else:
            found = sorted((at_ms, name) for name, at_ms in table.items() if at_ms <= first)
            assert due.take(first, second) == [name for _, name in found[:second]]
            for _, name in found[:second]:
                del table[name]
        assert due.soonest_ms() == min(table.values(), default=None)
        assert len(due) == len(table)


def test_what_was_put_off_again_and_again_takes_no_room() -> None:
    due = DueTimes()
    for at_ms in range(100_000):
        due.put("a", at_ms)
        due.discard("a")

    assert len(due._heap) <= 1_025
