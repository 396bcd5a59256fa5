"""Writes the chart's values.schema.json and the table of values in its README.

    python -m scripts.chart

Both follow from values.yaml: its defaults say the types, its comments the meanings. `SHAPES` has
what a default cannot say. The settings are those of `settings/__init__.py`. A test compares what is
in the folder with what this would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec.structs import fields

from pushlane.dispatcher.sinks import KINDS, require_options
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings

CHART = Path(__file__).parent.parent / "charts/pushlane"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"

Schema = dict[str, Any]

_HEADING = "## Values\n"
_SINK_NAME = "^[a-z][a-z0-9_-]{0,31}$"  # Helm knows no look-behind
_SINK = (  # the forms that open_sink takes
    "^(|null|(log|webhook|webhook\\+h2c):.+|https?://.+|[A-Za-z0-9_.]+:[A-Za-z0-9_.]+)$"
)
_GROUP_NAME = "^[a-z]([-a-z0-9]{0,14}[a-z0-9])?$"
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TEXT_MAP: Schema = {"type": "object", "additionalProperties": _TEXT}
_ANYTHING: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _ANYTHING}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_SOME: Schema = {"type": ["integer", "null"], "minimum": 1}
_SECONDS: Schema = {"type": "integer", "minimum": 1, "maximum": 86_400}
_SIZE: Schema = {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?([KMGTP]i?)?)?$"}
_SPARK_MEMORY: Schema = {"type": "string", "pattern": "^([0-9]+[kmgtKMGT])?$"}
_ACCESS_MODE: Schema = {"enum": ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]}
_PULL_POLICY: Schema = {"enum": ["Always", "IfNotPresent", "Never"]}


def _closed(properties: dict[str, Schema], **more: Any) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **more,
    }


def _named(one: Schema) -> Schema:
    """A map of things that have names, each of this form."""
    return {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {_GROUP_NAME: one},
    }


_POD = _closed(
    {
        "labels": _TEXT_MAP,
        "annotations": _TEXT_MAP,
        "nodeSelector": _TEXT_MAP,
        "tolerations": _OBJECTS,
        "affinity": _ANYTHING,
        "priorityClassName": _TEXT,
        "extraEnv": _OBJECTS,
        "extraVolumes": _OBJECTS,
        "extraVolumeMounts": _OBJECTS,
    }
)
_QUANTITIES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_RESOURCES = _closed({"requests": _QUANTITIES, "limits": _QUANTITIES})
_JOB = _closed(
    {
        "schedule": {"type": "string", "pattern": "^(@[a-z]+|\\S+( +\\S+){4})$"},
        "timeZone": _TEXT,
        "audience": {"type": "string", "minLength": 1},
        "where": _TEXT,
        "exclude": _TEXTS,
        "format": _TEXT,
        "options": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
        "most": _COUNT,
        "task": {"type": "object", "required": ["level"]},
        "suspend": {"type": "boolean"},
        "startingDeadlineSeconds": _COUNT,
        "backoffLimit": {"type": "integer", "minimum": 0},
        "activeDeadlineSeconds": {"type": "integer", "minimum": 1},
        "resources": _RESOURCES,
        "pod": _POD,
    },
    required=["schedule", "audience", "task"],
)
_INGEST = _closed(
    {
        "source": {"type": "string", "minLength": 1},
        "stream": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
        "app": _TEXT,
        "mapping": {"type": "object", "minProperties": 1},
        "replicas": _COUNT,
        "from": {"enum": ["first", "end"]},
        "onGap": {"enum": ["stop", "go"]},
        "mapTimeout": {"type": "number", "minimum": 0.1},
        "change": {"type": "boolean"},
        "kafka": {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
        "existingSecret": _TEXT,
        "badRecords": _closed({"size": _SIZE, "storageClassName": _TEXT}),
        "terminationGracePeriodSeconds": _SECONDS,
        "resources": _RESOURCES,
        "pod": _POD,
    },
    required=["source", "stream", "mapping"],
)
_ANY_NAME: dict[str, Schema] = {  # by the last word of the path
    "resources": _RESOURCES,
    "pod": _POD,
    "labels": _TEXT_MAP,
    "annotations": _TEXT_MAP,
    "matchLabels": _TEXT_MAP,
    "behavior": _ANYTHING,
    "pullPolicy": _PULL_POLICY,
    "accessMode": _ACCESS_MODE,
    "size": _SIZE,
    "replicas": _SOME,
    "terminationGracePeriodSeconds": _SECONDS,
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "every": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"},
    "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
}
SHAPES: dict[str, Schema] = {
    "imagePullSecrets": _OBJECTS,
    "settings": _ANYTHING,  # replaced by those of Settings
    "sparkJobs": _named(_JOB),
    "ingests": _named(_INGEST),
    "dispatcherDefaults.sinks": {**_TEXTS, "uniqueItems": True},
    "dispatcherDefaults.workers": {**_COUNT, "maximum": 64},
    "dispatcherDefaults.slots": {**_SOME, "maximum": 100_000},
    "dispatcherDefaults.terminationGracePeriodSeconds": {**_SECONDS, "type": ["integer", "null"]},
    "dispatcherDefaults.autoscaling.by": {"enum": ["none", "hpa", "keda"]},
    "dispatcherDefaults.autoscaling.minReplicas": _COUNT,
    "dispatcherDefaults.autoscaling.maxReplicas": _COUNT,
    "dispatcherDefaults.autoscaling.targetSeconds": {
        "type": ["number", "null"],
        "exclusiveMinimum": 0,
    },
    "dispatcherDefaults.autoscaling.keda.trigger": {"enum": ["metrics-api", "prometheus"]},
    "dispatcherDefaults.autoscaling.keda.pollingInterval": _COUNT,
    "spark.memory": _SPARK_MEMORY,
    "spark.executors.memory": _SPARK_MEMORY,
    "spark.executors.instances": {"type": "integer", "minimum": 0},
    "spark.executors.cores": _COUNT,
    "spark.conf": {
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    "serve.replicas": _COUNT,
    "serve.mostRequests": {"type": ["number", "null"], "exclusiveMinimum": 0},
    "rules.replicas": _COUNT,
    "receipts.maxBodies": _COUNT,
    "networkPolicy.metricsFrom": _OBJECTS,
    "networkPolicy.serveFrom": _OBJECTS,
    "networkPolicy.sparkFrom": _OBJECTS,
    "networkPolicy.egress": _OBJECTS,
    "podDisruptionBudget.maxUnavailable": {
        "anyOf": [_COUNT, {"type": "string", "pattern": "^[1-9][0-9]?%$"}]
    },
    "topologySpread.maxSkew": _COUNT,
    "topologySpread.whenUnsatisfiable": {"enum": ["ScheduleAnyway", "DoNotSchedule"]},
}


def main() -> None:
    SCHEMA.write_text(schema_text())
    README.write_text(readme_text())


def schema_text() -> str:
    """The schema of the values, as JSON."""
    values = yaml.safe_load(VALUES.read_text())
    schema = _schema(values, "")
    properties = schema["properties"]
    properties["settings"] = _settings()
    properties["dispatchers"] = _named(properties["dispatcherDefaults"])
    properties["global"] = _ANYTHING  # Helm gives it to each chart
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values", **schema}
    return json.dumps(whole, indent=2) + "\n"


def _schema(value: Any, path: str) -> Schema:
    """The schema of a value as its default has it."""
    if shape := SHAPES.get(path) or _ANY_NAME.get(path.rpartition(".")[2]):
        return shape
    match value:
        case bool():
            return {"type": "boolean"}
        case dict():
            inner = {name: _schema(one, f"{path}.{name}".strip(".")) for name, one in value.items()}
            return _closed(inner)
        case list():
            return _TEXTS
        case str():
            return _TEXT
    raise TypeError(f"values.yaml: {path} has a default that tells no type; put it into SHAPES")


def _settings() -> Schema:
    """The schema of the settings. What is refused for its place has a message in the templates."""
    made = msgspec.json.schema(Settings, schema_hook=lambda _: _TEXT)
    found = made["$defs"][Settings.__name__]["properties"]
    settings = {name: _without_null(one) for name, one in found.items()}
    settings["receipts"]["enum"] += [False, True]  # what YAML makes of off and on without quotes
    settings["loop_patience_s"]["anyOf"].append({"enum": [False]})
    settings["sinks"] = {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {
            _SINK_NAME: {
                "type": "object",
                "required": ["kind"],
                "properties": {"kind": {"enum": list(KINDS)}},
                "allOf": [_of_kind(kind) for kind in KINDS],
            }
        },
    }
    settings["sink"] = {"type": "string", "pattern": _SINK}
    return _closed(settings)


def _of_kind(kind: str) -> Schema:
    """Return the options that a sink of this kind may have, and those that it needs."""
    options = {one.name: one.required for one in fields(require_options(kind, [], kind))}
    ways = {name: [f"{name}{way}" for way in ("", "_file", "_env")] for name in options}
    own = [one.name for one in fields(SinkSettings)]
    known = [*own, *(given for name in options for given in ways[name])]
    needed = [
        {"anyOf": [{"required": [given]} for given in (*ways[name], "options")]}
        for name, is_needed in options.items()
        if is_needed
    ]
    then = {"additionalProperties": False, "properties": dict.fromkeys(known, True)}
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {**then, **({"allOf": needed} if needed else {})},
    }


def _without_null(setting: Schema) -> Schema:
    """What fits a setting that is given: a default may be nothing, and stands elsewhere."""
    kinds = [one for one in setting.get("anyOf", [setting]) if one != {"type": "null"}]
    kind = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {name: value for name, value in kind.items() if name != "default"}


def readme_text() -> str:
    """The README with its table of values as they are now."""
    before, heading, _ = README.read_text().partition(_HEADING)
    return before + heading + "\n" + "".join(_table())


def _table() -> Iterator[str]:
    lines = VALUES.read_text().splitlines()
    yield "*Written by `python -m scripts.chart` from values.yaml; a test fails when it is not.*\n"
    yield "\n| value | default | |\n|---|---|---|\n"
    for path, line, default in _leaves(yaml.compose(VALUES.read_text()), ""):
        comment = _comment(lines, line)
        if default or comment:
            yield f"| `{path}` | {default} | {comment} |\n"


def _leaves(node: yaml.MappingNode, path: str) -> Iterator[tuple[str, int, str]]:
    """The path, line and default of each value; of a map that has some, no default."""
    for key, value in node.value:
        here = f"{path}.{key.value}".strip(".")
        is_map = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        yield here, key.start_mark.line, "" if is_map else f"`{_default(value)}`"
        if is_map:
            yield from _leaves(value, here)


def _default(node: yaml.Node) -> str:
    value = yaml.safe_load(yaml.serialize(node))
    return json.dumps(value)


def _comment(lines: list[str], line: int) -> str:
    """The comment right above a line."""
    above = lines[line - 1].strip()
    return above.removeprefix("# ").replace("|", "\\|") if above.startswith("# ") else ""


if __name__ == "__main__":
    main()
