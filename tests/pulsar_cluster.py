"""A Pulsar cluster for tests: brokers and bookies to kill, and topics to move."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.cluster import PulsarCluster, pulsar_cluster
from pushlane.core.errors import UserError
from tests.processes import Pushlane


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    """One for all tests of a file: what a test takes from it, it gives back."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    try:
        with pulsar_cluster(folder, print) as running:
            yield running
    except UserError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


@pytest.fixture
def on_cluster(cluster: PulsarCluster, tmp_path: Path) -> Iterator[Pushlane]:
    """Commands on a namespace of the test's own."""
    settings = {
        "broker": cluster.broker_url,
        "admin_url": cluster.admin_url,
        "redis_url": cluster.redis_url,
        "namespace": f"pushlane/t-{uuid.uuid4().hex[:12]}",
        "pool_lanes": "1",
    }
    commands = Pushlane(tmp_path, settings)
    yield commands
    commands.end_all()
