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

Each setting is given as a flag of some commands (`--slots 20`), as an environment variable
(`PUSHLANE_SLOTS=20`) or in `pushlane.toml` in the working directory (`slots = 20`). A flag goes
over a variable, and that over the file. `pushlane config` shows what is in force and from where.
A value that cannot be used is refused at the start, with its name, where it stands and what fits.
Names that end in `_s` are in seconds. Secrets are never shown.

| setting | default | values | |
|---|---|---|---|
"""

_METRICS = """# Metrics

*Written by `python -m scripts.reference` from the definitions that collectors are made of; a test
fails when it is not.*

No label holds a recipient or a push, and tasks and apps are named for the ten largest backlogs
alone: so there are never more series than levels, outcomes, reasons (20, then `other`) and sinks
make. Counters are since the process started; those of all processes add up. A histogram has the
usual `_bucket`, `_sum` and `_count`.

From the same definitions are a dashboard for Grafana 10.1 or newer and alerts for Prometheus, in
`charts/pushlane/dashboards` and `charts/pushlane/rules`, with recording rules that the dashboard
needs. Both take one `job` of a namespace for one installation: give all its processes the same.
`python -m scripts.monitoring --docs URL` writes them with links to a runbook of yours.
"""

_SECTIONS = {
    Exporter.DISPATCHER: """## Of a dispatcher

Served by `pushlane dispatch --metrics-port`, or in the registry that is given to `Dispatcher`. With
`--workers` each sample has the label `worker` as well. What a processor registers with
`prometheus_client` is served beside these, and so are the `process_…` and `python_…` metrics.
""",
    Exporter.LEADER: """## Of the dispatcher that leads

One dispatcher leads, whatever sinks it serves. It looks at all tasks every 5 s, and shows these of
all processes; once it leads no more it shows none of them. Another takes over within 10 s.
What the seconds to drain count is in [autoscaling.md](autoscaling.md).
""",
    Exporter.EVERY: """## Of every process

Served by each command that has `--metrics-port`.
""",
    Exporter.PIPELINE: "## Of `pipeline run`\n",
    Exporter.RULES: "## Of `rules serve`\n",
    Exporter.ALERTS: "## Of `alerts run`\n",
    Exporter.INGEST: "## Of `ingest`\n",
    Exporter.PRODUCER: """## Of a producer

Shown by `REGISTRY.register(producer.collector())` ([producers.md](producers.md#stats)).
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
    yield "| metric | kind | unit | labels | |\n|---|---|---|---|---|\n"
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
