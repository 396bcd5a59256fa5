"""Builds etcd, the API server and the controller manager from the go.mod beside this file, once."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from dev.stack.services import OnStep
from pushlane.core.errors import UserError
from scripts.go_modules import kept, run_go

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"

_MODULE = Path(__file__).parent
_PACKAGES = {
    ETCD: "go.etcd.io/etcd/server/v3",
    API_SERVER: "k8s.io/kubernetes/cmd/kube-apiserver",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
}


def kubernetes_version() -> str:
    """The version of Kubernetes that go.mod asks for, such as 1.36.3."""
    found = re.search(r"k8s\.io/kubernetes v(\S+)", (_MODULE / "go.mod").read_text())
    if not found:
        raise UserError(f"{_MODULE / 'go.mod'} names no version of k8s.io/kubernetes")
    return found[1]


def binaries(on_step: OnStep) -> Path:
    """The folder with the three programs, built first where this machine has them not yet.

    Raises:
        UserError: there is no Go that fits, or the build fails.
    """

    def build(folder: Path) -> None:
        for name in _PACKAGES:
            on_step(f"building {name}")
            _build(name, folder)

    pins = b"".join((_MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    version = f"{kubernetes_version()}-{hashlib.sha256(pins).hexdigest()[:8]}"
    return kept("kubernetes", version, tuple(_PACKAGES), build, on_step)


def _build(name: str, folder: Path) -> None:
    """Build one program, under another name until it is whole."""
    half = folder / f"{name}.building"
    flags = f"{os.environ.get('GOFLAGS', '')} -mod=readonly".strip()
    argv = ("build", "-trimpath", "-ldflags", _version_flags(), "-o", str(half), _PACKAGES[name])
    run_go(*argv, folder=_MODULE, CGO_ENABLED="0", GOFLAGS=flags)
    half.replace(folder / name)


def _version_flags() -> str:
    """What the API server says of itself: a module's build does not know its own version."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    known = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    told = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in known.items())
    return " ".join(("-s", "-w", *told))
