"""When an alert is told: once when it fires, once when it is over, reminders in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.errors import BadInput
from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric, Threshold, parse_metric
from pushlane.pipeline.alerts.alert_store import Acknowledgement
from pushlane.pipeline.alerts.measure import MOST_KEPT, Measured, after_delivery, fires, next_state

NOW_MS = 1_800_000_000_000
FCM = ("fcm",)


def rule(when="> 5%", **given):
    given = {"metric": Metric.FAILURE_RATE, "by": "sink", **given}
    return AlertRule(
        name="failing", when=Threshold.parse(when), url="https://example.com/x", **given
    )


class Told:
    """Plays measurements in time, takes every message, and keeps what was said."""

    def __init__(self, of):
        self.rule = of
        self.state = {}
        self.said = []
        self.known = {}

    def see(self, at_s, value=None, n=1_000, before=None, n_before=0):
        """The group's value; None stands for a group without receipts."""
        now_ms = NOW_MS + at_s * 1000
        found = {} if value is None else {FCM: Measured(value, n, before, n_before)}
        self.state = next_state(self.rule, self.state, found, now_ms, self.known)
        for name, group in list(self.state.items()):
            if group.pending:
                self.said.append(group.pending)
                self.state = after_delivery(self.state, name, now_ms)
        return [message.status for message in self.said]


def test_it_is_told_once_while_it_fires():
    seen = Told(rule())
    seen.see(0, 0.2)
    assert seen.see(30, 0.3) == ["firing"]


def test_its_end_is_told_once():
    seen = Told(rule())
    seen.see(0, 0.2)
    seen.see(30, 0.01)
    assert seen.see(60, 0.01) == ["firing", "recovered"]


def test_it_is_told_anew_when_it_fires_again():
    seen = Told(rule())
    for at_s, value in enumerate((0.2, 0.0, 0.2)):
        seen.see(at_s, value)
    assert [message.status for message in seen.said] == ["firing", "recovered", "firing"]
    assert len({message.id for message in seen.said}) == 3


def test_it_has_to_hold_for_its_time_before_it_fires():
    seen = Told(rule(for_s=600))
    assert seen.see(0, 0.2) == []
    assert seen.see(599, 0.2) == []
    assert seen.see(600, 0.2) == ["firing"]


def test_what_ends_before_its_time_is_never_told():
    seen = Told(rule(for_s=600))
    seen.see(0, 0.2)
    seen.see(300, 0.0)
    assert seen.see(600, 0.2) == []


def test_it_is_told_again_after_the_time_of_a_reminder():
    seen = Told(rule(remind_s=3_600))
    seen.see(0, 0.2)
    seen.see(3_599, 0.2)
    assert seen.see(3_600, 0.2) == ["firing", "reminder"]
    assert seen.see(7_200, 0.2) == ["firing", "reminder", "reminder"]


def test_what_somebody_knows_of_is_not_reminded_until_it_fires_anew():
    seen = Told(rule(remind_s=3_600))
    seen.see(0, 0.2)
    [name], [group] = seen.state, seen.state.values()
    seen.known = {name: Acknowledgement(group.since_ms, "ada", NOW_MS)}
    assert seen.see(3_600, 0.2) == ["firing"]
    assert seen.see(3_700, 0.01) == ["firing", "recovered"]
    seen.see(3_800, 0.2)
    assert seen.see(8_000, 0.2)[2:] == ["firing", "reminder"]


def test_what_is_taken_back_is_reminded_again():
    seen = Told(rule(remind_s=3_600))
    seen.see(0, 0.2)
    seen.known = {name: Acknowledgement(one.since_ms, "", 0) for name, one in seen.state.items()}
    seen.see(3_600, 0.2)
    seen.known = {}
    assert seen.see(3_630, 0.2) == ["firing", "reminder"]


def test_too_few_receipts_are_not_judged():
    seen = Told(rule(at_least=100))
    assert seen.see(0, 1.0, n=99) == []
    assert seen.see(30, 1.0, n=100) == ["firing"]


def test_a_group_that_is_gone_has_recovered():
    seen = Told(rule())
    seen.see(0, 0.2)
    assert seen.see(30) == ["firing", "recovered"]


