"""What the fault benchmark takes for the promise of each delivery mode after kills."""

from __future__ import annotations

import pytest

from bench.faults import catalogue
from bench.faults.feed import Mode
from bench.faults.stream import Load
from bench.faults.verdict import Bound, Tally

KILLS = 3
LOAD = Load(slots=20)


@pytest.fixture
def tally() -> Tally:
    counted = Tally()
    counted.busiest_window = 70
    return counted


@pytest.mark.parametrize(
    ("mode", "bound"),
    [
        (catalogue.AT_LEAST_ONCE, Bound(lost=0, duplicates=KILLS * (20 + 70))),
        (catalogue.AT_MOST_ONCE, Bound(lost=KILLS * 20, duplicates=0)),
        (catalogue.ONCE, Bound(lost=0, duplicates=0)),
        (catalogue.RESEND, Bound(lost=0, duplicates=KILLS * 20)),
        (catalogue.BURY, Bound(lost=KILLS * 20, duplicates=0)),
    ],
    ids=lambda value: value.name if isinstance(value, Mode) else "",
)
def test_kills_may_cost_what_is_in_flight_and_no_more(
    mode: Mode, bound: Bound, tally: Tally
) -> None:
    assert catalogue.of_one_process(KILLS, mode, LOAD, tally) == bound


@pytest.mark.parametrize("mode", catalogue.MODES, ids=lambda mode: mode.name)
def test_a_gentle_stop_costs_nothing_in_any_mode(mode: Mode, tally: Tally) -> None:
    assert catalogue.nothing(KILLS, mode, LOAD, tally) == Bound(lost=0, duplicates=0)


@pytest.mark.parametrize(
    ("mode", "bound"),
    [(catalogue.AT_LEAST_ONCE, Bound(0, 0)), (catalogue.AT_MOST_ONCE, Bound(3 * (40 + 42), 0))],
    ids=lambda value: value.name if isinstance(value, Mode) else "",
)
def test_a_sink_that_is_down_costs_what_may_have_arrived_and_no_more(
    mode: Mode, bound: Bound, tally: Tally
) -> None:
    """Twice the slots until it rests, then one for each probe of two minutes."""
    assert catalogue.dead_by_promise(KILLS, mode, LOAD, tally) == bound


def test_a_silent_sink_costs_five_probes_less_as_it_is_not_tried_so_soon(tally: Tally) -> None:
    bound = catalogue.silent_ones(KILLS, catalogue.AT_MOST_ONCE, LOAD, tally)
    assert bound == Bound(KILLS * (40 + 37), 0)


@pytest.mark.parametrize("mode", catalogue.MIXED.among, ids=lambda mode: mode.name)
def test_what_failed_is_lost_where_nothing_is_tried_again_and_nowhere_else(
    mode: Mode, tally: Tally
) -> None:
    tally.answers["500"] = 7
    bound = catalogue.or_failed(catalogue.nothing)(KILLS, mode, LOAD, tally)
    assert bound == Bound(lost=7 if mode is catalogue.AT_MOST_ONCE else 0, duplicates=0)


@pytest.mark.parametrize(("client", "lost"), [("loop", 0), ("pyreqwest", KILLS * 20)])
def test_a_freeze_may_cost_what_two_processes_had_in_flight(
    client: str, lost: int, tally: Tally
) -> None:
    load = Load(slots=20, client=client)
    bound = catalogue.of_two_processes(KILLS, catalogue.RESEND, load, tally)
    assert bound == Bound(lost, duplicates=2 * KILLS * 20)
