"""Spark's Java process, for one piece of work: what it says goes to a file, not to the terminal.

The file can quote rows, so only its owner can read it, and it goes with the process; after a
failure it stays, and the error names it. Nothing here knows what Spark is used for.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from pipeline.errors import PipelineFailed
from pipeline.interrupt import interrupt_waits

_ENDS_WITHIN_S = 20.0
_MOST_CHARACTERS = 300
_SECRET = re.compile(r"(?i)secret|password|token|key")
_PREFIX = re.compile(r'^(Exception in thread "main" )?([\w$]+\.)+[\w$]*(Exception|Error): ')
_TROUBLE = re.compile(r"(\b[\w.$]+(Exception|Error)\b|^error|invalid|cannot|unable|refused)", re.I)


class Jvm:
    """A Java process that Spark can be started in. `log` holds what it says."""

    def __init__(self, gateway: JavaGateway, log: Path) -> None:
        self.gateway = gateway
        self.log = log
        self._keeps_log = False

    def failed(self, what: str) -> PipelineFailed:
        """The error that says so; the log stays to be read."""
        self._keeps_log = True
        return PipelineFailed(f"{what} (what Spark said: {self.log})")

    def end(self) -> None:
        """It ends with its standard input; killed if it does not."""
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
        if not self._keeps_log:
            self.log.unlink(missing_ok=True)


@contextmanager
def jvm(options: Mapping[str, str]) -> Iterator[Jvm]:
    """A process for a session with these options; ended at the end.

    Raises:
        PipelineFailed: it does not start.
    """
    log = _private_file()
    running: Jvm | None = None
    try:
        with interrupt_waits():
            running = _start(SparkConf(loadDefaults=False).setAll(_shown(options)), log)
        SparkContext._gateway, SparkContext._jvm = running.gateway, running.gateway.jvm
        yield running
    finally:
        if running:
            running.end()
        SparkContext._gateway = SparkContext._jvm = None


def reason_in(log: Path) -> str:
    """The line of the log that says most about why its process did not start."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "WARNING:"))]
    telling = [line for line in said if _TROUBLE.search(line)] or said[-1:]
    return _PREFIX.sub("", telling[0])[:_MOST_CHARACTERS] if telling else "it said nothing"


def _start(conf: SparkConf, log: Path) -> Jvm:
    with log.open("ab") as said:
        try:
            streams = {"stdout": said, "stderr": said}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkException as error:
            text = f"Spark's Java process does not start: {reason_in(log)} (what it said: {log})"
            raise PipelineFailed(text) from error
    return Jvm(gateway, log)


def _private_file() -> Path:
    handle, path = tempfile.mkstemp(prefix="pushlane-spark-", suffix=".log")
    os.close(handle)
    return Path(path)


def _shown(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Those that may stand on a command line, where every user of the machine can read them."""
    return [(name, value) for name, value in options.items() if not _SECRET.search(name)]
