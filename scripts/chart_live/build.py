"""Builds etcd, the API server and the controller manager from the go.mod beside this file, once.

They are kept in the user's cache, in a folder named after the version and the pins, and are built
again only when those change.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from pushlane.cli.stack import default_cache_dir
from pushlane.cli.stack.values import OnStep
from pushlane.lanes.errors import UserError
from pushlane.lanes.file_lock import alone

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"

_MODULE = Path(__file__).parent
_PACKAGES = {
    ETCD: "go.etcd.io/etcd/server/v3",
    API_SERVER: "k8s.io/kubernetes/cmd/kube-apiserver",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
}
_OLDEST_GO = (1, 26)
_PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin", str(Path.home() / "go/bin"))
_BUILD_BOUND_S = 7200
_TAIL_LINES = 20


def find_go() -> str:
    """The path of a Go that is new enough.

    Raises:
        UserError: there is none, or it is too old.
    """
    path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
    wanted = ".".join(map(str, _OLDEST_GO))
    go = shutil.which("go", path=path)
    if go is None:
        raise UserError(
            f"chart-live builds an API server and needs Go {wanted} or newer, and there is none; "
            "install it from https://go.dev/dl/, or put it on the PATH"
        )
    shown = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", shown.stdout)
    if not found or (int(found[1]), int(found[2])) < _OLDEST_GO:
        raise UserError(
            f"{go} is {shown.stdout.strip() or 'of no known version'}, and the API server needs "
            f"Go {wanted} or newer; install it from https://go.dev/dl/"
        )
    return go


def kubernetes_version() -> str:
    """The version of Kubernetes that go.mod asks for, such as 1.36.3."""
    found = re.search(r"k8s\.io/kubernetes v(\S+)", (_MODULE / "go.mod").read_text())
    if not found:
        raise UserError(f"{_MODULE / 'go.mod'} names no version of k8s.io/kubernetes")
    return found[1]


def binaries(on_step: OnStep) -> Path:
    """The folder with the three programs, built first where they are not there yet.

    Raises:
        UserError: there is no Go that fits, or the build fails.
    """
    folder = default_cache_dir() / "tools" / "kubernetes" / f"{kubernetes_version()}-{_pins()}"
    missing = [name for name in _PACKAGES if not (folder / name).exists()]
    if not missing:
        return folder
    go = find_go()
    with alone(folder / "build.lock", lambda: on_step("waiting for another build")):
        for name in missing:
            if not (folder / name).exists():
                on_step(f"building {name} for Kubernetes {kubernetes_version()} (minutes, once)")
                _build(go, name, folder)
    return folder


def _pins() -> str:
    pins = b"".join((_MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return hashlib.sha256(pins).hexdigest()[:8]


def _build(go: str, name: str, folder: Path) -> None:
    """Build one program, under another name until it is whole."""
    half = folder / f"{name}.building"
    argv = [go, "build", "-trimpath", "-ldflags", _version_flags(), "-o", str(half)]
    try:
        done = subprocess.run(
            [*argv, _PACKAGES[name]],
            cwd=_MODULE,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": _flags()},
            capture_output=True,
            text=True,
            timeout=_BUILD_BOUND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{name} was not built within {_BUILD_BOUND_S} s") from None
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-_TAIL_LINES:])
        raise UserError(f"{name} cannot be built: go build ended with {done.returncode}:\n{tail}")
    half.replace(folder / name)


def _flags() -> str:
    """The user's flags; the pins stand, whatever they say."""
    return f"{os.environ.get('GOFLAGS', '')} -mod=readonly".strip()


def _version_flags() -> str:
    """What the API server says of itself: a module's build does not know its own version."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    known = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    told = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in known.items())
    return " ".join(("-s", "-w", *told))
