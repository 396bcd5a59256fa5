"""Programs that look at a chart, and the schemas of custom resources that they check it with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from pushlane.core.errors import UserError
from scripts import go_modules

KUBE_VERSION = "1.30.0"


class _Loader(yaml.SafeLoader):
    """Reads a lone `=` as the text that it is."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def program(name: str) -> Path:
    """The path of a program, which is built if this machine has it not yet."""
    try:
        return go_modules.program(name)
    except UserError as error:
        pytest.fail(str(error)) if os.environ.get("CI") == "true" else pytest.skip(str(error))


def write_custom_schemas(folder: Path) -> None:
    """Write the schemas of the custom resources that the chart may make, for kubeconform."""
    for file in go_modules.custom_resources():
        _write_schema(yaml.load(file.read_text(), _Loader)["spec"], folder)


def _write_schema(resource: dict[str, Any], folder: Path) -> None:
    for version in resource["versions"]:
        schema = _closed(version["schema"]["openAPIV3Schema"])
        name = f"{resource['names']['kind'].lower()}_{version['name']}.json"
        (folder / name).write_text(json.dumps(schema))


def _closed(schema: Any) -> Any:
    """The schema, refusing names that it does not know, which an API server would drop."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        inner["additionalProperties"] = False
    return inner
