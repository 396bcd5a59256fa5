"""A Spark session in a process of its own: quiet, stopped with its Java, and interruptible."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pushlane.pipeline.errors import PipelineFailed, spark_errors
from pushlane.pipeline.session import spark_session
from tests.spark import DRIVER_MEMORY, MASTER

ROOT = Path(__file__).parents[3]
DEADLINE_S = 200.0
ENDLESS = "spark.range(1).rdd.foreach(lambda _: __import__('time').sleep(600))"
PROGRAM = """
import os, signal, sys, typer

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have set it to be ignored
from pushlane.cli.errors import errors_told
from pushlane.pipeline.errors import spark_errors
from pushlane.pipeline.session import spark_session

try:
    with errors_told(debug=False):
        with spark_session("test", {master!r}, driver_memory={memory!r}) as spark:
            java = spark.sparkContext._gateway.proc.pid
            print(java, flush=True)
            with spark_errors("the work"):
                {work}
        print("done")
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


@pytest.fixture
def running(java: None, tmp_path: Path):
    """Starts the program with this work in it; the process, and its Java's id."""
    started = []

    def start(work: str) -> tuple[subprocess.Popen[str], int]:
        program = PROGRAM.format(master=MASTER, memory=DRIVER_MEMORY, work=work)
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()


def test_spark_says_nothing_and_leaves_nothing(running, tmp_path):
    process, java = running("spark.range(10).repartition(2).selectExpr('sum(id)').collect()")

    output, said = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, output, said) == (0, "done\n", "")
    assert not is_alive(java)
    assert not list(tmp_path.glob("pushlane-spark-*"))


def test_an_error_does_not_quote_rows(spark):
    failing = spark.range(1).selectExpr("raise_error('of device-7')")

    with pytest.raises(PipelineFailed) as failed, spark_errors("the work"):
        failing.collect()

    assert str(failed.value) == "the work: Spark stopped with USER_RAISED_EXCEPTION"


def test_a_session_that_is_there_is_used_and_left_running(spark):
    with spark_session("another") as session:
        assert session is spark

    assert spark.range(3).count() == 3


def test_ctrl_c_ends_a_job_without_a_traceback(running):
    process, java = running(ENDLESS)

    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, said) == (130, "interrupted\n")
    assert not is_alive(java)


def test_a_java_process_that_dies_is_told_with_where_its_log_is(running, tmp_path):
    process, java = running(ENDLESS)

    os.kill(java, signal.SIGKILL)
    _, said = process.communicate(timeout=DEADLINE_S)

    [log] = tmp_path.glob("pushlane-spark-*")
    assert process.returncode == 1
    assert said == (f"error: Spark's Java process ended during its work (what Spark said: {log})\n")
    assert log.stat().st_mode & 0o077 == 0


FAILING = "spark.range(1).rdd.foreach(lambda _: {}['device-7'])"
DYING = "spark.range(1).rdd.foreach(lambda _: os.kill(os.getpid(), 11))"
QUOTING = "spark.range(1).selectExpr(\"raise_error('of device-7')\").collect()"


@pytest.mark.parametrize(
    ("work", "why", "kept"),
    [
        (FAILING, r"KeyError at <string>:\d+ in <lambda>", "KeyError: …"),
        (DYING, r"a worker process died \(signal SIGSEGV\) at <string>:\d+ in <lambda>", "Fatal"),
        (QUOTING, "USER_RAISED_EXCEPTION", "SparkRuntimeException: [USER_RAISED_EXCEPTION]"),
    ],
    ids=["a-worker-raises", "a-worker-dies", "java-raises"],
)
def test_a_failed_job_tells_why_and_keeps_its_log_without_a_row(running, tmp_path, work, why, kept):
    process, _ = running(work)

    _, said = process.communicate(timeout=DEADLINE_S)

    [log] = tmp_path.glob("pushlane-spark-*")
    told = (
        rf"error: the work: Spark stopped with {why} \(what Spark said: {re.escape(str(log))}\)\n"
    )
    assert re.fullmatch(told, said)
    assert process.returncode == 1
    assert kept in log.read_text()
    assert "device-7" not in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True
