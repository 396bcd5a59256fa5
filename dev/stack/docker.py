"""Runs Pulsar and Redis in containers.

Containers and volumes carry a name of their own for each run folder. Only those are ever removed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.stack.services import (
    ENVIRONMENT,
    HOST,
    PULSAR_IMAGE,
    REDIS_IMAGE,
    OnStep,
    Ports,
    conf_lines,
)
from pushlane.core.errors import Unreachable

ASK_TIMEOUT_S = 15.0
STOP_PATIENCE_S = 20
TAIL_LINES = 15
_DATA_PATHS = {"pulsar": "/pulsar/data", "redis": "/data"}


def unusable_reason(on_step: OnStep, images: Sequence[str] = (PULSAR_IMAGE, REDIS_IMAGE)) -> str:
    """Why these images cannot run here; empty when they can. Pulls those that are missing."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    if not _succeeds("info", timeout_s=ASK_TIMEOUT_S):
        return "the Docker daemon does not answer (`docker info` fails)"
    for image in images:
        if not _succeeds("image", "inspect", image, timeout_s=ASK_TIMEOUT_S):
            on_step(f"pulling the image {image}")
            if not _succeeds("pull", "-q", image, timeout_s=None):
                return f"the image {image} is not here and cannot be pulled"
    return ""


class DockerWay:
    """The stack in containers; see `dev.stack`."""

    name = "docker"

    def __init__(self, run_dir: Path) -> None:
        # Its name is from versions that used compose: a stack of theirs is found and stopped too.
        self._mark = run_dir / "compose.json"
        run_id = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:8]
        self._project = f"pushlane-{run_id}"

    def start(self, ports: Ports, on_step: OnStep) -> None:
        on_step("starting Pulsar and Redis in Docker (Pulsar without fsync of its journal)")
        self._mark.touch()
        pulsar = [PULSAR_IMAGE, *pulsar_command(ports)]
        self._run("pulsar", pulsar, [ports.broker, ports.admin], ENVIRONMENT)
        redis = [REDIS_IMAGE, *redis_command(ports.redis, data_path=_DATA_PATHS["redis"])]
        self._run("redis", redis, [ports.redis], {})

    def stop(self, *, delete_data: bool) -> None:
        if not self._mark.exists():  # never started here
            return
        for name in map(self._name, _DATA_PATHS):
            if _succeeds("container", "inspect", name, timeout_s=ASK_TIMEOUT_S):
                _docker("stop", "--time", str(STOP_PATIENCE_S), name)
                _docker("rm", "--force", name)
            if delete_data and _succeeds("volume", "inspect", name, timeout_s=ASK_TIMEOUT_S):
                _docker("volume", "rm", name)
        if delete_data:
            self._mark.unlink()

    def is_running(self, service: str) -> bool:
        shown = _run("container", "inspect", "-f", "{{.State.Running}}", self._name(service))
        return shown.stdout.strip() == "true"

    def log_tail(self, service: str) -> str:
        shown = _run("logs", "--tail", str(TAIL_LINES), self._name(service))
        return (shown.stdout + shown.stderr).strip() or "(it is empty)"

    def _name(self, service: str) -> str:
        return f"{self._project}-{service}"

    def _run(
        self, service: str, image: Sequence[str], ports: Sequence[int], env: Mapping[str, str]
    ) -> None:
        name = self._name(service)
        _docker(
            *("run", "--detach", "--name", name),
            *("--volume", f"{name}:{_DATA_PATHS[service]}"),
            *(word for port in ports for word in ("-p", f"{HOST}:{port}:{port}")),
            *(word for pair in env.items() for word in ("-e", "=".join(pair))),
            *image,
        )


def pulsar_command(ports: Ports, *, advertise: str = HOST) -> list[str]:
    """What the Pulsar image runs: its own settings with ours at the end."""
    lines = conf_lines(ports, bind="0.0.0.0", advertise=advertise)  # noqa: S104 - in the container
    script = (
        f"printf '%s' '{lines}' >> conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"
    )
    return ["bash", "-c", script]


def redis_command(port: int, *, data_path: str) -> list[str]:
    """Inside the container it listens everywhere; outside only on what Docker publishes."""
    listen = ["--bind", "0.0.0.0", "--protected-mode", "no", "--port", str(port)]  # noqa: S104
    return ["redis-server", *listen, "--appendonly", "yes", "--dir", data_path]


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
