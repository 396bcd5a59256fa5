"""Runs Helm on the cluster, and takes a warning of the API server for a failure."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from pushlane.core.errors import UserError
from scripts.chart_live.api import Object

_BOUND_S = 180
# Helm 4 takes up again what a release had left behind, as a claim, and says so.
_NO_FAULT = "using cluster state as baseline"


@dataclass(frozen=True)
class Helm:
    """A Helm by its name, with a kubeconfig, and a folder for all that it keeps."""

    name: str
    program: Path
    kubeconfig: Path
    folder: Path

    def run(self, *arguments: str) -> str:
        """What Helm printed.

        Raises:
            UserError: it failed, or warned: an API server's warnings and a chart's are defects.
        """
        kept = {
            f"HELM_{kind}_HOME": str(self.folder / kind) for kind in ("CACHE", "CONFIG", "DATA")
        }
        try:
            done = subprocess.run(
                [str(self.program), *arguments],
                env={**os.environ, **kept, "KUBECONFIG": str(self.kubeconfig)},
                capture_output=True,
                text=True,
                timeout=_BOUND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"helm {arguments[0]} did not end within {_BOUND_S} s") from None
        warned = [line for line in done.stderr.splitlines() if _NO_FAULT not in line]
        if done.returncode != 0 or any(warned):
            raise UserError(f"helm {' '.join(arguments)}:\n{done.stderr.strip()}")
        return done.stdout

    def manifests(self, *arguments: str) -> list[Object]:
        """The objects of the release that Helm printed as JSON, in the order of the chart."""
        manifest = json.loads(self.run(*arguments, "--output", "json"))["manifest"]
        return [found for found in yaml.safe_load_all(manifest) if found]
