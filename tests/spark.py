"""A Spark session for tests: one small session a run.

Without Java, or without the extra `pipeline`, a test that asks for it is skipped; in CI (`CI` is
set) it fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pushlane.core.errors import BadInput
from tests.services import run_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2, 1]"  # what fails is to fail at once
DRIVER_MEMORY = "1g"
OPTIONS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.worker.reuse": "true",
}


@pytest.fixture(scope="session")
def java() -> None:
    """For a test that starts Spark by itself, in a process of its own."""
    try:
        from pushlane.pipeline.session import require_java

        require_java()
    except (BadInput, ImportError) as reason:
        if os.environ.get("CI"):
            pytest.fail(f"no Spark here: {reason}", pytrace=False)
        pytest.skip(f"no Spark here: {reason}")


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """What the pipeline's own code finds running, and so uses too."""
    from pushlane.pipeline.session import spark_session

    one = run_dir() / f"spark-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    one.touch(exist_ok=False)  # FileExistsError: another worker of this run has begun one
    with spark_session("tests", MASTER, OPTIONS, driver_memory=DRIVER_MEMORY) as session:
        yield session
