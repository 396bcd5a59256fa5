"""Opens a Spark session for one piece of work, on this machine or on a master's cluster.

A session that the caller's own Spark job already has is used and left running. Spark's output may
quote rows, so it goes to a file that only its owner can read, and never to the terminal. Once Spark
works, only names of errors and places in code get into that file. It is removed with the process,
or kept after a failure, whose error names it.

An exception that a signal raises in the middle of a call to Java breaks the connection to Java, and
under asyncio the interrupt would wait until the job is done. So on Ctrl-C another thread stops the
work, and then the interrupt goes on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeGuard

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.pipeline.errors import PipelineFailed, without_data

Handler = Callable[[int, FrameType | None], object]


_PATIENCE_S = 20.0


@contextmanager
def interrupt_stops(
    stop: Callable[[], None], kill: Callable[[], None], patience_s: float = _PATIENCE_S
) -> Iterator[None]:
    """Make Ctrl-C inside this context call `stop`, which makes the running calls to Spark fail.

    A job that is handed to Spark at that moment may wait for ever: if the block has not ended after
    `patience_s`, `kill` is called, which makes any waiting call fail. A handler that the caller has
    installed stays in place. Signals reach the main thread only, so in another thread this does
    nothing.

    Raises KeyboardInterrupt if it came, once the block has ended.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not _is_default_handler(before):
        yield
        return
    stopping: threading.Thread | None = None
    killing = threading.Timer(patience_s, _quietly, (kill,))
    killing.daemon = True

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        is_first = stopping is None
        if is_first:
            stopping = threading.Thread(target=_quietly, args=(stop,), name="stop-spark")
            stopping.daemon = True
            stopping.start()
            killing.start()
        if not (is_first and before is signal.default_int_handler and _is_in_java(frame)):
            before(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        try:
            yield
        except Exception:
            if stopping is None:
                raise
        finally:
            if stopping is not None:
                stopping.join()  # Java may go only once it has been stopped
                killing.cancel()
    finally:
        signal.signal(signal.SIGINT, before)
    if stopping is not None:
        raise KeyboardInterrupt


@contextmanager
def interrupt_waits() -> Iterator[None]:
    """Hold Ctrl-C back until the end of a block of seconds that must not be cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    before = signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(signal.SIGINT, came[0])


@contextmanager
def interrupt_kept() -> Iterator[None]:
    """Restore the SIGINT handler after the block, since Spark's handler outlives its context."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def py4j_silent() -> Iterator[None]:
    """Keep py4j from writing tracebacks when Java is gone: the error that is raised says it."""
    root = logging.getLogger()
    root.addFilter(_is_not_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(_is_not_py4j)


def _quietly(stop: Callable[[], None]) -> None:
    """Call `stop` and ignore its errors: then the work is gone, and its caller reports that."""
    with suppress(Exception):
        stop()


def _is_default_handler(handler: object) -> TypeGuard[Handler]:
    """Return True if the handler is Python's default one or that of asyncio.run."""
    runner = handler.func if isinstance(handler, functools.partial) else None
    return handler is signal.default_int_handler or isinstance(
        getattr(runner, "__self__", None), asyncio.Runner
    )


def _is_in_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.f_back
    return False


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


_ENDS_WITHIN_S = 20.0
_MOST_CHARACTERS = 300
_SECRET = re.compile(r"(?i)secret|password|token|key")
_PREFIX = re.compile(r'^(Exception in thread "main" )?([\w$]+\.)+[\w$]*(Exception|Error): ')
_TROUBLE = re.compile(r"(\b[\w.$]+(Exception|Error)\b|^error|invalid|cannot|unable|refused)", re.I)


class Jvm:
    """A Java process that Spark can be started in; `log` is the file that its output is copied to.

    At first every line is copied, once Spark has started only what holds no data.
    Raises PipelineFailed if it does not start.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        handle, path = tempfile.mkstemp(prefix="pushlane-spark-", suffix=".log")
        self.log = Path(path)
        self._file = os.fdopen(handle, "w", encoding="utf-8", buffering=1)
        self._drops_data = self._keeps_log = False
        reading, pipe = os.pipe()
        self._copying = threading.Thread(
            target=self._copy, args=(reading,), name="spark-log", daemon=True
        )
        self._copying.start()
        # Without secrets, since every user of the machine can read a command line.
        shown = [(name, value) for name, value in options.items() if not _SECRET.search(name)]
        self.gateway = self._launched(SparkConf(loadDefaults=False).setAll(shown), pipe)

    def _launched(self, conf: SparkConf, pipe: int) -> JavaGateway:
        try:
            try:
                return launch_gateway(conf, {"stdout": pipe, "stderr": pipe})  # type: ignore[no-untyped-call]
            finally:
                os.close(pipe)  # so that the log ends with the process
        except PySparkException as error:
            self._copying.join(_ENDS_WITHIN_S)
            said = f"{reason_in(self.log)} (what it said: {self.log})"
            raise PipelineFailed(f"Spark's Java process does not start: {said}") from error

    def _copy(self, reading: int) -> None:
        with self._file, os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not self._drops_data:
                    self._file.write(line)
                elif kept := without_data(line):
                    self._file.write(f"{kept}\n")

    def spark_started(self) -> None:
        """Note that Spark has started: from now on the log gets errors only, without rows.

        Executors of a cluster stay silent here, since their output is kept on their own machines.
        """
        self._drops_data = True
        log4j = self.gateway.jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setRootLevel(log4j.Level.ERROR)

    def keep_log(self) -> Path:
        """Keep the log after the end of the process, and return its path."""
        self._keeps_log = True
        return self.log

    def failure(self, what: str) -> PipelineFailed:
        """Return the error for this failure, which names the log; the log is kept."""
        return PipelineFailed(f"{what} (what Spark said: {self.keep_log()})")

    def kill(self) -> None:
        """Kill the process at once, so that calls to it fail."""
        self.gateway.proc.kill()

    def end(self) -> None:
        """End the process by closing its standard input, and kill it if it does not end in time."""
        process: subprocess.Popen[bytes] = self.gateway.proc
        with suppress(Exception):  # a process that is gone cannot be told
            self.gateway.shutdown()
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._copying.join(_ENDS_WITHIN_S)
        if not self._keeps_log:
            self.log.unlink(missing_ok=True)


@contextmanager
def jvm(options: Mapping[str, str]) -> Iterator[Jvm]:
    """Run a Java process for a Spark session with these options, and end it with the context."""
    running: Jvm | None = None
    try:
        with interrupt_waits():
            running = Jvm(options)
        SparkContext._gateway, SparkContext._jvm = running.gateway, running.gateway.jvm
        yield running
    finally:
        if running:
            running.end()
        SparkContext._gateway = SparkContext._jvm = None


def reason_in(log: Path) -> str:
    """Return the line of the log that says most about why its process did not start."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "WARNING:"))]
    telling = [line for line in said if _TROUBLE.search(line)] or said[-1:]
    return _PREFIX.sub("", telling[0])[:_MOST_CHARACTERS] if telling else "it said nothing"


_LEAST = 17
_DEADLINE_S = 30.0
_HOW_TO_GET_IT = (
    f"install a Java runtime, version {_LEAST} or newer (Debian: apt-get install "
    "default-jre-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one"
)


def require_java() -> None:
    """Check that there is a Java that Spark can run on; raises BadInput with how to get one."""
    if not (java := _java()):
        raise BadInput(f"Spark needs Java, and there is none: {_HOW_TO_GET_IT}")
    if not (found := _major_version(java)):
        raise BadInput(f"{java} does not report a Java version: {_HOW_TO_GET_IT}")
    if found < _LEAST:
        raise BadInput(f"Java {found} ({java}) is too old for Spark: {_HOW_TO_GET_IT}")


def _java() -> str:
    """Return the path of the Java that Spark will use, or an empty text if there is none.

    As in Spark, JAVA_HOME counts alone if it is set, and PATH is searched otherwise.
    """
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java") or ""
    inside = Path(home, "bin", "java")
    if not os.access(inside, os.X_OK):
        raise BadInput(f"JAVA_HOME is {home}, and there is no Java in it: {_HOW_TO_GET_IT}")
    return str(inside)


def _major_version(java: str) -> int:
    """Return the major version that this Java reports, or 0 if it reports none."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_DEADLINE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', ran.stderr)
    return int(found[1]) if found else 0


MASTER = "local[*]"
_TRIES = 4  # of a task, as on a cluster: this machine's own masters try once
_UNTRIED = re.compile(r"local(?:\[\s*(\*|\d+)\s*\])?")
_CONNECT_S = 5.0
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

    Raises BadInput for no Java that Spark can run on, or an option that cannot be used; Unreachable
    if nothing answers at the master's address; PipelineFailed if Spark does not start.
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
    if driver_memory and not _MEMORY.fullmatch(driver_memory):
        raise BadInput(f"driver memory {driver_memory!r} is not a size: give it like 512m or 2g")
    return {
        **_ALWAYS,
        **(_LOCAL if _is_on_loopback(master) else {}),
        **({"spark.driver.memory": driver_memory} if driver_memory else {}),
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
        raise process.failure("Spark's Java process ended during its work") from error


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
