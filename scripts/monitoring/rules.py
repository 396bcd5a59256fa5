"""A rules file for Prometheus, of alerts and recording rules that are checked as they are made."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import indent

from pushlane.util.metrics import MetricDefinition
from scripts.monitoring.expression import Expression

_HEAD = """# Written by `python -m scripts.monitoring` from the definitions of metrics; a test fails
# when it is not. `promtool check rules` reads it.
groups:
"""
_LABEL = re.compile(r"\$labels\.(\w+)")


class Severity(StrEnum):
    """Who is told: somebody at once, or whoever looks at it in the morning."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True)
class RecordingRule:
    """A result that Prometheus works out once for all panels that show it."""

    metric: MetricDefinition
    expression: Expression

    def __post_init__(self) -> None:
        if (wrong := set(self.expression.labels) ^ set(self.metric.labels)) - {"namespace", "job"}:
            raise ValueError(f"{self.metric.name} and what it records differ in {sorted(wrong)}")

    def as_yaml(self) -> str:
        """Return the rule."""
        return f"  - record: {self.metric.name}\n{_expression(self.expression)}"


@dataclass(frozen=True)
class Alert:
    """Something that is wrong for longer than `lasting`, and where to read what to do.

    `summary` may name labels of the expression and its value; `runbook` is an anchor of
    docs/operations.md.
    """

    name: str
    expression: Expression
    lasting: str
    severity: Severity
    summary: str
    description: str
    runbook: str

    def __post_init__(self) -> None:
        named = set(_LABEL.findall(self.summary + self.description))
        if wrong := named - set(self.expression.labels):
            raise ValueError(f"{self.name} says {sorted(wrong)}, which its expression has not")

    def as_yaml(self, docs: str) -> str:
        """Return the rule; `docs` is where the page of the runbook is."""
        return (
            f"  - alert: {self.name}\n"
            f"{_expression(self.expression)}"
            f"    for: {self.lasting}\n"
            "    labels:\n"
            f"      severity: {self.severity}\n"
            "    annotations:\n"
            f"      summary: {json.dumps(self.summary)}\n"
            f"      description: {json.dumps(self.description)}\n"
            f"      runbook_url: {json.dumps(f'{docs}/operations.md#{self.runbook}')}\n"
        )


def rules_file(recorded: Sequence[RecordingRule], alerts: Sequence[Alert], docs: str) -> str:
    """Return the file's text."""
    return (
        f"{_HEAD}- name: pushlane-recorded\n  rules:\n"
        + "".join(rule.as_yaml() for rule in recorded)
        + "- name: pushlane-alerts\n  rules:\n"
        + "".join(alert.as_yaml(docs) for alert in alerts)
    )


def _expression(expression: Expression) -> str:
    return f"    expr: |-\n{indent(expression.text, ' ' * 6)}\n"
