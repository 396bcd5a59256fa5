"""The sections of a report: lateness, recipients, shares, the funnel, single rows, damage."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import pytest
from datasketches import hll_sketch, hll_union
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.model.read_bounds import ReadBounds
from pushlane.pipeline.reports import query_runner, report, sections
from pushlane.pipeline.reports.answers import QUANTILES, AnswerOptions, funnel, middle_ms, quantiles
from pushlane.pipeline.reports.engine import Engine, FilesMoved
from pushlane.pipeline.reports.query import Period
from pushlane.pipeline.reports.query_runner import last_rows
from pushlane.pipeline.reports.report import build_report
from pushlane.pipeline.reports.sections import SentByLevel, lateness, recipients, wait_parts
from pushlane.pipeline.store import CorruptStore, FileEntry, SampledBatch, Store, open_store
from pushlane.pipeline.store.writing import open_writer
from tests.receipt_stores import MINUTE_MS, NOON_MS, OLDER, make_older, make_store, store_of
from tests.report_queries import MOST, PERIOD, counted, engine_on, query

SPARK_SKETCH_OF_FIVE = bytes.fromhex(
    "0201070c030005083da30f0508094a0ab190e205c47a27074dca1404000000000000000000000000"
)
"""What Spark's hll_sketch_agg(xxhash64(id), 12) makes of the ids 0 to 4."""
WITHIN = 0.05


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("reports"), receipts=2_000)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300))
def test_quantiles_of_buckets_are_within_5_percent(times_ms):
    buckets: dict[int, int] = {}
    for each in times_ms:
        bucket = -1 if each < 1 else int(np.floor(np.log(each) / np.log(1.1)))
        buckets[bucket] = buckets.get(bucket, 0) + 1
    exact = np.quantile(times_ms, QUANTILES, method="inverted_cdf")
    found = quantiles(buckets.items(), QUANTILES)
    assert found == pytest.approx(exact, rel=WITHIN)


def test_below_a_millisecond_is_0():
    assert middle_ms(-1) == 0.0


@pytest.mark.parametrize("by", ["level", "reason", "attribute:version"])
def test_lateness_is_that_of_the_detail_rows(root, by):
    """From the buckets that are kept as from the rows themselves."""
    asked = query(by)
    with engine_on(root) as engine:
        found = lateness(engine, asked)
        name = "attributes['version']" if by.startswith("attribute") else by
        text = (
            f"select {name}, list(dispatched_at_ms - eligible_at_ms) "
            f"from {engine.table('detail')} group by all"
        )
        waits = dict(engine._connection.execute(text).fetchall())
    for each in (late for late in found if late.stage == "wait"):
        exact = np.quantile(waits[each.key[0]], QUANTILES, method="inverted_cdf")
        assert each.quantiles_ms == pytest.approx(exact, rel=WITHIN)
        least, *_, most = each.times_ms
        assert (least, most) == pytest.approx(
            (min(waits[each.key[0]]), max(waits[each.key[0]])), rel=WITHIN
        )
        assert each.n == len(waits[each.key[0]])


@pytest.mark.parametrize("by", ["level", "reason,level", "attribute:version"])
def test_parts_of_waits_are_those_of_the_detail_rows_that_tell(root, by):
    """From the buckets that are kept as from the rows themselves: the whole first."""
    asked = query(by)
    with engine_on(root) as engine:
        found = wait_parts(engine, asked)
        rows = last_rows(engine, query("", "outcome!=displayed"), 10_000).rows
    exact = defaultdict(lambda: defaultdict(list))
    for row in (row for row in rows if row["waits"] is not None):
        versions = {"attribute:version": row["attributes"]["version"]}
        key = tuple(versions.get(word) or row[word] for word in by.split(","))
        exact[key]["waited"].append(sum(row["waits"].values()))
        for cause, ms in row["waits"].items():
            exact[key][cause].append(ms)
    assert {(key, part.cause) for key, part in found} == {
        (key, cause) for key, causes in exact.items() for cause in causes
    }
    for key, part in found:
        times = exact[key][part.cause]
        assert part.n == len(times)
        assert part.total_ms == pytest.approx(sum(times), rel=WITHIN)
        quantiles = np.quantile(times, (0.5, 0.95), method="inverted_cdf")
        assert (part.p50_ms, part.p95_ms) == pytest.approx(tuple(quantiles), rel=WITHIN, abs=0.6)
    firsts = dict(reversed(found))
    assert {part.cause for part in firsts.values()} == {"waited"}
    for key, whole in firsts.items():
        parts = [part.total_ms for other, part in found if other == key and part != whole]
        assert whole.total_ms == sum(parts)


