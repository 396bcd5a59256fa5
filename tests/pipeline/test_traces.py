"""Why Spark stopped is told by names and places; nothing of a row is told or kept."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pushlane.core.errors import Unreachable
from pushlane.pipeline.errors import PipelineFailed, cause, cause_of, without_data
from pushlane.pipeline.receipts.job_context import translated
from pushlane.util.errors import ReceiptsGone

SECRET = "device-7"

JAVA = f"""An error occurred while calling o61.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 24.0 failed 1 \
times, most recent failure: Lost task 1.0 in stage 24.0 (TID 61) (localhost executor driver): \
java.lang.IllegalStateException: {SECRET}
\tat org.apache.spark.sql.Writer.write(Writer.scala:12)
Caused by: java.io.UncheckedIOException: of {SECRET}
{SECRET}
\tat java.base/java.nio.Files.list(Files.java:99)
\t... 3 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:2935)
"""

CRASH = """: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage \
24.0 failed 1 times, most recent failure: Lost task 1.0 in stage 24.0 (TID 61) (localhost executor \
driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): Fatal \
Python error: Segmentation fault

Current thread 0x00007f01 (most recent call first):
  File "/venv/lib/python3.11/site-packages/pulsar/__init__.py", line 1500 in close
  File "/app/lanes/pulsar/replay.py", line 95 in blocking

\tat org.apache.spark.api.python.BasePythonRunner.apply(PythonRunner.scala:706)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""

KILLED = """: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.apply(PythonRunner.scala:706)
Caused by: java.io.EOFException
"""

PYTHON = f"""org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/pipeline/receipts/source.py", line 139, in _read
    yield from rows_of(part.partition)
  File "/app/lanes/pulsar/receipts/extent.py", line 45, in of
    marked = stats["cursors"][subscription]
             ~~~~~~~~~~~~~~~~^^^^^^^^^^^^^^
KeyError: '{SECRET}'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:600)
"""

CONDITION = f"""org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {SECRET} \
SQLSTATE: P0001
\tat org.apache.spark.sql.errors.Errors.raise(Errors.scala:2700)
"""

BRACKETS = """: org.apache.spark.SparkException: Job aborted: [TOKEN_7] is device-7
\tat org.apache.spark.sql.Writer.write(Writer.scala:12)
Caused by: java.lang.IllegalStateException: of device-7 [TOKEN_7]
\tat org.apache.spark.sql.Writer.check(Writer.scala:7)
"""

LOST = """: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 \
failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 9) (10.0.0.7 executor 2): \
ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited \
with code 137
"""

OWN = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/lanes/pulsar/connection.py", line 80, in call
    raise failure(result, self.url, doing)
pushlane.core.errors.Unreachable: pulsar://127.0.0.1:6650 does not answer: start it

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:600)
"""

TRACES = {
    JAVA: "java.io.UncheckedIOException at Files.java:99",
    CRASH: "a worker process died (signal SIGSEGV) at site-packages/pulsar/__init__.py:1500"
    " in close",
    KILLED: "a worker process died (no signal; killed, or out of memory)",
    PYTHON: "KeyError at pulsar/receipts/extent.py:45 in of",
    CONDITION: "USER_RAISED_EXCEPTION",
    BRACKETS: "java.lang.IllegalStateException at Writer.scala:7",
    LOST: "executor 2 was lost (exit code 137)",
    OWN: "pulsar://127.0.0.1:6650 does not answer: start it",
    "nothing of Java": "",
}


@pytest.mark.parametrize("trace", TRACES)
def test_the_innermost_error_is_told_without_a_value(trace):
    assert cause(trace) == TRACES[trace]
    assert SECRET not in cause(trace)


def test_an_error_of_the_driver_is_told_with_its_place():
    try:
        {}[SECRET]
    except KeyError as error:
        told = cause_of(error)
        ours = translated(error)

    assert told.startswith("KeyError at tests/pipeline/test_traces.py:")
    assert isinstance(ours, PipelineFailed)
    assert str(ours) == f"Spark stopped with {told}; run it again"


@pytest.mark.parametrize("kind", [Unreachable, ReceiptsGone])
def test_an_error_of_the_log_in_a_worker_is_the_same_error_here(kind):
    found = translated(Exception(f"Traceback\npushlane.core.errors.{kind.__name__}: why it is so"))

    assert type(found) is kind
    assert str(found) == "why it is so"


@pytest.mark.parametrize("trace", TRACES)
def test_of_a_trace_in_the_log_no_value_is_kept(trace):
    kept = [without_data(line) for line in trace.splitlines()]

    assert SECRET not in "\n".join(kept)
    assert "TOKEN_7" not in "\n".join(kept)
    assert "Writer.scala:12" not in trace or any("Writer.scala:12" in line for line in kept)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (
            "26/11/22 03:45:47 ERROR Executor: Exception in task 0.0 in stage 2.0 (TID 3)",
            "26/11/22 03:45:47 ERROR Executor: Exception in task 0.0 in stage 2.0 (TID 3)",
        ),
        (
            f"26/11/22 03:45:47 ERROR CodeGenerator: failed to compile {SECRET}",
            "26/11/22 03:45:47 ERROR CodeGenerator: …",
        ),
        (
            f"Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE] {SECRET}",
            "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE]: …",
        ),
        ("java.io.EOFException", "java.io.EOFException"),
        (f"KeyError: '{SECRET}'", "KeyError: …"),
        ("Fatal Python error: Segmentation fault", "Fatal Python error: Segmentation fault"),
        ('  File "/app/extent.py", line 45 in of', '  File "/app/extent.py", line 45 in of'),
        (f"    raise ValueError('{SECRET}')", ""),
        (SECRET, ""),
        (
            "pushlane.core.errors.Unreachable: pulsar://127.0.0.1:6650 does not answer",
            "pushlane.core.errors.Unreachable: pulsar://127.0.0.1:6650 does not answer",
        ),
    ],
)
def test_of_a_line_of_the_log_names_and_places_are_kept(line, kept):
    assert without_data(line + "\n") == kept
