"""Installs the definitions of other operators' kinds that the chart may use.

They come from those operators' Go modules, which the module proxy has and the checksum database
vouches for.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pushlane.lanes.errors import Unreachable, UserError
from scripts.chart_live.api import Api, holds_within
from scripts.chart_live.build import API_SERVER, find_go

_DOWNLOAD_BOUND_S = 600
_SETTLE_BOUND_S = 60.0
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Source:
    """A Go module at one version, and the files of it that hold definitions."""

    module: str
    folder: str
    files: tuple[str, ...]


SOURCES = (
    Source(
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd",
        (
            "monitoring.coreos.com_servicemonitors.yaml",
            "monitoring.coreos.com_podmonitors.yaml",
            "monitoring.coreos.com_prometheusrules.yaml",
        ),
    ),
    Source(
        "github.com/kedacore/keda/v2@v2.21.0",
        "config/crd/bases",
        ("keda.sh_scaledobjects.yaml", "keda.sh_triggerauthentications.yaml"),
    ),
)


def install(api: Api) -> None:
    """Give the definitions to an API server.

    Raises:
        UserError: a module cannot be had, or the server refuses a definition.
        Unreachable: the server does not serve the kinds.
    """
    go = find_go()
    for source in SOURCES:
        folder = _downloaded(go, source.module) / source.folder
        for name in source.files:
            api.post(_PATH, (folder / name).read_text())
    if not holds_within(_SETTLE_BOUND_S, lambda: _serves(api)):
        raise Unreachable(
            f"{API_SERVER} does not serve the kinds of {_PATH} after {_SETTLE_BOUND_S:.0f} s"
        )


def _serves(api: Api) -> bool:
    """Objects of each kind can be listed, which takes a moment after its definition."""
    specs = [found["spec"] for found in api.items(_PATH)]
    return all(
        api.ask(
            "GET", f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        ).accepted
        for spec in specs
        for version in spec["versions"]
        if version["served"]
    )


def _downloaded(go: str, module: str) -> Path:
    """The module's folder in Go's cache."""
    with tempfile.TemporaryDirectory() as nowhere:  # out of reach of any go.mod
        done = subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd=nowhere,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_BOUND_S,
            check=False,
        )
    try:
        return Path(json.loads(done.stdout)["Dir"])
    except (ValueError, KeyError):
        reason = (done.stdout + done.stderr).strip()
        raise UserError(f"{module} cannot be had from the Go module proxy: {reason}") from None
