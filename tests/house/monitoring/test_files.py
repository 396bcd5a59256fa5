"""The dashboard and the rules as they are checked in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, ProcessCollector

from scripts.metrics import METRICS
from scripts.monitoring.alerts import alerts
from scripts.monitoring.files import CHART, files
from scripts.monitoring.known import OF_EACH_PROCESS
from scripts.monitoring.recorded import RECORDED
from tests.prometheus import Promtool
from tests.series import series_names

DASHBOARD = CHART / "dashboards" / "pushlane.json"
RULES = CHART / "rules" / "pushlane.yaml"

_NOT_NAMES = re.compile(
    r"""
    "[^"]*"                              # a value
    | \[[^]]*\]                          # a time
    | \boffset\s+\w+
    | \b(?:\w+\ by|on|group_left|group_right)\s*\([^)]*\)
    | \b\w+(?==~?)                       # a label
    | \b\w+(?=\s*\()                     # a function
    | \b(?:and|or|unless|bool)\b
    """,
    re.VERBOSE,
)


def named(expression: str) -> set[str]:
    """The series that an expression asks for."""
    return set(re.findall(r"[A-Za-z_:][\w:]*", _NOT_NAMES.sub(" ", expression)))


def panels() -> list[dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def rule_expressions() -> list[str]:
    """The blocks behind `expr: |-`."""
    found = re.findall(r"expr: \|-\n((?: {6}.*\n)+)", RULES.read_text())
    assert len(found) == RULES.read_text().count("expr:")
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_the_files_are_what_would_be_written(path: Path) -> None:
    assert path.read_text() == files()[path], "run: python -m scripts.monitoring"


def test_every_expression_names_series_that_there_are() -> None:
    expressions = [*panel_expressions(), *rule_expressions()]

    wrong = {expression: named(expression) - series_names() for expression in expressions}

    assert {expression: names for expression, names in wrong.items() if names} == {}
    assert all(named(expression) for expression in expressions)


def test_a_name_that_nobody_shows_is_noticed() -> None:
    expression = 'sum by (sink) (rate(pushlane_picks_total{level=~"$level"}[5m])) > on () (up)'

    assert named(expression) == {"pushlane_picks_total", "up"}


def test_metrics_of_a_process_are_those_that_the_client_shows() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)

    shown = {sample.name for family in registry.collect() for sample in family.samples}

    assert {metric.name for metric in OF_EACH_PROCESS} <= shown


def test_no_label_of_ours_is_one_that_prometheus_adds() -> None:
    """It would rename ours, and expressions would ask for its own."""
    ours = {label for metric in METRICS for label in metric.labels}

    assert ours & {"namespace", "job", "instance", "pod", "le", "quantile"} == set()


def test_prometheus_reads_every_expression(promtool: Promtool, tmp_path: Path) -> None:
    given = [re.sub(r"\$__\w+", "5m", expression) for expression in panel_expressions()]
    recorded = [{"record": f"panel:{n}", "expr": one} for n, one in enumerate(given)]
    path = tmp_path / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))

    assert f"{len(given)} rules found" in promtool("check", "rules", path)
    assert f"{len(RECORDED) + len(alerts())} rules found" in promtool("check", "rules", RULES)


def test_grafana_reads_the_dashboard_as_it_was_meant() -> None:
    """Its library drops what it does not know, and what is of the wrong shape."""
    register_default_plugins()
    text = json.loads(DASHBOARD.read_text())

    read = Dashboard.from_json(text)

    assert read.uid == "pushlane"
    assert json.loads(json.dumps(read, default=lambda one: one.to_json())) == text


def test_panels_fill_the_rows_and_cover_none_of_each_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for cell in _cells(panel["gridPos"]):
            assert cell not in taken, f"{panel['title']} is on {taken[cell]}"
            taken[cell] = panel["title"]
    heights = {y for _, y in taken}

    assert {x for x, _ in taken} == set(range(24))
    assert len(taken) == 24 * len(heights)


def test_each_panel_says_what_it_shows_and_in_which_unit() -> None:
    bare = [
        panel["title"]
        for panel in panels()
        if not panel["description"] or not panel["fieldConfig"]["defaults"]["unit"]
    ]
    numbers = [panel["id"] for panel in panels()]

    assert bare == []
    assert len(numbers) == len(set(numbers))


def test_variables_that_panels_name_are_there() -> None:
    declared = {one["name"] for one in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", " ".join(panel_expressions()))) - {"__rate_interval"}

    assert used | {"datasource"} == declared


def _cells(at: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(at["x"], at["x"] + at["w"]):
        for y in range(at["y"], at["y"] + at["h"]):
            yield x, y
