"""Writes docs/settings.md, metrics.md and doctor.md from the code, so that none is out of date.

    python -m scripts.reference

A test compares what is in the folder with what this would write.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT
from msgspec.inspect import DictType, FloatType, IntType, LiteralType, UnionType, type_info
from msgspec.structs import FieldInfo, fields
from prometheus_client.core import Metric

from pushlane.dispatcher.stats import Gauges, LineMetrics, Stats
from pushlane.lanes import settings
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Level
from pushlane.producers.outbox.stats import ProducerCollector, ProducerStats
from scripts.checks_page import checks_page

DOCS = Path(__file__).parent.parent / "docs"

_SETTINGS = """# Settings

*Written by `python -m scripts.reference` from `lanes/settings.py`; a test fails when it is not.*

Each setting is given as a flag of some commands (`--slots 20`), as an environment variable
(`PUSHLANE_SLOTS=20`) or in `pushlane.toml` in the working directory (`slots = 20`). A flag goes
over a variable, and that over the file. `pushlane config` shows what is in force and from where.
A value that cannot be used is refused at the start, with its name, where it stands and what fits.
Names that end in `_s` are in seconds. Secrets are never shown.

| setting | default | values | |
|---|---|---|---|
"""

_METRICS = """# Metrics

*Written by `python -m scripts.reference` from the collectors; a test fails when it is not.*

Names, labels and meanings of what Prometheus reads. No label holds a recipient, a push or a task:
so there are never more series than levels, outcomes and sinks make. Counters are since the process
started. A histogram has the usual `_bucket`, `_sum` and `_count`.

## Of a dispatcher

Served by `pushlane dispatch --metrics-port`, or in the registry that is given to `Dispatcher`.

{dispatcher}
## Of a producer

Shown by `REGISTRY.register(producer.collector())` ([producers.md](producers.md#stats)).

{producer}"""

_DEFAULTS = {
    "sinks": "none",
    "data_dir": "`pushlane` in `$XDG_DATA_HOME`, else in `~/.local/share`",
}
_UNBOUNDED = ("sink", "producer", "le")


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
        return f"`{value}`"
    return f"{value:_g}" if value < 1_000_000 else f"{value:_.0f}"


def _values(kind: Any) -> str:
    """The values that fit, in words."""
    info = type_info(kind)
    if isinstance(info, UnionType):
        info = next(one for one in info.types if not one.__class__.__name__.startswith("None"))
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
    """The page of all metrics, in the order in which the collectors show them."""
    return _METRICS.format(
        dispatcher=_table(LineMetrics(_stats(), _idle_gauges(), "webhook").collect()),
        producer=_table(ProducerCollector("orders", _idle_producer).collect()),
    )


def _stats() -> Stats:
    """Counts of a dispatcher that has seen each label once whose values are not known before."""
    stats = Stats()
    stats.dead_addresses["as the sink says it"] = 0
    return stats


def _idle_gauges() -> Gauges:
    """Gauges of a dispatcher that does nothing."""
    special: dict[str, Callable[[], Any]] = {
        "resting": list,
        "backlog": lambda: dict.fromkeys(Level, 0),
        "weights": lambda: dict.fromkeys(Level, 1),
    }
    names = inspect.signature(Gauges).parameters
    return Gauges(**{name: special.get(name, int) for name in names})


def _idle_producer() -> ProducerStats:
    return ProducerStats("", 0, 0, 0, 0, 0, 0, 0, 0, 0, (), 0.0, "")


def _table(metrics: Iterable[Metric]) -> str:
    return "".join(chain(["| metric | kind | labels | |\n|---|---|---|---|\n"], _rows(metrics)))


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield f"| `{name}` | {metric.type} | {_labels(metric)} | {metric.documentation} |\n"


def _labels(metric: Metric) -> str:
    """Each label with the values that it can have, where they are few and known."""
    values: dict[str, dict[str, None]] = {}
    for sample in metric.samples:
        for label, value in sample.labels.items():
            values.setdefault(label, {})[value] = None
    return "; ".join(
        f"`{label}`" if label in _UNBOUNDED else f"`{label}`: {', '.join(found)}"
        for label, found in values.items()
        if label != "le"
    )


PAGES = {"settings.md": settings_page, "metrics.md": metrics_page, "doctor.md": checks_page}

if __name__ == "__main__":
    main()
