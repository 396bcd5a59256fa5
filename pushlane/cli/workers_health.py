"""The health of several workers as one: their parent asks them on Unix sockets.

Their state is asked for every two seconds, so that a probe of the parent waits for none of them;
their metrics when somebody scrapes, all at once.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pushlane.backends.contact import Contact, LastAnswer
from pushlane.cli.health import Health
from pushlane.cli.health_server import METRICS, HealthReply, of_worker, together
from pushlane.core.errors import BadInput
from pushlane.util.metrics import Exporter, MetricCollector, MetricMaker, ReadMetric

_ASK_EVERY_S = 2.0
_PATIENCE_S = 2.0
_MOST_AT_ONCE = 32
_LONGEST_PATH = 100  # the system allows a little over this


@dataclass(frozen=True)
class WorkerFigures:
    """By a worker's number: whether it has answered, and how often it was started again."""

    up: Mapping[str, bool]
    restarts: Mapping[str, int]


_make: MetricMaker[WorkerFigures] = MetricMaker(Exporter.DISPATCHER)

WORKER_METRICS: tuple[ReadMetric[WorkerFigures], ...] = (
    _make.gauge(
        "worker_up",
        "0 or 1",
        "1 if a worker of `--workers` has answered its parent, which serves for all",
        lambda figures: figures.up,
        {"worker": ()},
    ),
    _make.counter(
        "worker_restarts_total",
        "starts",
        "Times that a worker of `--workers` was started again: it was killed, hung, or died",
        lambda figures: figures.restarts,
        {"worker": ()},
    ),
)
"""The metrics of the parent of workers; all others are of the workers."""


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Make a folder for the workers' sockets that nobody else may enter, and remove it.

    Raises:
        BadInput: there is none that is short enough for a socket's path.
    """
    with tempfile.TemporaryDirectory(prefix="pushlane-workers-") as name:
        if len(name) > _LONGEST_PATH - len("/99999"):
            raise BadInput(
                f"the folder for temporary files, {Path(name).parent}, is too long for the sockets "
                "of the workers; set TMPDIR to a shorter one"
            )
        yield Path(name)


@dataclass
class _Worker:
    """A worker as its parent knows it: when it last answered, and what it said.

    What is `missing` of one that is started again holds until it answers.
    """

    index: int
    socket: Path
    answer: LastAnswer
    is_stuck: str = ""
    missing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.answer.service


class WorkersHealth(Collector):
    """The health and the metrics of as many workers, whose sockets are in this folder."""

    def __init__(
        self,
        folder: Path,
        count: int,
        stuck_after_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        names = [f"worker {index}" for index in range(count)]
        self.contact = Contact(*names, clock_s=clock_s)
        self._workers = [
            _Worker(index, folder / str(index), self.contact[name])
            for index, name in enumerate(names)
        ]
        self._restarts = {str(index): 0 for index in range(count)}
        self._stuck_after_s = stuck_after_s
        self._threads = ThreadPoolExecutor(min(2 * count, _MOST_AT_ONCE), "workers-health")

    def answer_for(self, health: Health) -> None:
        """Have the parent's health tell of its workers."""
        health.missing = self.missing
        health.remarks = self.remarks
        health.stuck = self.stuck
        health.ask_others = self.ask_any

    async def watch(self) -> None:
        """Ask all workers how they are every two seconds, for ever."""
        for worker in self._workers:
            worker.answer.asked()
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(_ASK_EVERY_S)

    def look(self) -> None:
        """Ask all workers how they are, at once, and wait for their answers."""
        list(self._threads.map(self._look_at, self._workers))
        if all(worker.answer.has_answered for worker in self._workers):
            self.contact.started()

    def ended(self, index: int) -> None:
        """Note that a worker has ended, as its parent knows: it is missed no more."""
        self._workers = [worker for worker in self._workers if worker.index != index]
        self.contact.forget(f"worker {index}")

    def restarts(self, index: int, how_it_ended: str) -> None:
        """Note that a worker has ended like this, and is started again."""
        self._restarts[str(index)] += 1
        self._workers = [
            replace(
                worker,
                answer=self.contact.renew(worker.name),
                is_stuck="",
                missing=(f"{how_it_ended} and is started again",),
            )
            if worker.index == index
            else worker
            for worker in self._workers
        ]

    def missing(self) -> list[str]:
        """Return what keeps the workers from their work, each line with the worker's name."""
        said = [f"{worker.name}: {line}" for worker in self._workers for line in worker.missing]
        return [*self.contact.missing(), *said]

    def remarks(self) -> list[str]:
        """Return what is the matter with workers and keeps them from nothing."""
        return [f"{worker.name}: {line}" for worker in self._workers for line in worker.remarks]

    def stuck(self) -> list[str]:
        """Return which workers do not come back by themselves."""
        return [line for worker in self._workers if (line := self._why_stuck(worker))]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all workers, and which of them have answered."""
        found: list[Metric] = []
        up: dict[str, bool] = {}
        workers = self._workers
        replies = self._threads.map(lambda one: _ask(one.socket, METRICS), workers)
        for worker, reply in zip(workers, replies, strict=True):
            number = str(worker.index)
            up[number] = reply is not None and reply.status == 200
            if reply is not None and up[number]:
                families = text_string_to_metric_families(reply.body.decode())
                found += of_worker(number, families)
        figures = WorkerFigures(up, self._restarts)
        ours = MetricCollector(WORKER_METRICS, lambda: [(figures, ())])
        return together([*ours.collect(), *found])

    def ask_any(self, path: str, query: Mapping[str, str]) -> HealthReply | None:
        """Return what some worker replies, one that answered lately if there is one."""
        path += f"?{urlencode(query)}" if query else ""
        for worker in sorted(self._workers, key=lambda one: not one.answer.is_up):
            if (reply := _ask(worker.socket, path)) is not None:
                return reply
        return HealthReply.of_lines(503, "no worker answers")

    def close(self) -> None:
        """Wait for no worker any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look_at(self, worker: _Worker) -> None:
        live, ready = _ask(worker.socket, "/livez"), _ask(worker.socket, "/readyz")
        if live is None or ready is None:
            if worker.answer.has_answered:
                worker.missing = ()  # what it said then is over; that it is silent is told
            return
        worker.answer.heard()
        worker.is_stuck = "" if live.status == 200 else live.body.decode().strip()
        said = tuple(ready.body.decode().splitlines())
        worker.missing, worker.remarks = ((), said[1:]) if ready.status == 200 else (said, ())

    def _why_stuck(self, worker: _Worker) -> str:
        answer = worker.answer
        if worker.is_stuck:
            return f"{worker.name}: {worker.is_stuck}"
        is_due = answer.has_answered and not self.contact.is_stopping
        if is_due and answer.age_s() > self._stuck_after_s:
            return f"{worker.name}: has not answered for {answer.age_s():.0f} s"
        return ""


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("worker", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _ask(path: Path, target: str) -> HealthReply | None:
    """Return what a worker replies, None if it does not within two seconds."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", target)
        reply = connection.getresponse()
        kind = reply.headers.get("Content-Type", "text/plain")
        return HealthReply(reply.status, reply.read(), kind)
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
