"""Programs that look at a chart: built by Go once, and kept in ~/.cache/pushlane.

They come as Go modules, as Kubernetes' custom resources do, so that nothing but a module proxy is
asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

KUBE_VERSION = "1.30.0"
_CACHE = Path.home() / ".cache/pushlane/tools"
_NICE = ("nice", "-n", "10")
_PROGRAMS = {
    "helm-3": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "helm-4": ("helm.sh/helm/v4/cmd/helm", "v4.3.1"),
    "kubeconform": ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0"),
}
_CUSTOM_RESOURCES = {
    "github.com/kedacore/keda/v2@v2.21.0": "config/crd/bases/keda.sh_scaledobjects.yaml",
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": "example/prometheus-operator-crd",
}


class _Loader(yaml.SafeLoader):
    """Reads a lone `=` as the text that it is."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def program(name: str) -> Path:
    """The path of a program, which is built if this machine has it not yet."""
    package, version = _PROGRAMS[name]
    file = package.rpartition("/")[2]
    folder = _CACHE / file / version.removeprefix("v")
    if not (folder / file).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _go("install", f"{package}@{version}", GOBIN=str(folder))
    return folder / file


def write_custom_schemas(folder: Path) -> None:
    """Write the schemas of the custom resources that the chart may make, for kubeconform."""
    for module, place in _CUSTOM_RESOURCES.items():
        source = Path(json.loads(_go("mod", "download", "-json", module))["Dir"]) / place
        for file in sorted(source.glob("*.yaml")) if source.is_dir() else [source]:
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


def _go(*arguments: str, **environment: str) -> str:
    if not shutil.which("go"):
        message = "needs Go, which builds helm: https://go.dev/doc/install"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    ran = subprocess.run(
        [*_NICE, "go", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