def test_silence_is_alarming_where_too_little_is_and_stays_so():
    seen = Told(rule("< 10", metric=Metric.RATE, at_least=100))
    assert seen.see(0, 0.0, n=0, before=50.0, n_before=15_000) == ["firing"]
    assert seen.see(600) == ["firing"]
    assert seen.see(900, 40.0) == ["firing", "recovered"]


def test_a_change_is_measured_against_the_window_before():
    seen = Told(rule("> 2x", metric=Metric.DEAD))
    assert seen.see(0, 20.0, before=11.0, n_before=1_000) == []
    assert seen.see(30, 23.0, before=11.0, n_before=1_000) == ["firing"]


def test_a_change_from_nothing_is_none():
    seen = Told(rule("> 2x", metric=Metric.DEAD))
    assert seen.see(0, 20.0) == []
    assert seen.see(0, 20.0, before=0.0, n_before=1_000) == []


def test_each_group_is_told_for_itself():
    seen = Told(rule())
    for key in (("fcm",), ("apns",)):
        seen.state |= next_state(rule(), {}, {key: Measured(0.5, 10)}, NOW_MS)
    assert {group.pending.group["sink"] for group in seen.state.values()} == {"fcm", "apns"}


def test_a_message_that_was_not_taken_waits_unchanged():
    first = next_state(rule(), {}, {FCM: Measured(0.2, 10)}, NOW_MS)
    later = next_state(rule(), first, {FCM: Measured(0.0, 10)}, NOW_MS + 60_000)
    assert later == first


def test_no_more_groups_are_kept_than_fit_and_the_first_stay():
    first = next_state(rule(), {}, {("zz",): Measured(0.2, 10)}, NOW_MS)
    many = {(str(number),): Measured(0.2, 10) for number in range(MOST_KEPT + 5)}
    later = next_state(rule(), first, {("zz",): Measured(0.2, 10), **many}, NOW_MS)
    assert len(later) == MOST_KEPT
    assert first.keys() <= later.keys()


@given(st.lists(st.floats(0, 0.2), max_size=40))
def test_firing_and_recovered_take_turns(values):
    seen = Told(rule())
    for at_s, value in enumerate(values):
        seen.see(at_s, value)
    expected = ["firing", "recovered"] * len(values)
    assert [message.status for message in seen.said] == expected[: len(seen.said)]
    assert len(seen.said) % 2 == (1 if values and values[-1] > 0.05 else 0)


@pytest.mark.parametrize(
    ("text", "limit", "is_over", "is_change"),
    [
        ("> 0.05", 0.05, True, False),
        (">5%", 0.05, True, False),
        ("< 100", 100, False, False),
        ("> 2x", 2, True, True),
    ],
)
def test_a_threshold_is_read(text, limit, is_over, is_change):
    assert Threshold.parse(text) == Threshold(is_over, limit, is_change)


@pytest.mark.parametrize("text", ["0.05", "> -1", "= 3", "> 2y", "> 1e999x", ""])
def test_a_threshold_of_another_form_is_refused(text):
    with pytest.raises(BadInput, match="not of a form"):
        Threshold.parse(text)


def test_an_unknown_metric_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'failure_rate'"):
        parse_metric("failure-rate")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"by": "hour"}, "cannot be grouped by time"),
        ({"by": "sink", "metric": Metric.SHARE_ERROR}, "--by level"),
        ({"by": "", "metric": Metric.LAG_S, "where": ("sink=fcm",)}, "leave out"),
        ({"window_s": 10}, "1m to 1d"),
        ({"by": "sinks"}, "no dimension"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(given, words):
    with pytest.raises(BadInput, match=words):
        rule(**given)


def test_a_url_that_cannot_be_is_not_repeated():
    with pytest.raises(BadInput) as caught:
        AlertRule(name="a", metric=Metric.DEAD, when=Threshold(True, 1), url="ftp://x/secret")
    assert "secret" not in str(caught.value)


def test_a_group_fires_from_when_it_is_told_until_it_is_told_to_be_over() -> None:
    told = Told(rule(for_s=60))
    counts = []
    for at_s, value in ((0, 0.5), (60, 0.5), (90, 0.5), (120, 0.0)):
        told.see(at_s, value)
        counts.append(fires(told.state))

    assert counts == [0, 1, 1, 0]
    pending = next_state(told.rule, {}, {FCM: Measured(0.5, 1_000)}, NOW_MS)
    assert fires(pending) == 0