@pytest.fixture(params=["all", "the first", "the last"])
def older(request, tmp_path):
    """A store of which files are as 0.2 wrote them: without waits."""
    root = make_store(tmp_path, receipts=400, batches=2)
    files = open_store(root).files("detail")
    which = {"all": files, "the first": files[:1], "the last": files[1:]}[request.param]
    make_older(root, which, OLDER[0])
    return root


@pytest.mark.parametrize("asked", ["", "attribute:version,level", "attribute:version,hour,reason"])
def test_files_without_waits_are_read_beside_others(older, tmp_path, asked):
    whole = make_store(tmp_path / "whole", receipts=400, batches=2)
    options = AnswerOptions(1_000, with_latency=True, with_recipients=True)

    found = query_runner.counts_of(older, query(asked), options).table
    rows = query_runner.rows_of(older, query(""), 1_000).rows

    assert found == query_runner.counts_of(whole, query(asked), options).table
    expected = query_runner.rows_of(whole, query(""), 1_000).rows
    assert [{**row, "waits": None} for row in rows] == [{**row, "waits": None} for row in expected]
    assert any(row["waits"] is None for row in rows if row["level"] == "high")


def test_an_event_has_no_wait_though_its_push_has(root):
    with engine_on(root) as engine:
        found = last_rows(engine, query("", "level=high"), 10_000).rows
    assert {row["waits"] for row in found if row["outcome"] == "displayed"} == {None}
    assert all(row["waits"] for row in found if row["outcome"] == "delivered")


def test_recipients_are_counted_once_over_minutes_and_outcomes(tmp_path):
    receipts = [
        {
            "recipient_hash": number % 500 * 7_919,
            "responded_at_ms": NOON_MS + number * 1_000,
            "outcome": "dead" if number % 3 else "delivered",
            "attributes": [("region", "eu")],
        }
        for number in range(2_000)
    ]
    root = store_of(tmp_path, receipts)
    with engine_on(root) as engine:
        assert recipients(engine, query("level")) == {("high",): pytest.approx(500, rel=0.033)}
        assert recipients(engine, query("attribute:region")) == {("eu",): 500}


def store_of_pushes(root, number, *, retried=0, waiting=0):
    """Pushes to as many recipients; some were retried before, and some have not finished."""

    def receipts(outcome, hashes):
        return [{"recipient_hash": each * 7_919, "outcome": outcome} for each in hashes]

    finished = receipts("delivered", range(number))
    again = receipts("retry", [*range(retried), *range(number, number + waiting)])
    return store_of(root, [*finished, *again])


@pytest.mark.parametrize("number", range(1_000, 5_000, 500))
def test_there_are_never_more_recipients_than_pushes(tmp_path, number):
    with engine_on(store_of_pushes(tmp_path, number, retried=number)) as engine:
        found = recipients(engine, query())[()]

    assert found <= number
    assert found == pytest.approx(number, rel=0.05)


def test_recipients_of_pushes_that_wait_for_a_retry_count_too(tmp_path):
    with engine_on(store_of_pushes(tmp_path, 100, retried=50, waiting=20)) as engine:
        assert recipients(engine, query()) == {(): 120}


def test_a_report_has_no_more_recipients_than_its_task_has_pushes(tmp_path):
    root = store_of_pushes(tmp_path, 100, waiting=20)
    with engine_on(root) as engine:
        made = build_report(open_store(root), engine, query(), limit=MOST, submitted=110)

    assert (made.funnel.submitted, made.recipients) == (110, 110)


