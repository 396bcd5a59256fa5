"""A Spark standalone cluster of one master and two workers on this machine, for tests.

It is made of PySpark's own classes, on loopback and free ports; each process leads a group, which
is killed at the end of the session. An executor can be killed as a machine that fails would.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.processes import ROOT, until

HOST = "127.0.0.1"
WORKERS = 2
WORKER_MEMORY = "1g"  # an executor takes so much unless told otherwise
EXECUTOR = "CoarseGrainedExecutorBackend"
_ENVIRONMENT = {
    "SPARK_LOCAL_IP": HOST,
    "SPARK_DAEMON_MEMORY": "256m",
    "PYTHONPATH": str(ROOT),  # executors take it over: pushlane is installed on the workers
}


class Daemon:
    """One of Spark's long-running processes; what it says is in a file."""

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        folder.mkdir()
        self._log = folder / "log"
        own = {"SPARK_LOCAL_DIRS": str(folder), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                env={**os.environ, **_ENVIRONMENT, **own},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """What it has said that matches, once it has."""
        until(lambda: bool(re.search(pattern, self._text)) or self._process.poll() is not None)
        found = re.search(pattern, self._text)
        assert found, f"it ended:\n{self._text}"
        return found[0]

    @property
    def executors(self) -> list[int]:
        """The process ids of the executors that it runs."""
        return [child for child in children(self._process.pid) if EXECUTOR in command(child)]

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def _text(self) -> str:
        return self._log.read_text(errors="replace")


class SparkCluster:
    """`master` is its URL."""

    def __init__(self, master: str, workers: list[Daemon]) -> None:
        self.master = master
        self._workers = workers

    @property
    def executors(self) -> list[int]:
        return [executor for worker in self._workers for executor in worker.executors]

    def kill_executor(self) -> int:
        """kill -9 for one of them; its process id."""
        until(lambda: len(self.executors) > 0)
        victim = self.executors[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def is_idle(self) -> bool:
        return not self.executors


@pytest.fixture(scope="session")
def spark_cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("spark")
    ports = ("--host", HOST, "--port", "0", "--webui-port", "0")
    with ExitStack() as ends:
        master = Daemon("master.Master", folder / "master", *ports)
        ends.callback(master.end)
        url = master.said(r"spark://[\w.]+:\d+")
        room = ("--cores", "1", "--memory", WORKER_MEMORY)
        workers = []
        for number in range(WORKERS):
            work = folder / f"worker-{number}"
            workers.append(
                Daemon("worker.Worker", work, *ports, *room, "--work-dir", str(work), url)
            )
            ends.callback(workers[-1].end)
        for worker in workers:
            worker.said("Successfully registered with master")
        yield SparkCluster(url, workers)


def children(parent: int) -> list[int]:
    return [child for child in map(int, running()) if parent_of(child) == parent]


def running() -> Iterator[str]:
    return (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())


def parent_of(process: int) -> int:
    """0 when it has ended."""
    with suppress(OSError):
        return int(re.search(r"PPid:\t(\d+)", Path(f"/proc/{process}/status").read_text())[1])
    return 0


def command(process: int) -> str:
    """Empty when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    return ""
