"""The local stack with a stand-in for Pulsar's program: what it starts, stops, checks and says."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import stack
from dev.stack import Ports, docker, kafka, local, processes, services
from dev.stack.local import LocalWay
from dev.stack.processes import Processes
from pushlane.core.errors import Unreachable, UserError

FREE = Ports(broker=0, admin=0, redis=0)

HEALTHY_BROKER = f"""#!{sys.executable}
import http.server, re, sys
conf = open(sys.argv[sys.argv.index("--config") + 1]).read()
port = int(re.findall("webServicePort=([0-9]+)", conf)[-1])

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""

BROKEN_BROKER = """#!/bin/sh
echo "no space left for the bookie"
exit 1
"""


KAFKA = f"""#!{sys.executable}
import re, socket, sys
if "kafka.Kafka" in sys.argv:
    conf = open(sys.argv[-1]).read()
    port = int(re.search("advertised.listeners=PLAINTEXT://127.0.0.1:([0-9]+)", conf)[1])
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            server.accept()
print('openjdk version "17.0.15"', file=sys.stderr)
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def pulsar_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution whose broker only answers its health check, on a Java that is new enough."""
    home = tmp_path / "distribution"
    program(home / "bin" / "pulsar", HEALTHY_BROKER)
    (home / "conf").mkdir()
    (home / "conf" / "standalone.conf").write_text("webServicePort=8080")
    java(tmp_path, monkeypatch, "17.0.15")
    monkeypatch.setenv(local.HOME_VARIABLE, str(home))
    return home


