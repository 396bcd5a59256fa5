"""What a user types for a report: known words only, and values that can never become SQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.pipeline.reports import report
from pushlane.pipeline.reports.answers import by_id
from pushlane.pipeline.reports.engine import Engine, Sql
from pushlane.pipeline.reports.query import (
    LABELS,
    TIMES_MS,
    Dimension,
    Period,
    parse_by,
    parse_where,
)
from pushlane.pipeline.reports.sections import count
from pushlane.util.errors import UnknownTask
from tests.receipt_stores import make_store, store_of
from tests.report_queries import MOST, PERIOD, counted, engine_on, query

ATTACKS = (
    "x' or '1'='1",
    "x'); drop view detail; --",
    "x') union all (select * from read_text('/etc/passwd')) --",
    "$since_ms",
    "\\'; attach '/tmp/x.db'; --",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("reports"), receipts=200)


@pytest.fixture(scope="module")
def engine(root):
    with engine_on(root) as engine:
        yield engine


@pytest.mark.parametrize("text", ["levle", "level:x", "attribute:", "attribute:a b", "n, level"])
def test_an_unknown_dimension_is_refused(text):
    with pytest.raises(BadInput, match="there is no dimension"):
        parse_by(text)


def test_the_nearest_dimension_is_named():
    with pytest.raises(BadInput, match="did you mean 'level'"):
        parse_by("levle")


def test_a_repeated_dimension_counts_once():
    assert parse_by("level, Level,attribute:x") == (Dimension("level"), Dimension("attribute", "x"))


@given(st.text(max_size=40))
def test_a_dimension_is_a_known_word_or_refused(text):
    try:
        found = parse_by(text)
    except BadInput:
        return
    assert {each.word for each in found} <= {*LABELS, *TIMES_MS, "attribute"}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_value_is_compared_and_nothing_else(root, attack):
    where = '"reason=' + attack.replace('"', '""') + '"'
    assert counted(root, query("level", where)).rows == []
    assert counted(root, query()).rows[0].n > 0


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attribute_name_is_looked_up_and_nothing_else(root, attack):
    name = attack.replace(" ", "_").replace(",", "_")
    found = counted(root, query(f"attribute:{name}"))
    assert {row.key for row in found.rows} == {("",)}


@given(st.text(max_size=30))
def test_any_condition_is_answered_or_refused(engine, text):
    try:
        count(engine, query("level", text), MOST)
    except BadInput:
        return


def test_a_condition_reads_values_alternatives_and_negation():
    [first, second] = parse_where(["outcome=dead|expired, sink!=webhook"])
    assert (first.values, first.negated) == (("dead", "expired"), False)
    assert (second.values, second.negated) == (("webhook",), True)


def test_a_condition_with_a_comma_is_quoted_as_in_csv():
    [found] = parse_where(['"reason=HTTP 400, bad"'])
    assert found.values == ("HTTP 400, bad",)


@pytest.mark.parametrize("text", ["outcome", "hour=12", '"reason=x', "colour=red"])
def test_a_condition_that_cannot_be_read_is_refused(text):
    with pytest.raises(BadInput):
        parse_where([text])


def test_a_period_must_not_end_before_it_starts():
    with pytest.raises(BadInput, match="ends before it starts"):
        Period.of(2_000, 1_000)


def test_a_task_is_found_by_its_id_or_its_name(tmp_path):
    root = store_of(tmp_path, [{"task_id": "a", "task_name": "one"}, {"task_id": "b"}])
    with engine_on(root) as engine:
        known = report.names(engine, query(""))
    assert by_id(query("", "task=one|b"), known).where[0].values == ("a", "b")


def test_a_task_without_receipts_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(UnknownTask, match="did you mean 'spring'"):
        by_id(query("", "task=sprng"), {"task-a": "spring"})


def test_a_name_that_several_tasks_have_is_refused():
    with pytest.raises(UnknownTask, match="several tasks"):
        by_id(query("", "task=spring"), {"a": "spring", "b": "spring"})


@pytest.mark.parametrize(
    "text",
    [
        "select content from read_text('/etc/passwd')",
        "copy (select 1) to '/tmp/pushlane-outside.csv'",
        "set enable_external_access = true",
        "install httpfs",
    ],
)
def test_the_engine_reaches_nothing_but_its_store(root, text):
    with engine_on(root) as engine, pytest.raises(PushlaneError):
        engine.rows(Sql(text))


def test_a_store_in_a_folder_that_is_a_pattern_is_refused(tmp_path):
    with pytest.raises(BadInput, match="choose another"):
        Engine(store=None, root=tmp_path / "re[ports]", period=PERIOD)
