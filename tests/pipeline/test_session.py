"""What is said when Spark cannot start, and what Ctrl-C does; all without Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pushlane.core.errors import BadInput, Unreachable
from pushlane.pipeline.session import (
    MASTER,
    interrupt_stops,
    interrupt_waits,
    reason_in,
    require_java,
    spark_session,
    with_retries,
)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program on PATH that says to be Java of this version."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(says: str, folder: Path = tmp_path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "java"
        program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
        program.chmod(0o755)
        return program

    return make


def test_no_java_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BadInput, match=r"there is none: install a Java runtime, version 17"):
        require_java()


@pytest.mark.parametrize(
    ("says", "major"),
    [('java version "1.8.0_402"', 1), ('openjdk version "11.0.22" 2024-01-16', 11)],
)
def test_an_old_java_is_named_with_its_version(java, says, major):
    java(says)

    with pytest.raises(BadInput, match=f"Java {major} .* is too old for Spark"):
        require_java()


def test_a_new_enough_java_will_do(java):
    java('openjdk version "17.0.15" 2025-04-15')

    require_java()


def test_java_home_goes_before_path(java, tmp_path, monkeypatch):
    java('openjdk version "21" 2023-09-19')
    java('openjdk version "11.0.22"', tmp_path / "home" / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    with pytest.raises(BadInput, match="Java 11"):
        require_java()


def test_a_java_home_without_java_is_named(java, tmp_path, monkeypatch):
    java('openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    with pytest.raises(BadInput, match=r"JAVA_HOME is .*gone, and there is no Java in it"):
        require_java()


def test_a_program_that_is_no_java_is_named(java):
    program = java("the runtime could not be located")

    with pytest.raises(BadInput, match=f"{program} does not report a Java version"):
        require_java()


@pytest.fixture
def any_java(monkeypatch):
    monkeypatch.setattr("pushlane.pipeline.session.require_java", lambda: None)


def test_a_memory_that_is_no_size_is_refused(any_java):
    with (
        pytest.raises(BadInput, match="'2 gigs' is not a size: give it like 512m or 2g"),
        spark_session("test", driver_memory="2 gigs"),
    ):
        pass


def test_a_master_that_does_not_answer_is_told_at_once(any_java):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unreachable, match=master), spark_session("test", master):
            pass


def test_a_master_without_a_port_is_refused(any_java):
    with (
        pytest.raises(BadInput, match="no host and port at 'cluster'"),
        spark_session("test", "spark://cluster"),
    ):
        pass


@pytest.mark.parametrize(
    ("master", "tries"),
    [
        (MASTER, "local[*, 4]"),
        ("local[*]", "local[*, 4]"),
        ("local[2]", "local[2, 4]"),
        ("local", "local[1, 4]"),
        ("local[*, 1]", "local[*, 1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_master_on_this_machine_tries_as_often_as_a_cluster_unless_it_says(master, tries):
    assert with_retries(master) == tries


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", "it said nothing"),
        (
            "WARNING: Using incubator modules: jdk.incubator.vector\n"
            'Exception in thread "main" org.apache.spark.SparkException: Executor memory is bad\n'
            "\tat org.apache.spark.Submit.main(Submit.scala)\n",
            "Executor memory is bad",
        ),
        (
            "Invalid maximum heap size: -Xmx9x\nError: Could not create the Java Virtual Machine.",
            "Invalid maximum heap size: -Xmx9x",
        ),
        ("one thing\nand another\n", "and another"),
    ],
)
def test_of_a_log_the_telling_line_is_shown(tmp_path, log, reason):
    path = tmp_path / "log"
    path.write_text(log)

    assert reason_in(path) == reason


@pytest.fixture
def ctrl_c():
    """Python's own handler, whatever another test or a shell has left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def never() -> None:
    raise AssertionError("killed, though it had stopped")


def test_what_does_not_stop_is_killed(ctrl_c):
    killed = threading.Event()

    def stop() -> None:
        assert killed.wait(10)

    with pytest.raises(KeyboardInterrupt), interrupt_stops(stop, killed.set, 0.0):
        interrupt()
    assert killed.is_set()


def test_an_interrupt_stops_the_work_from_another_thread(ctrl_c):
    stopped_in: list[threading.Thread] = []
    stopped = threading.Event()

    def stop() -> None:
        stopped_in.append(threading.current_thread())
        stopped.set()

    with pytest.raises(KeyboardInterrupt), interrupt_stops(stop, never):
        interrupt()
    assert stopped.wait(10)
    assert stopped_in != [threading.main_thread()]


def test_what_stops_the_work_has_ended_when_the_interrupt_goes_on(ctrl_c):
    leaving, done = threading.Event(), []

    def stop() -> None:
        leaving.wait(10)
        done.append(sum(range(1_000_000)))
        raise ConnectionRefusedError("Java has gone")

    def work() -> None:
        with interrupt_stops(stop, never):
            try:
                interrupt()
            finally:
                leaving.set()

    with pytest.raises(KeyboardInterrupt):
        work()

    assert done


def test_an_interrupt_is_raised_instead_of_the_error_that_it_caused(ctrl_c):
    stopped = threading.Event()

    async def work() -> None:
        with interrupt_stops(stopped.set, never):
            interrupt()
            stopped.wait(10)
            raise RuntimeError("the job was cancelled")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())


def test_an_error_without_an_interrupt_stays_what_it_is():
    with pytest.raises(RuntimeError, match="by itself"), interrupt_stops(lambda: None, never):
        raise RuntimeError("by itself")


def test_a_handler_of_the_callers_own_stays():
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        with interrupt_stops(lambda: came.append(0), never):
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)

    assert came == [signal.SIGINT]


def test_an_interrupt_that_has_to_wait_comes_at_the_end(ctrl_c):
    done = []

    def work() -> None:
        with interrupt_waits():
            interrupt()
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        work()

    assert done == ["the rest"]
