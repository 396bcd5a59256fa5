"""The chart as Helm renders it, and what there is in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.chart import CHART
from tests.chart.tools import KUBE_VERSION, program

Manifest = dict[str, Any]
RELEASE = "push"
EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
HELMS = ("helm-3", "helm-4")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True)
class Rendered:
    """What `helm template` printed, and whether it could."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def manifests(self) -> list[Manifest]:
        assert self.exit_code == 0, self.stderr
        return [each for each in yaml.safe_load_all(self.stdout) if each]

    def of(self, kind: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] == kind]

    def one(self, kind: str, name: str) -> Manifest:
        [found] = [each for each in self.of(kind) if each["metadata"]["name"] == name]
        return found

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """Every pod's template, with the name of what it is of."""
        for each in self.manifests:
            name = f"{each['kind']} {each['metadata']['name']}"
            if each["kind"] in ("Deployment", "StatefulSet"):
                yield name, each["spec"]["template"]
            elif each["kind"] == "CronJob":
                yield name, each["spec"]["jobTemplate"]["spec"]["template"]
            elif "executor.yaml" in each.get("data", {}):
                yield f"{name} executor", yaml.safe_load(each["data"]["executor.yaml"])


def render(
    values: Path, *, sets: Sequence[str] = (), helm: str = "helm-3", kube: str = KUBE_VERSION
) -> Rendered:
    """Render the chart with these values, and with `sets`, each NAME=VALUE."""
    return run_helm(helm, "template", RELEASE, values, sets, kube)


def run_helm(
    helm: str, verb: str, release: str, values: Path, sets: Sequence[str], kube: str
) -> Rendered:
    options = [option for each in sets for option in ("--set", each)]
    command = [program(helm), verb, *filter(None, [release]), CHART, "--values", values]
    ran = subprocess.run(
        [*command, "--kube-version", kube, *options], capture_output=True, text=True
    )
    return Rendered(ran.returncode, ran.stdout, ran.stderr)
