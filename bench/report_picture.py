"""Draws docs/report.png: `python -m bench.report_picture`, from receipts made up for it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.receipts_store import HOUR_MS, HOURS, write_store
from pushlane.pipeline.reports.answers import AnswerOptions
from pushlane.pipeline.reports.plots import write_png
from pushlane.pipeline.reports.query import Period, Query
from pushlane.pipeline.reports.query_runner import report_of

_DOCS = Path(__file__).parent.parent / "docs"
_RECEIPTS = 300_000
_MIDNIGHT_MS = 1_893_456_000_000


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pushlane-picture-") as folder:
        write_store(Path(folder), _RECEIPTS, _MIDNIGHT_MS)
        period = Period(_MIDNIGHT_MS, _MIDNIGHT_MS + HOURS * HOUR_MS)
        report, _ = report_of(Path(folder), Query(period), AnswerOptions(1))
    write_png(report, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else _DOCS / "report.png")
