"""A Pulsar cluster to do harm to: one ZooKeeper, three bookies, two brokers, and a Redis beside it.

Plain processes on 127.0.0.1 with small heaps, from the distribution that the local stack uses. Each
message is on two bookies, synced to their journals, so that one bookie and one broker may be lost.
"""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.cluster import topics
from bench.cluster.values import (
    BOOKIE,
    BOOKIES,
    BROKER,
    BROKERS,
    CLUSTER,
    JAVA,
    ZOOKEEPER,
    memory,
)
from dev.stack import default_cache_dir
from dev.stack.local import LocalWay, check_java, pulsar_home
from dev.stack.processes import Processes
from dev.stack.services import HOST, OnStep, Ports, free_ports, pulsar_answers, wait_until
from pushlane.core.errors import Unreachable

_START_DEADLINE_S = 180.0
_GONE_DEADLINE_S = 20.0
_LOOK_EVERY_S = 0.05
_OPEN_TIMEOUT_S = 1.0


class PulsarCluster(Processes):
    """The processes of one run folder; Redis is the local stack's."""

    def __init__(self, run_dir: Path, on_step: OnStep) -> None:
        super().__init__(run_dir)
        cache_dir = default_cache_dir()
        cache_dir.mkdir(parents=True, exist_ok=True)
        self._redis = LocalWay(run_dir, cache_dir)
        self._on_step = on_step
        check_java()
        self._home = pulsar_home(cache_dir, on_step)
        ports = free_ports(2 + BOOKIES + 2 * BROKERS)
        self._zookeeper, self._redis_port = ports[:2]
        self._bookies = ports[2 : 2 + BOOKIES]
        self._brokers = ports[-2 * BROKERS : -BROKERS]
        self._admins = ports[-BROKERS:]

    @property
    def broker_url(self) -> str:
        """The service URL with all brokers."""
        return "pulsar://" + ",".join(f"{HOST}:{port}" for port in self._brokers)

    @property
    def admin_url(self) -> str:
        """The URL of the admin REST with all brokers."""
        return "http://" + ",".join(f"{HOST}:{port}" for port in self._admins)

    @property
    def redis_url(self) -> str:
        return f"redis://{HOST}:{self._redis_port}/0"

    @property
    def brokers_running(self) -> list[int]:
        return [number for number in range(BROKERS) if self.is_running(f"broker-{number}")]

    def start(self) -> None:
        """Start everything, and return once all brokers answer."""
        self._redis.start_redis(Ports(redis=self._redis_port), self._on_step)
        self._start_zookeeper()
        self._initialize()
        for number in range(BOOKIES):
            self.start_bookie(number)
        for number in range(BOOKIES):
            self.bookie_answers(number)
        for number in range(BROKERS):
            self.start_broker(number)
        for number in range(BROKERS):
            self.broker_answers(number)

    def start_bookie(self, number: int) -> None:
        folder = self._folder(f"bookie-{number}")
        own = {
            "bookiePort": str(self._bookies[number]),
            "journalDirectory": str(folder / "journal"),
            "ledgerDirectories": str(folder / "ledgers"),
            "metadataServiceUri": f"zk+hierarchical://{HOST}:{self._zookeeper}/ledgers",
        }
        conf = self._conf(folder, "bookkeeper.conf", {**BOOKIE, **own})
        env = {"PULSAR_BOOKKEEPER_CONF": str(conf), "BOOKIE_MEM": memory(256)}
        self._launch(f"bookie-{number}", "bookie", env)

    def bookie_answers(self, number: int) -> None:
        self._listens(f"bookie-{number}", self._bookies[number])

    def start_broker(self, number: int) -> None:
        folder = self._folder(f"broker-{number}")
        store = f"zk:{HOST}:{self._zookeeper}"
        own = {
            "brokerServicePort": str(self._brokers[number]),
            "webServicePort": str(self._admins[number]),
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
        }
        conf = self._conf(folder, "broker.conf", {**BROKER, **own})
        env = {"PULSAR_BROKER_CONF": str(conf), "PULSAR_MEM": memory(512)}
        self._launch(f"broker-{number}", "broker", env)

    def broker_answers(self, number: int) -> None:
        """Wait until this broker serves topics."""
        url = self._admin(number)
        self._wait(f"broker-{number}", lambda: pulsar_answers(url))

    def kill(self, name: str) -> None:
        """kill -9, by the name of a process, like `broker-0`; returns when it is gone."""
        self.send(name, signal.SIGKILL)
        deadline = time.monotonic() + _GONE_DEADLINE_S
        while self.is_running(name):
            if time.monotonic() > deadline:
                raise Unreachable(f"{name} does not end within {_GONE_DEADLINE_S:g} s of a kill")
            time.sleep(_LOOK_EVERY_S)

    def owners(self, namespace: str, lanes: Sequence[str] = ()) -> dict[str, int]:
        """The broker of each of these lanes, or of each lane; -1 if nobody can tell just now."""
        asked = self._admin(self.brokers_running[0])
        ports = {
            lane: topics.owner(asked, namespace, lane)
            for lane in lanes or topics.lanes_of(asked, namespace)
        }
        return {lane: self._brokers.index(port) if port else -1 for lane, port in ports.items()}

    def taken_over(self, namespace: str, lanes: Sequence[str]) -> None:
        """Wait until running brokers own all of these lanes."""
        running = self.brokers_running
        self._wait(
            f"broker-{running[0]}",
            lambda: set(self.owners(namespace, lanes).values()) <= set(running),
        )

    def unload(self, namespace: str) -> None:
        """Have all topics of the namespace move, to any broker that runs."""
        topics.unload(self._admin(self.brokers_running[0]), namespace)

    def stop(self) -> None:
        """End everything, and remove its data."""
        names = [f"broker-{number}" for number in range(BROKERS)]
        names += [f"bookie-{number}" for number in range(BOOKIES)]
        for name in (*names, "zookeeper"):  # nothing of it is kept, so nobody need say goodbye
            self.send(name, signal.SIGKILL)
            self.end(name)
            shutil.rmtree(self._run_dir / name, ignore_errors=True)
        self._redis.stop(delete_data=True)

    def _start_zookeeper(self) -> None:
        folder = self._folder("zookeeper")
        own = {"dataDir": str(folder / "data"), "clientPort": str(self._zookeeper)}
        conf = self._conf(folder, "zookeeper.conf", {**ZOOKEEPER, **own})
        env = {"PULSAR_ZK_CONF": str(conf), "PULSAR_MEM": memory(128)}
        self._launch("zookeeper", "zookeeper", env)
        self._listens("zookeeper", self._zookeeper)

    def _initialize(self) -> None:
        self._on_step("writing the cluster's metadata")
        store = f"zk:{HOST}:{self._zookeeper}"
        options = {
            "--cluster": CLUSTER,
            "--metadata-store": store,
            "--configuration-metadata-store": store,
            "--web-service-url": self.admin_url,
            "--broker-service-url": self.broker_url,
        }
        words = [word for option in options.items() for word in option]
        self._launch(
            "initialize", "initialize-cluster-metadata", {"PULSAR_MEM": "-Xmx128m"}, *words
        )
        deadline = time.monotonic() + _START_DEADLINE_S
        while self.is_running("initialize") and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        self.end("initialize")

    def _launch(self, name: str, command: str, env: Mapping[str, str], *words: str) -> None:
        self._on_step(f"starting {name}")
        folder = self._folder(name)
        argv = [str(self._home / "bin" / "pulsar"), command, *words]
        self.launch(name, argv, {**JAVA, **env, "PULSAR_LOG_DIR": str(folder / "logs")}, folder)

    def _listens(self, name: str, port: int) -> None:
        self._wait(name, lambda: _is_open(port))

    def _wait(self, name: str, answers: Callable[[], bool]) -> None:
        wait_until(
            answers,
            what=name,
            deadline_s=_START_DEADLINE_S,
            is_running=lambda: self.is_running(name),
            log_tail=lambda: self.log_tail(name),
        )

    def _conf(self, folder: Path, name: str, settings: Mapping[str, str]) -> Path:
        """The distribution's own, with our lines in place of those of the same names."""
        given = (self._home / "conf" / name).read_text().splitlines()
        kept = [line for line in given if line.partition("=")[0] not in settings]
        ours = [f"{key}={value}" for key, value in settings.items()]
        conf = folder / name
        conf.write_text("\n".join([*kept, *ours, ""]))
        return conf

    def _folder(self, name: str) -> Path:
        folder = self._run_dir / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _admin(self, number: int) -> str:
        return f"http://{HOST}:{self._admins[number]}"


@contextmanager
def pulsar_cluster(run_dir: Path, on_step: OnStep) -> Iterator[PulsarCluster]:
    """A cluster of its own, gone with its data in the end.

    Raises:
        UserError: something is missing; says what.
        Unreachable: a part of it does not come up; shows the end of its log.
    """
    cluster = PulsarCluster(run_dir, on_step)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=_OPEN_TIMEOUT_S):
            return True
    except OSError:
        return False
