"""Runs Pulsar and Redis in containers, with `docker compose` when the plugin is there.

Containers and volumes carry a name of their own for each run folder. Only those are ever removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pushlane.cli.stack import broker_conf
from pushlane.cli.stack.values import HOST, PULSAR_IMAGE, REDIS_IMAGE, OnStep, Ports
from pushlane.lanes.errors import Unreachable

ASK_TIMEOUT_S = 15.0
STOP_PATIENCE_S = 20
TAIL_LINES = 15
DATA_PATH = "/data"  # of Redis
SERVICES = ("pulsar", "redis")


@dataclass(frozen=True)
class Container:
    """One service, as both `docker run` and a compose file can say it."""

    image: str
    command: list[str]
    ports: list[int]
    data_path: str
    env: dict[str, str]


def unusable_reason(on_step: OnStep, images: Sequence[str] = (PULSAR_IMAGE, REDIS_IMAGE)) -> str:
    """Why these images cannot run here; empty when they can. Pulls those that are missing."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    if not _succeeds("info", timeout_s=ASK_TIMEOUT_S):
        return "the Docker daemon does not answer (`docker info` fails)"
    for image in images:
        if not _has_image(image, on_step):
            return f"the image {image} is not here and cannot be pulled"
    return ""


def _has_image(image: str, on_step: OnStep) -> bool:
    if _succeeds("image", "inspect", image, timeout_s=ASK_TIMEOUT_S):
        return True
    on_step(f"pulling the image {image}")
    return _succeeds("pull", "-q", image, timeout_s=None)


class DockerWay:
    """See `cli.stack.values.Way`."""

    name = "docker"

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / "compose.json"
        run_id = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:8]
        self._project = f"pushlane-{run_id}"

    def start(self, ports: Ports, on_step: OnStep) -> None:
        on_step("starting Pulsar and Redis in Docker (Pulsar without fsync of its journal)")
        containers = _containers(ports)
        self._file.write_text(json.dumps(self._compose_file(containers), indent=2))
        if _has_compose():
            _docker(*self._compose(), "up", "--detach")
            return
        for service, container in containers.items():
            _docker(*self._run_words(service, container))

    def stop(self, *, delete_data: bool) -> None:
        if not self._file.exists():  # never started here
            return
        if _has_compose():
            volumes = ["--volumes"] if delete_data else []
            _docker(*self._compose(), "down", "--timeout", str(STOP_PATIENCE_S), *volumes)
        else:
            self._remove(delete_data=delete_data)
        if delete_data:
            self._file.unlink()

    def _remove(self, *, delete_data: bool) -> None:
        for service in SERVICES:
            name = self._name(service)
            if _succeeds("container", "inspect", name, timeout_s=ASK_TIMEOUT_S):
                _docker("stop", "--time", str(STOP_PATIENCE_S), name)
                _docker("rm", "--force", name)
            if delete_data and _succeeds("volume", "inspect", name, timeout_s=ASK_TIMEOUT_S):
                _docker("volume", "rm", name)

    def is_running(self, service: str) -> bool:
        shown = _run("container", "inspect", "-f", "{{.State.Running}}", self._name(service))
        return shown.stdout.strip() == "true"

    def log_tail(self, service: str) -> str:
        shown = _run("logs", "--tail", str(TAIL_LINES), self._name(service))
        return (shown.stdout + shown.stderr).strip() or "(it is empty)"

    def _name(self, service: str) -> str:
        return f"{self._project}-{service}"

    def _compose(self) -> list[str]:
        return ["compose", "--file", str(self._file), "--project-name", self._project]

    def _compose_file(self, containers: dict[str, Container]) -> dict[str, Any]:
        """JSON is YAML too. `$` is doubled, as compose would fill it in."""
        services = {
            service: {
                "image": container.image,
                "container_name": self._name(service),
                "command": [word.replace("$", "$$") for word in container.command],
                "environment": container.env,
                "ports": [f"{HOST}:{port}:{port}" for port in container.ports],
                "volumes": [f"{service}:{container.data_path}"],
            }
            for service, container in containers.items()
        }
        volumes = {service: {"name": self._name(service)} for service in containers}
        return {"services": services, "volumes": volumes}

    def _run_words(self, service: str, container: Container) -> list[str]:
        name = self._name(service)
        return [
            *("run", "--detach", "--name", name),
            *("--volume", f"{name}:{container.data_path}"),
            *(word for port in container.ports for word in ("-p", f"{HOST}:{port}:{port}")),
            *(word for pair in container.env.items() for word in ("-e", "=".join(pair))),
            container.image,
            *container.command,
        ]


def redis_command(port: int, *, data_path: str) -> list[str]:
    """Inside the container it listens everywhere; outside only on what Docker publishes."""
    listen = ["--bind", "0.0.0.0", "--protected-mode", "no", "--port", str(port)]  # noqa: S104
    return ["redis-server", *listen, "--appendonly", "yes", "--dir", data_path]


def _containers(ports: Ports) -> dict[str, Container]:
    pulsar = Container(
        image=PULSAR_IMAGE,
        command=broker_conf.container_command(ports),
        ports=[ports.broker, ports.admin],
        data_path="/pulsar/data",
        env=broker_conf.ENVIRONMENT,
    )
    redis = Container(
        image=REDIS_IMAGE,
        command=redis_command(ports.redis, data_path=DATA_PATH),
        ports=[ports.redis],
        data_path=DATA_PATH,
        env={},
    )
    return {"pulsar": pulsar, "redis": redis}


def _has_compose() -> bool:
    return _succeeds("compose", "version", timeout_s=ASK_TIMEOUT_S)


def _run(*words: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def _succeeds(*words: str, timeout_s: float | None) -> bool:
    try:
        return _run(*words, timeout_s=timeout_s).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _docker(*words: str) -> None:
    done = _run(*words)
    if done.returncode != 0:
        raise Unreachable(f"`docker {words[0]}` failed: {done.stderr.strip()[-400:]}")
