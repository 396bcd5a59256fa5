"""Panels of a Grafana dashboard, and the words in which Grafana is told of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from scripts.monitoring.expression import Expression

DATASOURCE = DataSourceRef("prometheus", "${datasource}")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_LINK = re.compile(r" \(\[[^]]*\]\([^)]*\)\)")


class Look(Enum):
    """The ways to show what a panel asks for."""

    LINES = "lines"
    STACK = "stack"
    NUMBER = "number"
    TABLE = "table"


@dataclass(frozen=True)
class Query:
    """A question of a panel. `legend` may name labels of the result."""

    expression: Expression
    legend: str
    is_dashed: bool = False

    def __post_init__(self) -> None:
        if wrong := set(_PLACE.findall(self.legend)) - set(self.expression.labels):
            raise ValueError(f"legend {self.legend!r} names {sorted(wrong)}, which are not there")


@dataclass(frozen=True)
class Panel:
    """One panel. `unit` is Grafana's word; `colours` are from which value on it has which."""

    title: str
    unit: str
    queries: Sequence[Query]
    look: Look = Look.LINES
    width: int = 12
    colours: Sequence[tuple[float | None, str]] = ()

    @property
    def description(self) -> str:
        """The meanings of the metrics, each once and without links, which would lead nowhere."""
        metrics = {
            metric.name: metric for query in self.queries for metric in query.expression.metrics
        }
        return "\n\n".join(
            f"`{name}`: {_LINK.sub('', metric.meaning)}." for name, metric in metrics.items()
        )


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


Builder = timeseries.Panel | stat.Panel | table.Panel


def built(panel: Panel) -> Builder:
    """Return the panel as Grafana's library makes it."""
    match panel.look:
        case Look.NUMBER:
            made: Builder = _number(panel)
        case Look.TABLE:
            made = _table(panel)
        case _:
            made = _lines(panel)
    made.title(panel.title).description(panel.description).unit(panel.unit)
    made.datasource(DATASOURCE).span(panel.width)
    made.height(4 if panel.look is Look.NUMBER else 8)
    for number, query in enumerate(panel.queries):
        made.with_target(_target(query, chr(ord("A") + number), panel.look))
    return made


def _target(query: Query, ref_id: str, look: Look) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expression.text).legend_format(query.legend)
    made.ref_id(ref_id).datasource(DATASOURCE)
    if look is Look.TABLE:
        return made.instant().format(PromQueryFormat.TABLE)
    return made.instant() if look is Look.NUMBER else made.range()


def _lines(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().min(0).fill_opacity(8).line_width(1)
    made.legend(
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .calcs([])
    )
    made.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    if panel.look is Look.STACK:
        made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    for number, query in enumerate(panel.queries):
        if query.is_dashed:
            dash = DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})
            made.override_by_query(chr(ord("A") + number), [dash])
    return made


def _number(panel: Panel) -> stat.Panel:
    made = stat.Panel().no_value("none")
    steps = [Threshold(start, colour) for start, colour in panel.colours]
    made.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    return made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def _table(panel: Panel) -> table.Panel:
    made = table.Panel()
    made.with_transformation(
        DataTransformerConfig(
            "organize",
            options={"excludeByName": {"Time": True}, "renameByName": {"Value": panel.title}},
        )
    )
    return made.sort_by([common.TableSortByFieldState().display_name(panel.title).desc(True)])
