"""Reads a rule from a TOML file or from options of the same names, with its task inside or beside.

Paths are made absolute, since the process that runs the rule may have another working folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

from pushlane.core.errors import BadInput
from pushlane.model.times import parse_age
from pushlane.pipeline.rules.rule import Rule, make_rule
from pushlane.pipeline.spec import TaskSpec, load_spec, parse_spec, read_toml, with_payload
from pushlane.settings import Settings

_ALLOWED = ("silent", "literal_braces")


def read_rule_file(path: Path) -> dict[str, Any]:
    """Read the fields of a rule from a TOML file; the file's name is the rule's unless it has one.

    Raises BadInput if the file, or the task spec that it names, cannot be read.
    """
    fields = {name.replace("-", "_"): value for name, value in read_toml(path, "rule").items()}
    return {"name": path.stem, **_placed(fields, path.absolute().parent)}


def read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a rule from the command line, with paths from the working folder."""
    return _placed(given, Path.cwd())


def build_rule(fields: Mapping[str, Any], settings: Settings, now_ms: int) -> Rule:
    """Make a rule of these fields, and check everything that can be checked without Spark.

    Raises BadInput if a field, the schedule or the task cannot be, and says what it may be.
    """
    name = str(fields.get("name", ""))
    rule = make_rule(name, {key: fields[key] for key in fields if key != "name"}, now_ms)
    if rule.task.get("key"):
        raise BadInput(
            f"rule {name!r}: its task has a key, but each run has one of its own; leave it out"
        )
    spec = parse_spec(rule.task, f"of rule {name!r}")  # what it allows is kept beside it: see Rule
    task = {key: rule.task[key] for key in rule.task if key.replace("-", "_") not in _ALLOWED}
    allowed = {key: getattr(spec, key) for key in _ALLOWED}
    rule = rule.model_copy(update={**allowed, "task": task})
    rule_spec(rule).check(settings, f"rule-{name}")
    return rule


def rule_spec(rule: Rule) -> TaskSpec:
    """Return the task spec of the rule's runs, named after the rule unless it has a name."""
    spec = parse_spec(rule.task, f"of rule {rule.name!r}")
    allowed = {name: getattr(rule, name) is not False for name in _ALLOWED}
    made: TaskSpec = spec.model_copy(update={**allowed, "name": spec.name or rule.name})
    return made


def _placed(given: Mapping[str, Any], base: Path) -> dict[str, Any]:
    fields = dict(given)
    if spec := fields.pop("task_spec", None):
        found = load_spec(base / str(spec))
        fields["task"] = found.model_dump(mode="json", exclude_unset=True)
    if isinstance(task := fields.get("task"), Mapping):
        task = with_payload(dict(task), base)
        fields["task"] = {  # with times of TOML as the texts that a task spec takes
            name: value.isoformat() if isinstance(value, (date, time)) else value
            for name, value in task.items()
        }
    if window := fields.pop("catch_up_for", None):
        fields["catch_up_s"] = parse_age(str(window)) / 1000
    if isinstance(audience := fields.get("audience"), str):
        fields["audience"] = _absolute(audience, base)
    if isinstance(exclude := fields.get("exclude"), (list, tuple)):
        fields["exclude"] = tuple(_excluded(source, base) for source in exclude)
    return fields


def _absolute(source: str, base: Path) -> str:
    """Make a path absolute, and leave a table's name or a URL as it is."""
    is_path = "/" in source or (source != "" and (base / source).exists())
    return str(base / source) if is_path and "://" not in source else source


def _excluded(source: Any, base: Path) -> Any:
    """Make the path of an excluded source absolute, also in the form `PATH:COLUMN`."""
    if not isinstance(source, str):
        return source
    path, colon, column = source.rpartition(":")
    has_column = colon and "/" not in column
    return f"{_absolute(path, base)}:{column}" if has_column else _absolute(source, base)
