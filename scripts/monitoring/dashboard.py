"""The dashboard as Grafana reads it, version 10.1 or newer."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
)
from grafana_foundation_sdk.builders.dashboard import Row as RowBuilder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from pushlane.util.metrics import MetricDefinition
from scripts.monitoring.expression import TARGET
from scripts.monitoring.known import known
from scripts.monitoring.panels import DATASOURCE, Row, built

_ABOUT = (
    "Priority-queue push dispatch. A job is one pushlane. Panels of times need the recording rules "
    "in pushlane.yaml."
)


def dashboard_file(rows: Sequence[Row]) -> str:
    """Return the file's text."""
    made = Dashboard("pushlane").uid("pushlane").tags(["pushlane"]).description(_ABOUT)
    made.refresh("30s").time("now-1h", "now").timezone("browser").readonly()
    made.tooltip(DashboardCursorSync.CROSSHAIR)
    made.with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in _variables():
        made.with_variable(variable)
    number = 0
    for row in rows:
        number += 1
        made.with_row(RowBuilder(row.title).id(number))
        for panel in row.panels:
            number += 1
            made.with_panel(built(panel).id(number))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _variables() -> list[QueryVariable]:
    """Return the variables that the panels' expressions name.

    A namespace that no series has is the empty one, which `.*` finds. Of jobs all are listed, so
    that figures of processes are of these jobs alone.
    """
    of_levels = known("pushlane_backlog")
    return [
        _values("namespace", known("pushlane_info")).all_value(".*"),
        _values("job", known("pushlane_info")),
        _values("sink", of_levels).all_value(".*"),
        _values("level", of_levels).all_value(".*"),
    ]


def _values(label: str, metric: MetricDefinition) -> QueryVariable:
    """Return a variable with the values that a label of a metric has."""
    if label not in (*TARGET, *metric.labels):
        raise ValueError(f"{metric.name} has no label {label!r}")
    every = VariableOption(selected=True, text=["All"], value=["$__all"])
    made = QueryVariable(label).query(f"label_values({metric.name}, {label})")
    made.datasource(DATASOURCE).multi(True).include_all(True).current(every)
    return made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
