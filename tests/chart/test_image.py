"""The image of `make image`, run as the chart runs it: no root, no network, a read-only root."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from pushlane.version import VERSION
from tests.processes import until

_IMAGE = f"pushlane:{VERSION}"
_ASK = "import sys, urllib.request as u; u.urlopen('http://127.0.0.1:9095/' + sys.argv[1])"
_LOCKED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none")
_FOLDERS = ("--tmpfs=/tmp:uid=10001", "--tmpfs=/var/lib/pushlane:uid=10001,mode=0750")
_COMMAND = ("dispatch", "--sink", "null", "--metrics-host", "127.0.0.1", "--metrics-port", "9095")


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True)


@pytest.fixture
def container() -> Iterator[str]:
    """A dispatcher in a container, by its id."""
    if not shutil.which("docker") or docker("image", "inspect", _IMAGE).returncode:
        pytest.skip(f"there is no image {_IMAGE}: make image")
    started = docker("run", "--detach", *_LOCKED, *_FOLDERS, _IMAGE, *_COMMAND)
    assert started.returncode == 0, started.stderr
    yield started.stdout.strip()
    docker("rm", "--force", started.stdout.strip())


def succeeds(container: str, *words: str) -> bool:
    return docker("exec", container, *words).returncode == 0


def test_it_answers_its_probes_and_ends_at_sigterm(container: str) -> None:
    for probe in ("livez", "readyz"):
        until(lambda probe=probe: succeeds(container, "python", "-c", _ASK, probe), 60)
    assert succeeds(container, "pushlane", "tasks")
    assert not succeeds(container, "touch", "/here")
    assert docker("exec", container, "id", "-u").stdout.strip() == "10001"

    docker("stop", "--time", "40", container)

    [state] = json.loads(docker("inspect", container).stdout)
    assert state["State"]["ExitCode"] == 0, docker("logs", container).stderr
