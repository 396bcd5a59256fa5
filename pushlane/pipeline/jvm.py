"""Finds Java and runs Spark's Java process, whose output goes to a file instead of the terminal.

Once Spark works, only names of errors and places in code get into that file, nothing of a row. Only
its owner can read it, and it is removed with the process; after a failure it stays, and the error
names it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from pushlane.core.errors import BadInput
from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.interrupt import interrupt_waits
from pushlane.pipeline.traces import without_data

_ENDS_WITHIN_S = 20.0
_MOST_CHARACTERS = 300
_SECRET = re.compile(r"(?i)secret|password|token|key")
_PREFIX = re.compile(r'^(Exception in thread "main" )?([\w$]+\.)+[\w$]*(Exception|Error): ')
_TROUBLE = re.compile(r"(\b[\w.$]+(Exception|Error)\b|^error|invalid|cannot|unable|refused)", re.I)


class Jvm:
    """A Java process that Spark can be started in; `log` is the file that its output is copied to.

    At first every line is copied, once Spark has started only what holds no data.

    Raises:
        PipelineFailed: it does not start.
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
        self.gateway = self._launched(SparkConf(loadDefaults=False).setAll(_shown(options)), pipe)

    def _launched(self, conf: SparkConf, pipe: int) -> JavaGateway:
        failure: PySparkException | None = None
        try:
            return launch_gateway(conf, {"stdout": pipe, "stderr": pipe})  # type: ignore[no-untyped-call]
        except PySparkException as error:
            failure = error
        finally:
            os.close(pipe)  # so that the log ends with the process
        self._copying.join(_ENDS_WITHIN_S)
        raise PipelineFailed(
            f"Spark's Java process does not start: {reason_in(self.log)} (what it said: {self.log})"
        ) from failure

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
    """Run a Java process for a Spark session with these options, and end it with the context.

    Raises:
        PipelineFailed: it does not start.
    """
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


def _shown(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the options that hold no secret: every user of the machine can read a command line."""
    return [(name, value) for name, value in options.items() if not _SECRET.search(name)]


_LEAST = 17
_DEADLINE_S = 30.0
_HOW_TO_GET_IT = (
    f"install a Java runtime, version {_LEAST} or newer (Debian: apt-get install "
    "default-jre-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one"
)


def require_java() -> None:
    """Check that there is a Java that Spark can run on; raises BadInput with how to get one."""
    java = _java()
    if not java:
        raise BadInput(f"Spark needs Java, and there is none: {_HOW_TO_GET_IT}")
    found = _major_version(java)
    if not found:
        raise BadInput(f"{java} does not say a version of Java: {_HOW_TO_GET_IT}")
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
