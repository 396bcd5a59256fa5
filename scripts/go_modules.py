"""Programs and files that come as Go modules, at the versions that we are tried with.

The module proxy has them and the checksum database vouches for them, so nothing else is asked.
Programs are built once and kept in the user's cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dev import alone
from dev.stack import default_cache_dir
from pushlane.core.errors import UserError

OLDEST_GO = (1, 26)
PROGRAMS = {
    "helm-3": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "helm-4": ("helm.sh/helm/v4/cmd/helm", "v4.3.1"),
    "oapi-codegen": ("github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen", "v2.8.2"),
    "kubeconform": ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0"),
}
_OPERATOR = "example/prometheus-operator-crd/monitoring.coreos.com"
CUSTOM_RESOURCES = {
    "github.com/kedacore/keda/v2@v2.21.0": ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        f"{_OPERATOR}_servicemonitors.yaml",
        f"{_OPERATOR}_prometheusrules.yaml",
    ),
}

_USUAL_PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin")
_NICE = ("nice", "-n", "10")
_BOUND_S = 7200
_TAIL_LINES = 20


def find_go() -> str:
    """The path of a Go that is new enough.

    Raises:
        UserError: there is none, or it is too old.
    """
    path = os.pathsep.join((os.environ.get("PATH", ""), *_USUAL_PLACES))
    wanted = ".".join(map(str, OLDEST_GO))
    go = shutil.which("go", path=path)
    if go is None:
        raise UserError(
            f"what this is tried with is built with Go {wanted} or newer, and there is none; "
            "install it from https://go.dev/dl/, or put it on the PATH"
        )
    shown = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", shown.stdout)
    if not found or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise UserError(
            f"{go} is {shown.stdout.strip() or 'of no known version'}; "
            f"install Go {wanted} or newer from https://go.dev/dl/"
        )
    return go


def run_go(*arguments: str, folder: Path | None = None, **environment: str) -> str:
    """What Go printed; it ran in this folder, or out of reach of any go.mod.

    Raises:
        UserError: there is no Go that fits, or it failed; the message has the end of what it said.
    """
    go = find_go()
    with tempfile.TemporaryDirectory() as nowhere:
        try:
            done = subprocess.run(
                [*_NICE, go, *arguments],
                cwd=folder or nowhere,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=_BOUND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"go {arguments[0]} did not end within {_BOUND_S} s") from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
        raise UserError(f"go {arguments[0]} {arguments[-1]} ended with {done.returncode}:\n{tail}")
    return done.stdout


def program(name: str, on_build: Callable[[str], None] = lambda step: None) -> Path:
    """The path of one of PROGRAMS, which is built if this machine has it not yet.

    Raises:
        UserError: there is no Go that fits, or the build fails.
    """
    package, version = PROGRAMS[name]
    file = package.rpartition("/")[2]

    def build(folder: Path) -> None:
        run_go("install", f"{package}@{version}", GOBIN=str(folder))

    return kept(file, version.removeprefix("v"), (file,), build, on_build) / file


def kept(
    name: str,
    version: str,
    files: Sequence[str],
    build: Callable[[Path], None],
    on_build: Callable[[str], None],
) -> Path:
    """The folder of a program and version in the cache, built unless all its files are there."""
    folder = default_cache_dir() / "tools" / name / version
    with alone(folder / "build.lock", lambda: on_build(f"waiting for another build of {name}")):
        if not all((folder / file).exists() for file in files):
            on_build(f"building {name} {version} (minutes, once)")
            build(folder)
    return folder


def custom_resources() -> list[Path]:
    """The files that define the custom resources which the chart may make.

    Raises:
        UserError: a module cannot be had.
    """
    return [
        Path(json.loads(run_go("mod", "download", "-json", module))["Dir"]) / file
        for module, files in CUSTOM_RESOURCES.items()
        for file in files
    ]
