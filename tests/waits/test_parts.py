"""Parts of a wait: they add up when they are rounded, and when a push carries them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.model.waits import MOST_CARRIED, Cause, pack, unpack, whole

CAUSES = st.sampled_from(list(Cause))
LONG_MS = 40 * 86_400_000
WHOLE = st.dictionaries(CAUSES, st.integers(1, LONG_MS), max_size=len(Cause))
ROUGH = st.dictionaries(CAUSES, st.floats(0, 1e9), max_size=len(Cause))
SUBMITTED_MS = 1_790_000_000_000


@given(ROUGH, st.integers(-3, 3))
def test_rounded_parts_add_up_and_each_is_right_to_some_milliseconds(
    parts: dict[Cause, float], off: int
) -> None:
    total = max(0, round(sum(parts.values())) + off)

    found = whole(parts, total)

    assert sum(found.values()) == total
    assert min(found.values(), default=1) > 0
    known = {cause: part for cause, part in parts.items() if part > 0}
    for cause, part in found.items():
        assert abs(part - known.get(cause, 0.0)) <= len(Cause) + 4 or not known


@given(WHOLE, st.integers(0, 1_000))
def test_a_push_carries_parts_that_add_up(parts: dict[Cause, int], attempt: int) -> None:
    total = sum(parts.values())

    carried = pack(parts, SUBMITTED_MS + total, attempt)
    found = unpack(carried, SUBMITTED_MS)

    assert len(carried) <= MOST_CARRIED
    assert found is not None
    assert sum(found.parts.values()) == total
    assert found.put_down_ms == SUBMITTED_MS + total
    assert found.attempt == min(attempt, 255)
    largest = max(parts.values(), default=0)
    for cause, part in found.parts.items():
        assert parts[cause] * (1 - 1 / 1024) <= part or parts[cause] == largest
    if len(parts) <= 6:
        assert found.parts.keys() <= parts.keys()
        assert all(
            abs(found.parts.get(one, 0) - part) <= total / 400 for one, part in parts.items()
        )


def test_a_submitter_whose_clock_is_ahead_has_nothing_to_carry() -> None:
    carried = pack({}, SUBMITTED_MS - 60_000, 1)

    assert unpack(carried, SUBMITTED_MS) == ({}, SUBMITTED_MS - 60_000, 1)


@given(st.binary(max_size=40))
def test_what_is_no_such_field_is_nothing(carried: bytes) -> None:
    found = unpack(carried, SUBMITTED_MS)

    assert found is None or sum(found.parts.values()) == max(0, found.put_down_ms - SUBMITTED_MS)


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_field_that_was_cut_is_nothing(cut: int) -> None:
    carried = pack({Cause.SLOT: 40, Cause.RETRY: 3_000}, SUBMITTED_MS + 3_040, 2)

    assert unpack(carried[:-cut], SUBMITTED_MS) is None
