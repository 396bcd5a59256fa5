"""One Spark session for one piece of work: on this machine, or on the cluster that a master names.

Finds Java before Spark fails without it, gives the workers this Python, and keeps Spark quiet.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lanes.errors import BadInput
from pipeline.errors import PipelineFailed

MASTER = "local[*]"
_JAVA = 17
_HOW_TO_GET_JAVA = (
    "install a Java runtime, version 17 or newer (Debian: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17), or point JAVA_HOME at one"
)
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def spark_session(
    name: str, master: str = MASTER, options: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session, stopped at the end. `options` are Spark's own, and win over ours.

    Raises:
        BadInput: there is no Java that Spark can run on.
        PipelineFailed: Spark does not start, or the master does not answer.
    """
    _require_java()
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(master)
    settings = {**_ALWAYS, **(_LOCAL if _is_local(master) else {}), **(options or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # py4j's errors have no common base
        raise PipelineFailed(f"Spark does not start on master {master!r}") from error
    session.sparkContext.setLogLevel("OFF")  # what it logs of an error may quote rows
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield session
    finally:
        session.stop()


def _is_local(master: str) -> bool:
    """A cluster on this machine's own address talks over it too."""
    return master.startswith("local") or "127.0.0.1" in master


def _require_java() -> None:
    found = _java_version(_java())
    if found < _JAVA:
        what = f"Java {found} is too old for Spark" if found else "Spark needs Java; there is none"
        raise BadInput(f"{what}: {_HOW_TO_GET_JAVA}")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    inside = str(Path(home, "bin", "java")) if home else ""
    return inside if inside and os.access(inside, os.X_OK) else shutil.which("java") or ""


def _java_version(java: str) -> int:
    """The major version, 0 for none."""
    if not java:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0
