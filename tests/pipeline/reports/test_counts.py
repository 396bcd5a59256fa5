"""Counts of receipts: whatever they are broken down by, they add up to the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.pipeline.reports.answers import AnswerOptions
from pushlane.pipeline.reports.query import LABELS, Period
from pushlane.pipeline.reports.query_runner import counts_of
from pushlane.pipeline.reports.sections import count
from pushlane.pipeline.store import open_store
from pushlane.pipeline.store.writing import open_writer
from tests.receipt_stores import MINUTE_MS, NOON_MS, make_store, store_of
from tests.report_queries import MOST, counted, engine_on, query

DIMENSIONS = (*LABELS, "minute", "hour", "day", "attribute:version", "attribute:none")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("reports"), receipts=600)


@pytest.fixture(scope="module")
def ask(root):
    """Asks one engine: a law does so hundreds of times, and most of the time is its opening."""
    with engine_on(root) as engine:
        yield lambda asked: count(engine, asked, MOST)


def total(counts):
    return sum(row.n for row in counts.rows)


@given(st.lists(st.sampled_from(DIMENSIONS), unique=True, max_size=5))
def test_every_breakdown_adds_up_to_all(ask, by):
    whole = ask(query())
    assert total(ask(query(",".join(by)))) == whole.rows[0].n


@given(st.sampled_from(DIMENSIONS), st.lists(st.sampled_from(DIMENSIONS), max_size=2))
def test_outcomes_of_the_rows_add_up_to_those_of_all(ask, first, more):
    whole = ask(query()).rows[0].by_outcome
    rows = ask(query(",".join([first, *more]))).rows
    assert {name: sum(r.by_outcome.get(name, 0) for r in rows) for name in whole} == whole


@given(
    st.sampled_from([name for name in DIMENSIONS if name not in ("minute", "hour", "day")]),
    st.lists(st.sampled_from(DIMENSIONS), unique=True, max_size=2),
)
def test_a_row_is_what_its_values_select(ask, dimension, by):
    rows = ask(query(dimension)).rows
    for row in rows[:3]:
        [value] = row.key
        asked = query(",".join(by), f"{dimension}={value}")
        assert total(ask(asked)) == row.n
        others = query("", f"{dimension}!={value}")
        assert total(ask(others)) == total(ask(query())) - row.n


def test_alternatives_of_a_condition_add_up(root):
    both = counted(root, query("", "outcome=dead|expired")).rows[0]
    assert both.by_outcome.keys() == {"dead", "expired"}


def test_the_most_frequent_comes_first_and_times_come_in_order(root):
    numbers = [row.n for row in counted(root, query("reason")).rows]
    assert numbers == sorted(numbers, reverse=True)
    times = [row.key[0] for row in counted(root, query("minute,level")).rows]
    assert times == sorted(times)


def test_rows_that_a_limit_leaves_out_are_told(root):
    found = counted(root, query("minute"), limit=3)
    assert len(found.rows) == 3
    assert found.rows_in_all > 3


def test_a_period_counts_its_own_minutes_only(root):
    first = Period(NOON_MS, NOON_MS + 30 * MINUTE_MS)
    second = Period(NOON_MS + 30 * MINUTE_MS, NOON_MS + 120 * MINUTE_MS)
    parts = [total(counted(root, query("level", period=part))) for part in (first, second)]
    assert all(parts)
    assert sum(parts) == total(counted(root, query()))


def test_a_period_is_made_of_whole_minutes():
    made = Period.of(NOON_MS + 1, NOON_MS + MINUTE_MS + 1)
    assert made == Period(NOON_MS, NOON_MS + 2 * MINUTE_MS)


def test_events_are_counted_by_the_attributes_of_their_pushes(root):
    """Twice: from rows of the events, which say nothing of attributes, and their pushes."""
    displayed = counted(root, query("attribute:version", "outcome=displayed"))
    assert "" not in {row.key[0] for row in displayed.rows}
    assert total(displayed) == total(counted(root, query("", "outcome=displayed")))


def test_events_that_are_in_their_rows_count_like_others(tmp_path):
    displayed = {"displayed_at_ms": NOON_MS + 90_000, "attributes": [("region", "eu")]}
    root = store_of(tmp_path, [displayed, {}])
    found = counted(root, query("attribute:region,minute", "outcome=displayed"))
    assert [(row.key, row.n) for row in found.rows] == [(("eu", NOON_MS + MINUTE_MS), 1)]


def test_counts_of_a_sample_are_estimates_with_their_error(tmp_path):
    sampled = {"sample_weight": 10.0, "attributes": [("region", "eu")]}
    root = store_of(tmp_path, [sampled] * 400)
    found = counted(root, query("attribute:region,reason"))
    assert found.is_estimate
    assert found.rows[0].n == 4_000
    assert found.rows[0].plus_minus == pytest.approx(1.96 * (400 * 90) ** 0.5, abs=1)


def test_counts_without_attributes_are_exact_whatever_is_sampled(tmp_path):
    found = counted(store_of(tmp_path, [{"sample_weight": 10.0}] * 400), query("reason"))
    assert not found.is_estimate
    assert found.rows[0].n == 400


def test_failure_rate_is_of_what_came_to_an_end_at_the_sink(tmp_path):
    outcomes = ["dead", "delivered", "delivered", "delivered", "expired", "retry"]
    root = store_of(tmp_path, [{"outcome": outcome} for outcome in outcomes])
    assert counted(root, query("level")).rows[0].failure_rate == 0.25
    assert counted(root, query("outcome", "outcome=expired")).rows[0].failure_rate is None


def test_what_is_kept_by_the_hour_counts_with_the_rest(tmp_path):
    """By attributes and minute there are only detail rows then, which add up all the same."""
    root = make_store(tmp_path, receipts=200, batches=1)
    whole = total(counted(root, query()))
    _roll_up(root)
    for by in ("level", "hour,sink", "attribute:version", "hour,attribute:version"):
        assert total(counted(root, query(by))) == whole
    assert min(row.n for row in counted(root, query("minute,attribute:version")).rows) > 0


def test_a_period_that_cuts_a_kept_hour_says_what_becomes_of_it(tmp_path):
    root = make_store(tmp_path, receipts=200, batches=1)
    half = Period(NOON_MS + 30 * MINUTE_MS, NOON_MS + 90 * MINUTE_MS)
    asked, options = query(period=half), AnswerOptions(10)
    assert counts_of(root, asked, options).notes == []
    _roll_up(root)
    [note] = counts_of(root, asked, options).notes
    assert note.startswith("counts are kept by the hour there: that of")
    assert note.endswith("12:00 UTC is left out")
    assert counts_of(root, query(), options).notes == []


def _roll_up(root):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    store = open_store(root)
    [path] = [entry.path for entry in store.entries("minutes")]
    rows = pq.read_table(store.files("minutes")[0])
    hour = pc.multiply(pc.divide(rows["minute_ms"], 60 * MINUTE_MS), 60 * MINUTE_MS)
    with open_writer(root) as writer:
        name = writer.begin()
        place = rows.schema.get_field_index("minute_ms")
        writer.write("hours", rows.set_column(place, "minute_ms", pa.chunked_array(hour)), name)
        writer.publish("compact", name, removed={"minutes": [path]})
