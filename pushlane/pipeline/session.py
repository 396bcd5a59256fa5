"""Opens a Spark session for one piece of work, on this machine or on a master's cluster.

A session that the caller's own Spark job already has is used and left running. Spark's output never
reaches the terminal, because it may quote rows; after a failure the error names the kept log.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.interrupt import interrupt_kept, interrupt_stops, py4j_silent
from pushlane.pipeline.jvm import Jvm, jvm, require_java

MASTER = "local[*]"
_TRIES = 4  # of a task, as on a cluster: this machine's own masters try once
_UNTRIED = re.compile(r"local(?:\[\s*(\*|\d+)\s*\])?")
_CONNECT_S = 5.0
_MOST_CHARACTERS = 300
_MEMORY = re.compile(r"\d+[kmgt]", re.IGNORECASE)
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.executor.syncLogLevel.enabled": "true",  # what executors say is kept where they are
    "spark.python.worker.faulthandler.enabled": "true",  # a worker that dies says where
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def spark_session(
    name: str,
    master: str = MASTER,
    options: Mapping[str, str] | None = None,
    *,
    driver_memory: str = "",
) -> Iterator[SparkSession]:
    """Open a session, and stop it with its Java process at the end; `options` are Spark's and win.

    `driver_memory` is a size like 2g. The context stops running jobs on Ctrl-C, and the interrupt
    then goes on as before; so open it in the main thread, where the interrupt arrives.

    Raises:
        BadInput: no Java that Spark can run on, or an option that cannot be used.
        Unreachable: nothing answers at the master's address.
        PipelineFailed: Spark does not start.
    """
    if running := _active_session():
        yield running
        return
    require_java()
    _require_master(master)
    settings = _settings(name, master, options or {}, driver_memory)
    with _environment(master), py4j_silent(), jvm(settings) as process:
        session = _start(process, settings)
        try:
            with _log_named_on_failure(process), interrupt_stops(session.stop, process.kill):
                yield session
        finally:
            was_killed = isinstance(sys.exception(), KeyboardInterrupt)  # Java may be gone
            with suppress(*[PipelineFailed] * was_killed):
                _stop(session, process)


@contextmanager
def _log_named_on_failure(process: Jvm) -> Iterator[None]:
    """Add the path of the log, which is kept, to any failure of Spark."""
    try:
        yield
    except PipelineFailed as error:
        raise process.failure(str(error)) from error
    except PushlaneError:
        raise
    except Exception as error:
        error.add_note(f"what Spark said: {process.keep_log()}")
        raise


def _active_session() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _settings(
    name: str, master: str, options: Mapping[str, str], driver_memory: str
) -> dict[str, str]:
    memory = {"spark.driver.memory": driver_memory} if driver_memory else {}
    if driver_memory and not _MEMORY.fullmatch(driver_memory):
        raise BadInput(f"driver memory {driver_memory!r} is no size: give it like 512m or 2g")
    return {
        **_ALWAYS,
        **(_LOCAL if _is_on_loopback(master) else {}),
        **memory,
        **options,
        "spark.app.name": name,
        "spark.master": with_retries(master),
    }


@contextmanager
def spark_conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set these values in a session, and restore at the end what the caller had there."""
    before = {name: spark.conf.get(name) or "" for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def with_retries(master: str) -> str:
    """Return the master; a plain local one gets as many tries of a task as a cluster."""
    local = _UNTRIED.fullmatch(master.strip())
    return f"local[{local[1] or 1}, {_TRIES}]" if local else master


def _start(process: Jvm, settings: Mapping[str, str]) -> SparkSession:
    for logger in _LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    conf = SparkConf().setAll(list(settings.items()))
    try:
        with interrupt_kept():
            context = SparkContext(conf=conf, gateway=process.gateway)
    except Exception as error:  # py4j's errors have no common base
        what = f"Spark does not start on master {settings['spark.master']!r}: {_reason(error)}"
        raise process.failure(what) from error
    context.setLogLevel("OFF")
    process.spark_started()
    return SparkSession(context)


def _stop(session: SparkSession, process: Jvm) -> None:
    try:
        with warnings.catch_warnings():  # of a Java that is gone: said below, or not worth a word
            warnings.simplefilter("ignore", RuntimeWarning)
            session.stop()
    except Exception as error:
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SparkContext._active_spark_context = None
        raise process.failure("Spark's Java process ended in mid-work") from error


def _reason(error: Exception) -> str:
    java = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else ""
    lines = [line.strip() for line in (java or str(error)).splitlines() if line.strip()]
    return lines[0][:_MOST_CHARACTERS] if lines else type(error).__name__


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """Set the environment variables that Spark reads in its driver and hands to its workers."""
    wanted = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if _is_on_loopback(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _is_on_loopback(master: str) -> bool:
    """Return True if the session can talk over the loopback address alone."""
    return master.startswith("local") or "127.0.0.1" in master


def _require_master(master: str) -> None:
    """Check that the master answers, since Spark itself would wait a minute before it says so."""
    if not master.startswith("spark://"):
        return
    addresses = [address.rpartition(":") for address in master[len("spark://") :].split(",")]
    if bad := [host or port for host, _, port in addresses if not (host and port.isdigit())]:
        raise BadInput(f"Spark master {master!r} has no host and port at {bad[0]!r}")
    if not any(_answers(host.strip("[]"), int(port)) for host, _, port in addresses):
        raise Unreachable(f"no Spark master answers at {master}: is it running?")


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True
