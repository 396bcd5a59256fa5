"""Runs a Kafka broker of one node on a local Java, as a detached process; gets its jars at first.

It is there for `pushlane ingest` to be tried and tested: one node in KRaft mode, whose topics are
not copied. It makes no topic by itself.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from dev import alone
from dev.stack.local import check_java
from dev.stack.processes import Processes
from dev.stack.services import ASK_TIMEOUT_S, HOST, OnStep
from pushlane.core.errors import UserError

KAFKA_VERSION = "4.3.1"
HOME_VARIABLE = "PUSHLANE_KAFKA_HOME"
_UNPACKING = "getting-kafka-"
_HEAP = ("-Xms256m", "-Xmx512m", "-XX:+UseG1GC")
_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),  # else it has no log
)
_LOG = """rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss,SSS} %p %m (%c)%n
"""


def kafka_jars(cache_dir: Path, on_step: OnStep) -> Path:
    """Return the folder of the broker's jars, which come into the cache folder at the first time.

    Raises:
        UserError: there are none and they cannot be downloaded.
    """
    own = os.environ.get(HOME_VARIABLE)
    jars = Path(own) / "libs" if own else cache_dir / f"kafka-{KAFKA_VERSION}"
    if own and not jars.is_dir():
        raise UserError(f"{HOME_VARIABLE}={own} has no libs: set it to an unpacked Kafka")
    if not jars.is_dir():
        waiting = "waiting for another process that gets Kafka"
        with alone(cache_dir / "download-kafka.lock", lambda: on_step(waiting)):
            if not jars.is_dir():
                _download(cache_dir, jars, on_step)
    return jars


def _download(cache_dir: Path, jars: Path, on_step: OnStep) -> None:
    """Whole or not at all: they come beside their place, which is renamed."""
    if shutil.which("mvn") is None:
        raise UserError(
            f"Kafka {KAFKA_VERSION} is not here yet, and Maven (mvn) is not there to get it; "
            f"install Maven, or set {HOME_VARIABLE} to an unpacked distribution"
        )
    for left in cache_dir.glob(f"{_UNPACKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_UNPACKING, dir=cache_dir) as work:
        on_step(f"getting Kafka {KAFKA_VERSION} with Maven (54 MB, once)")
        project, got = Path(work) / "pom.xml", Path(work) / "jars"
        project.write_text(_project())
        copy = ["mvn", "-q", "-f", str(project), "dependency:copy-dependencies"]
        ran = subprocess.run(
            [*copy, f"-DoutputDirectory={got}"], capture_output=True, text=True, check=False
        )
        if ran.returncode != 0 or not list(got.glob("kafka_*.jar")):
            raise UserError(
                f"Maven could not get Kafka {KAFKA_VERSION}; check its network settings, or set "
                f"{HOME_VARIABLE} to an unpacked distribution. It said:\n{ran.stdout[-600:]}"
            )
        got.rename(jars)


def _project() -> str:
    """Return a Maven project that needs the broker and nothing else."""
    needs = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>dev.pushlane</groupId><artifactId>kafka</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{needs}</dependencies></project>"
    )


def kafka_settings(port: int, controller_port: int, data: Path) -> dict[str, str]:
    """Return the settings of a broker of one node that is there fast and rebalances fast."""
    inner = f"{HOST}:{controller_port}"
    ones = (
        "offsets.topic.replication.factor",
        "offsets.topic.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    )
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{inner}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": inner,
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.session.timeout.ms": "3000",
        "group.consumer.session.timeout.ms": "6000",
        **dict.fromkeys(ones, "1"),
    }


class KafkaProcess(Processes):
    """A broker whose settings, data, pid and log lie in a run folder."""

    def start(
        self,
        cache_dir: Path,
        ports: tuple[int, int],
        on_step: OnStep,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; its own controller listens on the second of the ports.

        `more` are settings, of which lists are appended to those that there are.

        Raises:
            UserError: there is no Java that it runs on, or no jars.
        """
        check_java()
        jars = kafka_jars(cache_dir, on_step)
        on_step(f"starting Kafka on port {ports[0]}")
        folder = self._run_dir / "kafka"
        folder.mkdir(parents=True, exist_ok=True)
        conf, log_conf = folder / "server.properties", folder / "log4j2.properties"
        found = kafka_settings(*ports, folder / "data")
        for name, value in (more or {}).items():
            found[name] = f"{found[name]},{value}" if name in found else value
        conf.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
        log_conf.write_text(_LOG)
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else "java"
        words = [java, f"-Dlog4j2.configurationFile={log_conf}", "-cp", f"{jars}/*"]
        if not (folder / "data" / "meta.properties").exists():
            self._format(words, conf)
        self.launch("kafka", [*words[:1], *_HEAP, *words[1:], "kafka.Kafka", str(conf)], {}, folder)

    def _format(self, words: list[str], conf: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        options = ["format", "--standalone", "--cluster-id", cluster, "--config", str(conf)]
        ran = subprocess.run(
            [*words, "kafka.tools.StorageTool", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise UserError(
                f"Kafka's storage cannot be formatted:\n{(ran.stdout + ran.stderr)[-600:]}"
            )

    @property
    def servers(self) -> str:
        """HOST:PORT of the one that was started last."""
        conf = (self._run_dir / "kafka" / "server.properties").read_text()
        found = re.search(r"^advertised\.listeners=PLAINTEXT://([^,\n]+)", conf, re.MULTILINE)
        assert found is not None
        return found[1]

    def stop(self, *, delete_data: bool) -> None:
        self.end("kafka")
        if delete_data:
            shutil.rmtree(self._run_dir / "kafka", ignore_errors=True)


def kafka_answers(port: int) -> bool:
    """Tell whether the broker takes connections, which it does once it can answer."""
    try:
        with socket.create_connection((HOST, port), timeout=ASK_TIMEOUT_S):
            return True
    except OSError:
        return False
