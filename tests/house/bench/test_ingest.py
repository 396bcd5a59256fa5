"""Ingest in the benchmarks: what its figures say of the parts that were measured."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from bench.figures import Figure
from bench.ingest import add_options, figures

RATE = {"records_per_s": 29_000, "submit_per_s": 40_000, "ratio": 0.72}
MEMORY = {"memory_records": 1_000, "rss_mb": [100.0, 110.0], "peak_rss_mb": [120.0, 130.0]}


def figures_of(**result: Any) -> dict[str, Figure]:
    return {one.name: one for one in figures({"load_before": 0.4, **result})}


def test_all_parts_are_measured_unless_some_are_named() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert list(parser.parse_args([]).parts) == ["rate", "lag", "memory"]
    assert parser.parse_args(["--parts", "lag"]).parts == ["lag"]


def test_what_was_not_measured_has_no_figure() -> None:
    assert list(figures_of()) == ["load of the machine before"]
    assert "records/s" not in figures_of(lag_ms_p50=21.0, lag_ms_p99=40.0)


@pytest.mark.parametrize(
    ("rate", "ratio", "met"), [(29_000, 0.72, True), (31_000, 0.5, True), (29_000, 0.69, False)]
)
def test_one_of_the_two_goals_of_the_rate_is_enough(rate: int, ratio: float, met: bool) -> None:
    found = figures_of(**{**RATE, "records_per_s": rate, "ratio": ratio})
    assert found["records/s"].met is met
    assert found["of the rate of `submit`"].met is met


@pytest.mark.parametrize(("growth", "met"), [(1.1, True), (1.11, False)])
def test_memory_may_grow_by_a_tenth(growth: float, met: bool) -> None:
    found = figures_of(**{**MEMORY, "memory_growth": growth})
    assert found["the same of 1,000"].measured == "110 MiB; 130 MiB"
    assert found["growth from the one to the other"].met is met
