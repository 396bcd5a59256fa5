"""Writes the pages of docs/ that are made from the code: `PAGES`.

    python -m scripts.reference

A test compares what is in the folder with what this would write.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT
from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    UnionType,
    type_info,
)
from msgspec.structs import FieldInfo, fields

from pushlane import settings
from pushlane.settings import Settings
from pushlane.util.metrics import Exporter
from scripts.checks_page import checks_page
from scripts.cli_reference import CLI_PAGE, cli_page
from scripts.metrics import METRICS
from scripts.python_reference import PAGE, python_page

DOCS = Path(__file__).parent.parent / "docs"

_SETTINGS = """# Settings

*Written by `python -m scripts.reference` from `settings/__init__.py`; a test fails when it is not.*

Give a setting as a flag of some commands (`--slots 20`), as an environment variable
(`PUSHLANE_SLOTS=20`) or in `pushlane.toml` in the working directory (`slots = 20`). A flag wins
over a variable, and a variable over the file. `pushlane config` shows each value and its origin. A
wrong value is refused at the start, with its name, its origin and the values that fit. Names that
end in `_s` are in seconds. Secrets are never shown.

| setting | default | values | meaning |
|---|---|---|---|
"""

_METRICS = """# Metrics

*Written by `python -m scripts.reference` from the definitions that collectors are made of; a test
fails when it is not.*

Scrape them with Prometheus: every long-running command serves `/metrics` on `--metrics-port`
([health](health.md)). The chart brings a dashboard for Grafana 10.1 or newer, alerts, and the
recording rules that the dashboard needs (`charts/pushlane/dashboards`, `charts/pushlane/rules`).
Give all processes of an installation the same `job` in one namespace.
`python -m scripts.monitoring --docs URL` writes dashboard and alerts with links to your runbook.

No label holds a recipient or a push. Tasks and apps appear only for the ten largest backlogs, and
reasons for the first 20 (then `other`), so the number of series is bounded. Counters start with the
process; add up those of all processes. A histogram has the usual `_bucket`, `_sum` and `_count`.
"""

_SECTIONS = {
    Exporter.DISPATCHER: """## Of a dispatcher

Served by `pushlane dispatch --metrics-port`, or in the registry that you give to `Dispatcher`. With
`--workers` each sample has the label `worker` as well. Metrics that your processor registers with
`prometheus_client` are served, too, and so are the `process_…` and `python_…` metrics.
""",
    Exporter.LEADER: """## Of the dispatcher that leads

One dispatcher leads, whatever sinks it serves. It looks at all tasks every 5 s, and exports these
for all processes together. If it ends, another takes over within 10 s. How the seconds to drain are
counted is in [autoscaling](autoscaling.md).
""",
    Exporter.EVERY: """## Of every process

Served by each command that has `--metrics-port`.
""",
    Exporter.PIPELINE: "## Of `pipeline run`\n",
    Exporter.RULES: "## Of `rules serve`\n",
    Exporter.ALERTS: "## Of `alerts run`\n",
    Exporter.INGEST: "## Of `ingest`\n",
    Exporter.PRODUCER: """## Of a producer

Exported by `REGISTRY.register(producer.collector())` ([producers.md](producers.md#stats)).
""",
}

_DEFAULTS = {
    "sinks": "none",
    "data_dir": "`pushlane` in `$XDG_DATA_HOME`, else in `~/.local/share`",
}


def main() -> None:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make())


def settings_page() -> str:
    """The page of all settings, in the order in which they are declared."""
    meanings = _meanings()
    return _SETTINGS + "".join(
        f"| `{field.name}` | {_default(field)} | {_values(field.type)} | {meanings[field.name]} |\n"
        for field in fields(Settings)
    )


def _meanings() -> dict[str, str]:
    """The text below each field of the class, by the field's name, on one line."""
    module = ast.parse(Path(inspect.getfile(settings)).read_text())
    [body] = [
        node.body
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == Settings.__name__
    ]
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is NODEFAULT:
        return _DEFAULTS[field.name]
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"{value:_g}" if value < 1_000_000 else f"{value:_.0f}"


def _values(kind: Any) -> str:
    """The values that fit, in words."""
    info = type_info(kind)
    choices = info.types if isinstance(info, UnionType) else (info,)
    return " or ".join(_one(one) for one in choices if not isinstance(one, NoneType))


def _one(info: Any) -> str:
    match info:
        case LiteralType(values=words):
            return ", ".join(f"`{word}`" for word in words)
        case BoolType():
            return "`true`, `false`"
        case IntType() | FloatType():
            return _range(info.gt, info.ge, info.le)
    if isinstance(info, DictType):
        return "tables"
    return "path" if getattr(info, "cls", None) is Path else "text"


def _range(over: float | None, least: float | None, most: float | None) -> str:
    parts = [
        f"over {over:_g}" if over is not None else "",
        f"from {least:_.0f}" if least is not None else "",
        f"to {most:_.0f}" if most is not None else "",
    ]
    return " ".join(part for part in parts if part) or "number"


def metrics_page() -> str:
    """The page of all metrics, by who shows them, in the order in which they are shown."""
    return _METRICS + "".join(
        f"\n{head}\n{''.join(_rows(exporter))}" for exporter, head in _SECTIONS.items()
    )


def _rows(exporter: Exporter) -> Iterator[str]:
    yield "| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n"
    for one in METRICS:
        if one.exporter is exporter:
            labels = "; ".join(_label(name, values) for name, values in one.labels.items())
            yield f"| `{one.name}` | {one.kind} | {one.unit} | {labels} | {one.meaning} |\n"


def _label(name: str, values: Sequence[str]) -> str:
    return f"`{name}`: {', '.join(values)}" if values else f"`{name}`"


PAGES = {
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "doctor.md": checks_page,
    PAGE: python_page,
    CLI_PAGE: cli_page,
}

if __name__ == "__main__":
    main()
