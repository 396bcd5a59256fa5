"""The fairness figures, on orders whose figures are known."""

from __future__ import annotations

import pytest

from bench.deliveries import account
from bench.fairness_apps import judge, while_backlogged
from bench.fairness_of import jain, longest_gap, share_error
from dev.receiver import ArrivalLine

ENTITLED = {"high": 0.6, "medium": 0.3, "low": 0.1}
SMOOTH = ["high", "medium", "high", "high", "medium", "high", "low", "high", "medium", "high"]
IN_BLOCKS = ["high"] * 60 + ["medium"] * 30 + ["low"] * 10


def test_a_smooth_order_has_no_error_and_short_gaps() -> None:
    order = SMOOTH * 30

    assert share_error(order, ENTITLED) == 0
    assert [longest_gap(order, level) for level in ENTITLED] == [2, 4, 10]


def test_blocks_are_fair_over_a_whole_round_only() -> None:
    assert share_error(IN_BLOCKS, ENTITLED) == 0
    assert share_error(["high"] * 40 + IN_BLOCKS, ENTITLED) == 40
    assert longest_gap(IN_BLOCKS, "low") == 91


def test_too_few_picks_are_refused() -> None:
    with pytest.raises(ValueError, match="99 picks"):
        share_error(["high"] * 99, ENTITLED)


def test_jain_is_one_when_all_got_the_same_and_one_nth_when_one_got_all() -> None:
    assert jain([7, 7, 7]) == 1
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)


def test_an_account_names_what_is_lost_and_counts_repeats() -> None:
    log = [ArrivalLine("a", seq, "high", 0.0) for seq in (1, 3, 3)]

    assert account(log, {"a": 3, "b": 1}) == ([("a", 2), ("b", 1)], 1)


def test_apps_are_compared_by_quota_while_each_has_a_backlog() -> None:
    order = "aaababbabbabbbb"
    seqs = dict.fromkeys("ab", 0)
    log = []
    for task in order:
        seqs[task] += 1
        log.append(ArrivalLine(task, seqs[task], "high", 0.0))

    found = judge(log, {"a": 6, "b": 9}, {"a": "a", "b": "b"}, {"a": 1, "b": 2})

    assert "".join(while_backlogged(order)) == "abbabb"
    assert (found["by_app"], found["app_jain"]) == ({"a": 2, "b": 4}, 1.0)
    assert (found["lost"], found["duplicates"]) == (0, 0)
