"""Runs a Kubernetes without nodes on loopback: etcd, API server, controller manager.

It takes objects, checks them as any cluster does, and makes pods of Deployments. No pod ever runs,
since there is neither scheduler nor kubelet. All that was started ends with the context.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.stack.processes import Processes
from dev.stack.services import OnStep, free_port
from pushlane.core.errors import Unreachable
from scripts.chart_live.api import Api, holds_within
from scripts.chart_live.build import API_SERVER, CONTROLLER_MANAGER, ETCD
from scripts.chart_live.certificates import Certificates, make
from scripts.chart_live.crds import install

_START_BOUND_S = 120.0
# Those that make pods of what a chart holds and clear up behind it. Without the one for CronJobs
# none begins by the clock in the midst of a check.
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "disruption-controller",
    "serviceaccount-controller",
    "garbage-collector-controller",
    "persistentvolumeclaim-protection-controller",
)


@dataclass(frozen=True)
class Cluster:
    """A running API server: how to speak with it, and the kubeconfig for who else wants to."""

    api: Api
    kubeconfig: Path


@contextmanager
def cluster(binaries: Path, folder: Path, on_step: OnStep) -> Iterator[Cluster]:
    """A cluster with its data in this folder, while the context lasts.

    Raises:
        Unreachable: a program of it does not come up; the end of its log is in the message.
    """
    processes = Processes(folder)
    try:
        yield _start(binaries, folder, processes, on_step)
    finally:
        for name in (CONTROLLER_MANAGER, API_SERVER, ETCD):
            processes.end(name)


def _start(binaries: Path, folder: Path, processes: Processes, on_step: OnStep) -> Cluster:
    certificates = make(folder)
    etcd, port = f"http://127.0.0.1:{free_port()}", free_port()
    api = Api(port, certificates.authority, certificates.administrator)
    found = Cluster(api, _kubeconfig(folder, port, certificates))
    on_step("starting etcd and the API server")
    _launch(processes, binaries / ETCD, _etcd(folder, etcd), folder)
    _launch(processes, binaries / API_SERVER, _api_server(etcd, port, certificates), folder)
    _wait(processes, API_SERVER, lambda: _is_ready(api))
    on_step("installing definitions of Prometheus' operator and KEDA")
    install(api)
    argv = _controller_manager(found.kubeconfig, certificates)
    _launch(processes, binaries / CONTROLLER_MANAGER, argv, folder)
    _wait(processes, CONTROLLER_MANAGER, lambda: _works(api))
    return found


def _launch(processes: Processes, program: Path, arguments: list[str], folder: Path) -> None:
    processes.launch(program.name, [str(program), *arguments], {}, folder)


def _wait(processes: Processes, name: str, is_up: Callable[[], bool]) -> None:
    settled = holds_within(_START_BOUND_S, lambda: is_up() or not processes.is_running(name))
    if not settled or not processes.is_running(name):
        how = "ended" if settled else f"did not come up within {_START_BOUND_S:.0f} s"
        raise Unreachable(f"{name} {how}; its log ends:\n{processes.log_tail(name)}")


def _is_ready(api: Api) -> bool:
    try:
        return api.ask("GET", "/readyz").status == 200
    except Unreachable:
        return False


def _works(api: Api) -> bool:
    """The controller manager has given the namespace `default` its service account."""
    return api.ask("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == 200


def _etcd(folder: Path, url: str) -> list[str]:
    peers = f"http://127.0.0.1:{free_port()}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",  # it is thrown away at the end
    ]


def _api_server(etcd: str, port: int, certificates: Certificates) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--tls-cert-file={certificates.server.certificate}",
        f"--tls-private-key-file={certificates.server.key}",
        f"--client-ca-file={certificates.authority}",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificates.tokens}",
        f"--service-account-signing-key-file={certificates.tokens}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",  # as most clusters have it: the namespace has to refuse
    ]


def _controller_manager(kubeconfig: Path, certificates: Certificates) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={certificates.tokens}",
        f"--root-ca-file={certificates.authority}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def _kubeconfig(folder: Path, port: int, certificates: Certificates) -> Path:
    """The file with which Helm and the controller manager find the API server; JSON is YAML."""
    user = {
        "client-certificate": str(certificates.administrator.certificate),
        "client-key": str(certificates.administrator.key),
    }
    server = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(certificates.authority),
    }
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "live", "cluster": server}],
                "users": [{"name": "live", "user": user}],
                "contexts": [{"name": "live", "context": {"cluster": "live", "user": "live"}}],
                "current-context": "live",
            }
        )
    )
    return path