def test_sketches_that_spark_made_unite_with_others():
    union = hll_union(12)
    union.update(hll_sketch.deserialize(SPARK_SKETCH_OF_FIVE))
    union.update(hll_sketch.deserialize(SPARK_SKETCH_OF_FIVE))
    assert round(union.get_estimate()) == 5


def test_a_level_is_entitled_to_its_weight_among_those_that_send():
    minute, next_minute = NOON_MS, NOON_MS + MINUTE_MS
    sent = [
        SentByLevel(minute, "high", "a", 50, 6, 1, 0),
        SentByLevel(minute, "medium", "b", 50, 3, 1, 0),
        SentByLevel(next_minute, "high", "a", 10, 6, 1, 0),
    ]
    found = {(each.at_ms, each.name): each for each in sections.by_level(sent)}
    assert found[minute, "high"].entitled == pytest.approx(6 / 9)
    assert found[minute, "high"].share == 0.5
    assert found[next_minute, "high"].entitled == 1


def test_a_task_is_entitled_to_its_quota_within_its_level():
    sent = [
        SentByLevel(NOON_MS, "high", "a", 30, 6, 2, 0),
        SentByLevel(NOON_MS, "high", "b", 30, 6, 1, 0),
        SentByLevel(NOON_MS, "low", "c", 40, 1, 5, 0),
    ]
    found = {each.name: each.entitled for each in sections.by_task(sent)}
    assert found == pytest.approx({"a": 6 / 7 * 2 / 3, "b": 6 / 7 / 3, "c": 1 / 7})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(["high", "medium", "low"]),
            st.sampled_from("abcd"),
            st.integers(1, 100),
        ),
        min_size=1,
        unique_by=lambda row: row[:3],
    ),
    st.sampled_from([1, 5]),
)
def test_shares_and_entitlements_of_a_step_add_up_to_1(rows, minutes):
    weights = {"high": 6, "medium": 3, "low": 1}
    sent = [
        SentByLevel(NOON_MS + minute * MINUTE_MS, level, task, n, weights[level], 2, 0)
        for minute, level, task, n in rows
    ]
    for found in (sections.by_level(sent, minutes * MINUTE_MS), sections.by_task(sent, MINUTE_MS)):
        for at in {each.at_ms for each in found}:
            step = [each for each in found if each.at_ms == at]
            assert sum(each.share for each in step) == pytest.approx(1)
            assert sum(each.entitled for each in step) == pytest.approx(1)


def test_levels_whose_weights_are_all_0_are_entitled_alike():
    sent = [
        SentByLevel(NOON_MS, "high", "a", 1, 0, 1, 0),
        SentByLevel(NOON_MS, "low", "b", 1, 0, 1, 0),
    ]
    assert [each.entitled for each in sections.by_level(sent)] == [0.5, 0.5]


def test_what_was_sent_counts_every_attempt(root):
    with engine_on(root) as engine:
        sent = sections.sent(engine, query())
    tried = counted(root, query("", "outcome=delivered|dead|retry")).rows[0].n
    assert sum(each.n for each in sent) == tried


def test_a_funnel_narrows_step_by_step():
    counts = {"delivered": 90, "dead": 5, "expired": 3, "retry": 40, "displayed": 30, "clicked": 9}
    assert [n for _, n in funnel(counts, 120).steps()] == [120, 95, 90, 30, 9]
    assert [n for _, n in funnel(counts).steps()] == [98, 95, 90, 30, 9]


def test_a_funnel_is_cut_where_pushes_of_before_are_displayed():
    assert funnel({"delivered": 2, "displayed": 5, "clicked": 4}).clicked == 2


def test_rows_are_the_last_ones_with_masked_recipients(root):
    with engine_on(root) as engine:
        found = last_rows(engine, query("", "outcome=dead"), 5).rows
    times = [row["at_ms"] for row in found]
    assert len(found) == 5
    assert times == sorted(times, reverse=True)
    assert {(row["outcome"], row["recipient"]) for row in found} == {("dead", "d***")}


