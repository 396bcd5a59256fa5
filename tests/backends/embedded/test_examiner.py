"""An embedded store that is damaged, large, or not there: it is looked at, and never made."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.backends import backend
from pushlane.backends.embedded import examiner
from pushlane.backends.embedded.database import StoreModes
from pushlane.backends.embedded.examiner import CHECKS, StoreFacts, inspect
from pushlane.backends.formats import set_min_format
from pushlane.backends.operations import NO_STORE, Bounds
from pushlane.core.push import FORMAT
from pushlane.model.presence import Process
from pushlane.settings import STORE_FILE, Settings

_AT_ONCE = Bounds(look_again_s=0.0)
PRIVATE = StoreModes(0o700, {STORE_FILE: 0o600})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


async def _make(settings: Settings) -> Path:
    async with backend.connect(settings) as opened:
        await set_min_format(opened.documents, opened.presence, FORMAT)
        process = Process(id="a1", kind="dispatcher", pid=7, version="0.1.0")
        await opened.presence.announce(process, 60)
    return settings.data_dir / STORE_FILE


async def test_a_folder_may_be_named_from_the_one_we_are_in(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _make(settings)
    monkeypatch.chdir(tmp_path)

    found = await inspect(settings.but(data_dir=Path("data")), _AT_ONCE)

    assert "store-integrity" in found.examination.passed


async def test_a_store_that_is_not_there_is_not_made(settings: Settings) -> None:
    found = await inspect(settings, _AT_ONCE)

    [finding] = found.examination.findings
    assert (finding.check, finding.severity) == (NO_STORE, "error")
    assert str(settings.data_dir) in finding.what
    assert "there is no store in" in found.examination.skipped["store-integrity"]
    assert not settings.data_dir.exists()


async def test_a_sound_store_says_who_is_live_and_what_may_be_written(settings: Settings) -> None:
    await _make(settings)

    found = await inspect(settings, _AT_ONCE)

    assert found.examination.passed == [check.name for check in CHECKS]
    assert [one.id for one in found.live.processes.get()] == ["a1"]
    assert found.live.later.get() == found.live.processes.get()
    assert found.live.min_format.get() == FORMAT


async def test_a_damaged_store_is_an_error(settings: Settings) -> None:
    path = await _make(settings)
    content = bytearray(path.read_bytes())
    content[8192:12288] = b"\xff" * 4096
    path.write_bytes(content)

    [finding] = (await inspect(settings, _AT_ONCE)).examination.findings

    assert (finding.check, finding.severity) == ("store-integrity", "error")
    assert "is damaged" in finding.what


async def test_what_is_no_database_is_said_to_be_none(settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / STORE_FILE).write_bytes(b"this is no database, but a text" * 200)

    finding, *_ = (await inspect(settings, _AT_ONCE)).examination.findings

    assert finding.severity == "error"


async def test_a_check_that_takes_too_long_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _make(settings)
    monkeypatch.setattr(examiner, "CHECK_S", -1.0)
    monkeypatch.setattr(examiner, "_STEPS", 1)

    [finding] = (await inspect(settings, _AT_ONCE)).examination.findings

    assert (finding.check, finding.severity) == ("store-integrity", "note")


async def test_a_store_that_others_may_read_is_told(settings: Settings) -> None:
    path = await _make(settings)
    path.chmod(0o644)

    [finding] = (await inspect(settings, _AT_ONCE)).examination.findings

    assert (finding.check, finding.severity) == ("store-private", "warning")
    assert f"chmod 600 {path}" in finding.mend


def test_a_large_write_ahead_log(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).touch()
    facts = StoreFacts(
        Settings(data_dir=tmp_path),
        examiner.Fact("ok"),
        examiner.Fact(PRIVATE),
        0,
        examiner.LARGE_WAL,
    )

    [finding] = examiner.examined(CHECKS, facts).findings

    assert (finding.check, finding.what) == ("store-wal", "the write-ahead log has 256 MiB")
