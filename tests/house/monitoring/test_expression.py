"""PromQL that is put together from definitions: what cannot be written."""

from __future__ import annotations

import pytest

from scripts.monitoring.expression import Selection, absent, binary, grouped, over_time, top
from scripts.monitoring.known import known
from scripts.monitoring.panels import Query
from scripts.monitoring.rules import Alert, Severity

ALL = Selection({}, ())
CHOSEN = Selection({"job": "$job", "level": "$level"}, ("job",))
PICKED, BACKLOG = "pushlane_picked_total", "pushlane_backlog"


def test_a_metric_that_nobody_shows_is_refused() -> None:
    with pytest.raises(KeyError, match="pushlane_backlogs"):
        known("pushlane_backlogs")


def test_a_label_that_a_metric_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="pushlane_picked_total has no label 'task'"):
        ALL.rate(known(PICKED), "task", over="5m")
    with pytest.raises(ValueError, match="no label 'colour'"):
        ALL.once(known(BACKLOG), colour="red")


def test_a_value_that_a_label_never_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"level of pushlane_backlog is never \['urgent'\]"):
        ALL.once(known(BACKLOG), level="urgent")
    with pytest.raises(ValueError, match=r"never \['urgent'\]"):
        ALL.once(known(BACKLOG), level=("high", "urgent"))


def test_what_the_leader_says_for_all_is_not_added_up() -> None:
    with pytest.raises(ValueError, match="ask for it once"):
        ALL.total(known(BACKLOG), "level")


def test_a_counter_is_asked_for_its_growth_and_nothing_else_is() -> None:
    with pytest.raises(ValueError, match="pushlane_picked_total is a counter, no gauge"):
        ALL.total(known(PICKED))
    with pytest.raises(ValueError, match="pushlane_backlog is a gauge, no counter"):
        ALL.rate(known(BACKLOG), over="5m")
    with pytest.raises(ValueError, match="pushlane_slots is a gauge, no histogram"):
        ALL.quantile(0.5, known("pushlane_slots"), over="5m")


def test_chosen_labels_are_asked_for_where_a_metric_has_them() -> None:
    with_level = CHOSEN.rate(known(PICKED), "sink", over="5m")
    without = CHOSEN.total(known("pushlane_slots"))

    assert with_level.text == (
        'sum by (job, sink) (rate(pushlane_picked_total{job=~"$job", level=~"$level"}[5m]))'
    )
    assert without.text == 'sum by (job) (pushlane_slots{job=~"$job"})'


def test_results_are_matched_on_what_both_have() -> None:
    many = ALL.total(known("pushlane_slots"), "job", "sink")
    one = ALL.highest(known("pushlane_registry_age_seconds"), "job")

    assert binary(many, ">", one).text == (
        "sum by (job, sink) (pushlane_slots)\n"
        "> on (job) group_left () max by (job) (pushlane_registry_age_seconds)"
    )
    assert " group_right () " in binary(one, "-", many).text
    assert binary(many, "and", one).labels == ("job", "sink")
    assert "and on (job) max" in binary(many, "and", one).text
    assert binary(many, "/", many).text.count("on (") == 0


def test_results_that_have_each_something_of_its_own_match_not() -> None:
    with pytest.raises(ValueError, match="has all labels of the other"):
        binary(
            ALL.total(known("pushlane_slots"), "sink"),
            "/",
            ALL.total(known("pushlane_slots"), "instance"),
        )


def test_a_part_that_is_an_operation_itself_is_put_in_brackets() -> None:
    slots = ALL.total(known("pushlane_slots"))

    assert binary(binary(slots, "+", 1), "*", 2).text == "(sum(pushlane_slots) + 1) * 2"
    assert over_time("min", slots, "10m", ago="1h").text == (
        "min_over_time((sum(pushlane_slots))[10m:] offset 1h)"
    )


def test_a_result_is_grouped_by_what_it_has() -> None:
    by_sink = ALL.total(known("pushlane_slots"), "job", "sink")

    assert grouped("max", by_sink, "job").labels == ("job",)
    assert top(3, by_sink).labels == ("job", "sink")
    assert absent(known("pushlane_slots")).labels == ()
    with pytest.raises(ValueError, match="level"):
        grouped("max", by_sink, "level")


def test_a_legend_names_labels_of_the_result() -> None:
    slots = ALL.total(known("pushlane_slots"), "sink")

    Query(slots, "{{sink}} usable")
    with pytest.raises(ValueError, match="level"):
        Query(slots, "{{level}}")


def test_an_alert_names_labels_of_the_result() -> None:
    slots = ALL.total(known("pushlane_slots"), "sink")

    with pytest.raises(ValueError, match="level"):
        Alert("A", slots, "1m", Severity.WARNING, "{{ $labels.level }} waits", "", "lag-grows")