def test_there_are_as_many_rows_as_were_counted(root):
    asked = query("", "outcome=displayed,level=high")
    with engine_on(root) as engine:
        found = last_rows(engine, asked, 10_000).rows
    assert len(found) == counted(root, asked).rows[0].n


def test_a_damaged_file_is_named_with_the_command_that_mends_it(tmp_path):
    root = make_store(tmp_path, receipts=100)
    [first, _] = open_store(root).files("minutes")
    with open(first, "r+b") as file:
        file.truncate(50)
    with pytest.raises(CorruptStore, match=r"minutes/.*pipeline replay --since") as caught:
        query_runner.counts_of(root, query("level"), AnswerOptions(10))
    assert first in str(caught.value)


def test_damage_inside_of_a_file_is_found_too(tmp_path):
    root = make_store(tmp_path, receipts=400, batches=1)
    [path] = open_store(root).files("detail")
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\0" * 2_000)
    with pytest.raises(CorruptStore, match=path):
        query_runner.counts_of(root, query("attribute:version,reason"), AnswerOptions(10))


def test_a_folder_without_a_store_says_how_to_make_one(tmp_path):
    with pytest.raises(BadInput, match="pushlane pipeline run"):
        query_runner.counts_of(tmp_path, query(), AnswerOptions(10))


def test_a_store_that_is_rewritten_meanwhile_is_asked_again(root, tmp_path, monkeypatch):
    opened = []

    def open_anew(where):
        store = open_store(where)
        opened.append(store)
        return _with_lost_file(where) if len(opened) == 1 else store

    monkeypatch.setattr(query_runner, "open_store", open_anew)
    assert query_runner.counts_of(root, query(), AnswerOptions(10)).counts.rows[0].n > 2_000
    assert len(opened) == 2


def test_a_store_that_is_always_rewritten_is_given_up(root):
    with Engine(_with_lost_file(root), root, PERIOD) as engine, pytest.raises(FilesMoved):
        engine.table("detail")


def test_a_question_that_needs_too_much_memory_says_how_to_ask_for_less(root):
    engine = Engine(open_store(root), root, PERIOD, ReadBounds(memory="1MB"))
    with engine, pytest.raises(PushlaneError, match="shorten its period"):
        lateness(engine, query("attribute:version,task,minute,reason"))


def test_detail_rows_that_are_kept_no_more_are_told(tmp_path):
    day = 86_400_000
    root = make_store(tmp_path, receipts=20, batches=2, since_ms=NOON_MS, span_ms=2 * day)
    period = Period(NOON_MS, NOON_MS + 3 * day)
    assert report.notes(open_store(root), period) == []
    with open_writer(root) as writer:
        [first, _] = writer.store.entries("detail")
        writer.publish("compact", writer.begin(), removed={"detail": [first.path]})
    [note] = report.notes(open_store(root), period)
    assert note.startswith("detail rows are kept from")
    assert report.notes(open_store(root), Period(NOON_MS + 2 * day, NOON_MS + 3 * day)) == []


def test_a_stretch_that_was_sampled_is_told(tmp_path):
    root = make_store(tmp_path, receipts=20, batches=1)
    stretch = SampledBatch(1, [], [], NOON_MS, NOON_MS + MINUTE_MS, 0.125, "300,000 receipts/s")
    with open_writer(root) as writer:
        writer.publish("compact", writer.begin(), intervals=[stretch])
    told = report.notes(open_store(root), PERIOD)
    assert "12% of the delivered (300,000 receipts/s)" in told[0]
    with open_writer(root) as writer:
        whole = msgspec.structs.replace(stretch, state="restored")
        writer.publish("backfill", writer.begin(), intervals=[whole])
    assert report.notes(open_store(root), PERIOD) == []


def _with_lost_file(root):
    """The store, which names a file that is gone."""
    store = open_store(root)
    gone = {"gone.parquet": FileEntry("gone.parquet", 1, 1, max_ms=2**60)}
    files = {**store.state.files, "detail": gone, "minutes": gone}
    return Store(store.generation, msgspec.structs.replace(store.state, files=files))
