"""The files that are written, with what is in each."""

from __future__ import annotations

from pathlib import Path

from scripts.monitoring.alerts import alerts
from scripts.monitoring.dashboard import dashboard_file
from scripts.monitoring.recorded import RECORDED
from scripts.monitoring.rows import rows
from scripts.monitoring.rules import rules_file

CHART = Path(__file__).parents[2] / "charts" / "pushlane"
DOCS = "docs"
"""The folder of the runbook's page: where the project keeps its documents."""


def files(docs: str = DOCS) -> dict[Path, str]:
    """Return the text of each file; `docs` is the folder, or the URL, of the runbook's page."""
    return {
        CHART / "dashboards" / "pushlane.json": dashboard_file(rows()),
        CHART / "rules" / "pushlane.yaml": rules_file(RECORDED, alerts(), docs.rstrip("/")),
    }