def java(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    program(
        folder / "jdk" / "bin" / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cache"
    yield folder
    stack.down(folder, delete_data=True)


def up(cache: Path, steps: list[str] | None = None) -> stack.StackUrls:
    told = steps if steps is not None else []
    return stack.up(cache, told.append, prefer="local", ports=FREE)


@pytest.mark.usefixtures("pulsar_home")
class TestUp:
    def test_both_services_answer_when_it_returns(self, cache: Path) -> None:
        urls = up(cache)
        status = stack.status(cache)
        assert status is not None
        assert status.ports.urls == urls
        assert stack.is_healthy(cache)

    def test_a_second_up_finds_the_same_stack(self, cache: Path) -> None:
        urls = up(cache)
        steps: list[str] = []
        assert up(cache, steps) == urls
        assert steps == ["already up (local)"]

    def test_a_stack_with_a_dead_part_is_started_anew(self, cache: Path) -> None:
        up(cache)
        Processes(cache / "run").end("redis")
        up(cache)
        assert stack.is_healthy(cache)

    def test_a_broker_that_ends_shows_its_log_and_takes_redis_with_it(
        self, cache: Path, pulsar_home: Path
    ) -> None:
        program(pulsar_home / "bin" / "pulsar", BROKEN_BROKER)
        with pytest.raises(Unreachable, match="no space left for the bookie"):
            up(cache)
        assert not Processes(cache / "run").is_running("redis")
        assert stack.status(cache) is None

    def test_ctrl_c_in_the_middle_leaves_nothing_running(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(services, "wait_until", interrupt)
        with pytest.raises(KeyboardInterrupt):
            up(cache)
        ours = Processes(cache / "run")
        assert not ours.is_running("pulsar")
        assert not ours.is_running("redis")
        assert stack.status(cache) is None

    def test_a_port_that_is_taken_is_named_and_nothing_is_started(self, cache: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            with pytest.raises(UserError, match=f"admin port {taken}"):
                stack.up(cache, print, prefer="local", ports=Ports(0, taken, 0))
        assert not Processes(cache / "run").is_running("redis")

    def test_the_broker_gets_the_settings_that_pushlane_needs(self, cache: Path) -> None:
        up(cache)
        conf = (cache / "run" / "pulsar" / "standalone.conf").read_text().splitlines()
        assert "webServicePort=8080" in conf  # the distribution's last line is kept whole
        assert "allowAutoTopicCreation=false" in conf
        assert "brokerDeleteInactiveTopicsEnabled=false" in conf
        assert "bindAddress=127.0.0.1" in conf

    def test_another_address_and_more_settings_reach_the_broker(self, cache: Path) -> None:
        way = LocalWay(
            cache / "run", cache, bind="127.0.0.2", broker_settings={"journalSyncData": "true"}
        )
        way.start_pulsar(services.settle(FREE), print)
        try:
            conf = (cache / "run" / "pulsar" / "standalone.conf").read_text().splitlines()
        finally:
            way.stop(delete_data=True)
        assert {"bindAddress=127.0.0.2", "advertisedAddress=127.0.0.1"} <= set(conf)
        assert conf[-1] == "journalSyncData=true"


@pytest.mark.usefixtures("pulsar_home")
class TestDown:
    def test_it_stops_both_and_keeps_the_data(self, cache: Path) -> None:
        up(cache)
        stack.down(cache, delete_data=False)
        ours = Processes(cache / "run")
        assert not ours.is_running("pulsar")
        assert not ours.is_running("redis")
        assert (cache / "run" / "redis").exists()

    def test_the_data_goes_when_asked(self, cache: Path) -> None:
        up(cache)
        stack.down(cache, delete_data=True)
        assert not (cache / "run" / "redis").exists()
        assert not (cache / "run" / "pulsar").exists()

    def test_without_a_stack_it_is_harmless(self, cache: Path) -> None:
        stack.down(cache, delete_data=True)
        assert stack.status(cache) is None


class TestKafka:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A Java that listens as the broker does, and an unpacked distribution without jars."""
        program(tmp_path / "jdk" / "bin" / "java", KAFKA)
        (tmp_path / "kafka" / "libs").mkdir(parents=True)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        monkeypatch.setenv(kafka.HOME_VARIABLE, str(tmp_path / "kafka"))
        return tmp_path

    def test_it_answers_stays_as_it_is_and_goes_down_with_the_stack(
        self, home: Path, cache: Path
    ) -> None:
        steps: list[str] = []
        first = stack.up_kafka(cache, steps.append, 0)
        again = stack.up_kafka(cache, steps.append, 0)
        answered = kafka.kafka_answers(int(first.rpartition(":")[2]))
        stack.down(cache, delete_data=True)

        assert answered
        assert again == first
        assert steps[-1] == "Kafka is already up"
        assert not Processes(cache / "run").is_running("kafka")
        assert not (cache / "run" / "kafka").exists()

    def test_one_that_ends_shows_its_log(self, home: Path, cache: Path) -> None:
        broken = KAFKA.replace("while True:", "sys.exit('no space left for the log')")
        program(home / "jdk" / "bin" / "java", broken.replace("        server.accept()", ""))
        with pytest.raises(Unreachable, match="no space left for the log"):
            stack.up_kafka(cache, print, 0)

    def test_a_port_that_is_taken_is_named(self, home: Path, cache: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            with pytest.raises(UserError, match=f"Kafka port {taken}"):
                stack.up_kafka(cache, print, taken)

    def test_a_home_without_kafka_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(kafka.HOME_VARIABLE, str(tmp_path))
        with pytest.raises(UserError, match=str(tmp_path)):
            kafka.kafka_jars(tmp_path, print)


class TestProcesses:
    def test_a_pid_that_now_belongs_to_somebody_else_is_left_alone(self, tmp_path: Path) -> None:
        with subprocess.Popen(["sleep", "60"]) as other:
            (tmp_path / "redis.pid").write_text(f"{other.pid} another-time\n")
            Processes(tmp_path).end("redis")
            assert other.poll() is None
            other.kill()

    def test_who_ignores_term_is_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "TERM_PATIENCE_S", 0.2)
        ours = Processes(tmp_path)
        deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
        ours.launch("deaf", [sys.executable, "-c", deaf], {}, tmp_path)
        ours.end("deaf")
        assert not ours.is_running("deaf")

    def test_a_signal_reaches_it(self, tmp_path: Path) -> None:
        ours = Processes(tmp_path)
        ours.launch("sleeper", ["sleep", "60"], {}, tmp_path)
        ours.send("sleeper", signal.SIGKILL)
        services.wait_until(
            lambda: not ours.is_running("sleeper"),
            what="the end",
            deadline_s=60,
            is_running=lambda: True,
            log_tail=lambda: "",
        )

    def test_a_signal_to_one_that_does_not_run_is_harmless(self, tmp_path: Path) -> None:
        Processes(tmp_path).send("redis", signal.SIGKILL)

    def test_it_is_out_of_reach_of_our_terminal(self, tmp_path: Path) -> None:
        ours = Processes(tmp_path)
        ours.launch("sleeper", ["sleep", "60"], {}, tmp_path)
        pid = int((tmp_path / "sleeper.pid").read_text().split()[0])
        assert os.getsid(pid) != os.getsid(0)
        ours.end("sleeper")

    def test_one_that_was_killed_does_not_run(self, tmp_path: Path) -> None:
        ours = Processes(tmp_path)
        ours.launch("sleeper", ["sleep", "60"], {}, tmp_path)
        pid = int((tmp_path / "sleeper.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert not ours.is_running("sleeper")

    def test_a_program_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="/no/such/program"):
            Processes(tmp_path).launch("it", ["/no/such/program"], {}, tmp_path)


class TestTools:
    def test_an_old_java_is_named_with_its_version(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        java(tmp_path, monkeypatch, "1.8.0_412")
        with pytest.raises(UserError, match=r"17 or newer.* is 8"):
            local.check_java()

    def test_no_java_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(UserError, match="install it, set JAVA_HOME to one, or start Docker"):
            local.check_java()

    def test_no_maven_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(local.HOME_VARIABLE, raising=False)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(
            UserError, match=f"install Maven or Docker, or set {local.HOME_VARIABLE}"
        ):
            local.pulsar_home(tmp_path, print)

    def test_a_home_without_pulsar_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(local.HOME_VARIABLE, str(tmp_path))
        with pytest.raises(UserError, match=str(tmp_path)):
            local.pulsar_home(tmp_path, print)

    def test_a_download_that_fails_leaves_nothing_half_done(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(tmp_path / "bin" / "mvn", "#!/bin/sh\necho 'no route to the repository'\nexit 1\n")
        monkeypatch.delenv(local.HOME_VARIABLE, raising=False)
        monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
        cache = tmp_path / "cache"
        with pytest.raises(UserError, match="no route to the repository"):
            local.pulsar_home(cache, print)
        assert [path.name for path in cache.iterdir()] == ["download.lock"]


class TestDocker:
    @pytest.fixture
    def calls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A docker that succeeds at everything and writes down what it was asked."""
        log = tmp_path / "calls"
        log.touch()
        program(tmp_path / "bin" / "docker", f'#!/bin/sh\necho "$@" >> {log}\n')
        monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
        return log

    def test_each_service_runs_under_a_name_of_this_folder(
        self, calls: Path, tmp_path: Path
    ) -> None:
        docker.DockerWay(tmp_path).start(Ports(), print)
        docker.DockerWay(tmp_path / "other").is_running("redis")
        pulsar, redis, other = re.findall(r"(?:--name|}}) (\S+)", calls.read_text())
        assert pulsar.removesuffix("-pulsar") == redis.removesuffix("-redis")
        assert other != redis

    def test_every_port_is_published_on_loopback_only(self, calls: Path, tmp_path: Path) -> None:
        docker.DockerWay(tmp_path).start(Ports(), print)
        published = re.findall(r"-p (\S+)", calls.read_text())
        assert published == [f"127.0.0.1:{port}:{port}" for port in (6650, 8080, 6379)]

    @pytest.mark.parametrize("delete_data", [False, True])
    def test_down_removes_containers_and_volumes_only_when_asked(
        self, calls: Path, tmp_path: Path, delete_data: bool
    ) -> None:
        way = docker.DockerWay(tmp_path)
        way.start(Ports(), print)
        way.stop(delete_data=delete_data)
        asked = calls.read_text()
        assert len(re.findall("^rm --force", asked, re.MULTILINE)) == 2
        assert len(re.findall("^volume rm", asked, re.MULTILINE)) == (2 if delete_data else 0)

    def test_a_stack_that_was_never_in_docker_is_not_looked_for_there(
        self, calls: Path, tmp_path: Path
    ) -> None:
        docker.DockerWay(tmp_path).stop(delete_data=True)
        assert calls.read_text() == ""

    def test_without_docker_the_reason_is_told(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        with pytest.raises(UserError, match="there is no docker command"):
            stack.up(cache, print, prefer="docker", ports=FREE)


def test_without_a_redis_server_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(local, "_CARRIED", {})

    with pytest.raises(UserError) as error:
        local.redis_server()

    assert str(error.value) == (
        "there is no redis-server on the PATH; get one (`apt install redis-server`, "
        "`brew install redis`) or start Docker, which then runs it"
    )


def test_the_redis_server_of_the_path_comes_before_those_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "redis-server", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert local.redis_server() == str(tmp_path / "redis-server")


@pytest.mark.parametrize("package", list(local._CARRIED))
def test_the_pins_bring_a_redis_server(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local, "_CARRIED", {package: local._CARRIED[package]})

    shown = subprocess.run([local.redis_server(), "--version"], capture_output=True, check=True)

    assert b"server v=" in shown.stdout


def test_free_ports_differ() -> None:
    ports = services.settle(FREE)
    assert len({ports.broker, ports.admin, ports.redis}) == 3
    assert 0 not in (ports.broker, ports.admin, ports.redis)


def test_a_container_gets_the_settings_in_plain_lines() -> None:
    *_, script = docker.pulsar_command(Ports(), advertise="10.0.0.5")
    assert "advertisedAddress=10.0.0.5\n" in script
    assert script.endswith("exec bin/pulsar standalone -nfw -nss")
