"""Every command that runs on tells of an outage, lives through it, and is ready again after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.faults.services import Services, own_services
from pushlane.core.errors import UserError
from tests.probed import READY, Probed
from tests.processes import Pushlane

pytest.importorskip("pyspark")
pytest.importorskip("cronsim")

COMMANDS = {
    "dispatch": ("dispatch", "--sink", "null"),
    "workers": ("dispatch", "--sink", "null", "--workers", "2"),
    "rules": ("rules", "serve"),
    "alerts": ("alerts", "run", "--every", "1s"),
    "receipts": ("pipeline", "run"),
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    try:
        with own_services(tmp_path_factory.mktemp("health"), {}) as running:
            yield running
    except UserError as reason:
        pytest.skip(str(reason))


@pytest.mark.pulsar
def test_an_outage_is_told_and_ends_nobody(services: Services, tmp_path: Path) -> None:
    urls = services.urls
    settings = {"broker": urls.broker, "admin_url": urls.admin, "redis_url": urls.redis}
    pushlane = Pushlane(tmp_path, {**settings, "data_dir": str(tmp_path / "store")})
    try:
        running = {name: Probed(pushlane, *words) for name, words in COMMANDS.items()}
        for one in running.values():
            one.until_ready()

        for path in services.broker_path:
            path.cut()
        for name, one in running.items():
            service = "log of receipts" if name == "receipts" else "broker"
            one.until_missing(rf"{service}: not reached since \d+ s")
        for path in services.broker_path:
            path.heal()
        for one in running.values():
            one.until_ready()

        services.redis_path.cut()
        for name in running.keys() - {"receipts"}:
            running[name].until_missing(r"registry: not reached since \d+ s")
        assert running["receipts"].get("/readyz") == READY
        services.redis_path.heal()
        for one in running.values():
            one.until_ready()

        assert [one.process.stop() for one in running.values()] == [0] * len(running)
    finally:
        pushlane.end_all()
