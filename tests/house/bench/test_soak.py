"""The slope that the soak reports."""

from __future__ import annotations

import pytest

from bench.soak import slope


@pytest.mark.parametrize(
    ("values", "step"),
    [([5, 5, 5, 5], 0), ([1, 3, 5, 7], 2), ([4, 3, 2], -1), ([0, 10, 0, 10, 0], 0)],
)
def test_the_slope_is_that_of_the_nearest_line(values: list[int], step: float) -> None:
    assert slope(values) == pytest.approx(step)
