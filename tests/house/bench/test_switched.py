"""The cost of a feature is computed right from windows with it and without it."""

from __future__ import annotations

import pytest

from bench.switched import Window, cost
from pushlane.core.errors import PushlaneError


def run(*, on_us: float, off_us: float, aside_s: float = 0.0) -> list[Window]:
    """Make windows of 0.1 s, all of it used, in which a push takes so long; one has work aside."""
    windows = []
    for number in range(44):
        is_on = number % 2 == 1
        pushes = 0.1 / (on_us if is_on else off_us) * 1e6
        windows.append(Window(is_on, round(pushes), 0.1, 0.1))
    busy = windows[20]
    pushes_left = round(busy.pushes * (1 - aside_s / 0.1))
    windows[20] = Window(busy.is_on, pushes_left, 0.1, 0.1, aside_s)
    return windows


def test_a_cost_is_the_part_that_it_takes() -> None:
    found = cost(run(on_us=20.0, off_us=16.0))

    assert found.of_rate == pytest.approx(0.2, abs=1e-3)
    assert found.of_cpu == pytest.approx(0.25, abs=1e-3)
    assert found.rate == pytest.approx(50_000, rel=1e-3)
    assert found.cpu_us == pytest.approx(20.0, rel=1e-3)


def test_a_window_in_which_something_else_ran_does_not_count() -> None:
    windows = run(on_us=20.0, off_us=16.0)
    windows[9] = windows[9]._replace(pushes=1)

    assert cost(windows).of_rate == pytest.approx(0.2, abs=1e-3)


def test_work_aside_counts_on_those_with_it_wherever_it_fell() -> None:
    found = cost(run(on_us=16.0, off_us=16.0, aside_s=0.036))  # of 3.6 s

    assert found.of_rate == pytest.approx(0.01, abs=1e-3)
    assert found.of_cpu == pytest.approx(0.01, abs=1e-3)


@pytest.mark.parametrize("windows", [[], run(on_us=16.0, off_us=16.0)[:11]])
def test_few_windows_say_nothing(windows: list[Window]) -> None:
    with pytest.raises(PushlaneError, match="send more pushes"):
        cost(windows)


def test_windows_without_a_push_say_nothing() -> None:
    with pytest.raises(PushlaneError, match="send more pushes"):
        cost([one._replace(pushes=0) for one in run(on_us=16.0, off_us=16.0)])
