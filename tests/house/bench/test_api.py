"""What the HTTP API is judged by."""

from __future__ import annotations

import pytest

from bench.api import figures

RESULT = {
    "pushes_per_s": 30_000,
    "submit_per_s": 50_000,
    "submit_ratio": 0.6,
    "single_per_s": 2_000,
    "single_p99_ms": 20.0,
    "quota_p50_ms": 2.0,
    "quota_p99_ms": 10.0,
    "preview_p50_ms": 150.0,
    "preview_p99_ms": 200.0,
    "why_s": 0.3,
    "idle_streams_mib": 21.0,
    "start_s": 0.4,
    "tasks": 100_000,
    "serve_mib": 60.0,
    "remote_ratio": 1.2,
}


@pytest.mark.parametrize(
    ("rate", "ratio", "is_met"),
    [(30_000, 0.2, True), (10_000, 0.6, True), (10_000, 0.4, False)],
)
def test_lines_are_fast_enough_by_their_rate_or_beside_submit(
    rate: int, ratio: float, is_met: bool
) -> None:
    measured, beside, *_ = figures({**RESULT, "pushes_per_s": rate, "submit_ratio": ratio})

    assert (measured.met, beside.met) == (is_met, is_met)


def test_a_goal_that_is_missed_is_told() -> None:
    shown = figures({**RESULT, "quota_p99_ms": 50.5, "serve_mib": 129.0, "start_s": 1.0})

    assert [one.name for one in shown if one.met is False] == [
        "the same, 99 of 100",
        "MiB beside 100,000 tasks",
    ]
