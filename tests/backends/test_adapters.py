"""The adapter is chosen by the setting `broker`, from one table that another can be added to."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from pushlane.backends import backend as backend_module
from pushlane.backends.backend import connect, connect_receipts
from pushlane.backends.embedded import connect as connect_embedded
from pushlane.backends.embedded import connect_receipts as connect_embedded_receipts
from pushlane.core.errors import BadInput, Unreachable
from pushlane.settings import Settings
from pushlane.settings.adapters import ADAPTERS, Adapter, Capabilities
from pushlane.util.errors import Denied
from tests.command import make_store


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that a third adapter, of the scheme `fake`, was asked to open."""
    urls: list[str] = []
    embedded = Settings(data_dir=tmp_path)

    def noted(open_embedded):
        @asynccontextmanager
        async def open_fake(settings: Settings) -> AsyncIterator[object]:
            urls.append(settings.broker)
            async with open_embedded(embedded) as found:
                yield found

        return open_fake

    package = ModuleType("fake_adapter")
    package.connect = noted(connect_embedded)
    package.connect_receipts = noted(connect_embedded_receipts)
    monkeypatch.setitem(sys.modules, "fake_adapter", package)
    monkeypatch.setitem(
        ADAPTERS, "fake://", Adapter("fake_adapter", Capabilities(retains_freely=True))
    )
    return urls


async def test_one_entry_makes_a_third_broker(opened: list[str]) -> None:
    settings = Settings(broker="fake://there")

    async with connect(settings) as backend, connect_receipts(settings) as receipts:
        assert await backend.broker.lanes() == []
        assert await receipts.lag(await receipts.first()) == 0

    assert opened == ["fake://there"] * 2
    assert settings.capabilities == Capabilities(retains_freely=True)
    assert settings.location == "fake://there"
    assert not settings.is_store_missing


@pytest.mark.parametrize(
    "broker", ["", "pulsar", "pulsar:/x", "embedded://", "embedded://x", "fake://x", "http://x"]
)
def test_a_broker_of_no_adapter_is_refused(broker: str) -> None:
    with pytest.raises(BadInput, match=r"setting broker=.*: use `embedded` or a URL like pulsar:"):
        Settings(broker=broker)


def test_the_embedded_store_is_a_folder_on_this_machine(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "store")
    assert settings.location == str(tmp_path / "store")
    assert settings.is_store_missing

    make_store(tmp_path / "store")
    assert not settings.is_store_missing


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What each attempt to open the adapter of the scheme `late` comes to, None for its success."""
    coming: list[Exception | None] = []

    @asynccontextmanager
    async def open_late(settings: Settings) -> AsyncIterator[object]:
        if (failure := coming.pop(0)) is not None:
            raise failure
        async with connect_embedded(Settings(data_dir=tmp_path)) as found:
            yield found

    package = ModuleType("late_adapter")
    package.connect = package.connect_receipts = open_late
    monkeypatch.setitem(sys.modules, "late_adapter", package)
    monkeypatch.setitem(ADAPTERS, "late://", Adapter("late_adapter", Capabilities()))
    monkeypatch.setattr(backend_module, "_ASK_AGAIN_S", 0.0)
    return coming


@pytest.mark.parametrize("opened_by", [connect, connect_receipts])
async def test_a_service_that_does_not_answer_yet_is_waited_for(
    answers: list[Exception | None], opened_by
) -> None:
    answers += [Unreachable("away"), Unreachable("away"), None]

    async with opened_by(Settings(broker="late://here", start_patience_s=600)):
        assert not answers


async def test_nothing_is_waited_for_unless_told_so(answers: list[Exception | None]) -> None:
    answers += [Unreachable("away"), None]

    with pytest.raises(Unreachable):
        async with connect(Settings(broker="late://here")):
            pass

    assert answers == [None]


async def test_a_service_that_refuses_us_is_not_asked_again(
    answers: list[Exception | None],
) -> None:
    answers += [Denied("no"), None]

    with pytest.raises(Denied):
        async with connect(Settings(broker="late://here", start_patience_s=600)):
            pass

    assert answers == [None]
