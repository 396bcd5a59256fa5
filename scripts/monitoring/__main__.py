"""Writes the dashboard and the alert rules of the chart from the definitions of metrics."""

from __future__ import annotations

import argparse

from scripts.monitoring.files import DOCS, files


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.monitoring", description=__doc__)
    parser.add_argument(
        "--docs", default=DOCS, metavar="URL", help="where operations.md is, the runbook"
    )
    for path, text in files(parser.parse_args().docs).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
