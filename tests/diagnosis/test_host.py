"""A host that is set up badly in one way, by files below a folder of the test's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pushlane.diagnosis.host import CHECKS, Host
from pushlane.settings import Settings
from pushlane.util.checks import Finding, examined

_SOUND = {
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
    "proc/sys/vm/swappiness": "1",
    "proc/swaps": "Filename Type Size Used Priority",
    "proc/self/mounts": "/dev/sda1 / ext4 rw 0 0",
}
_FAR = Settings(broker="pulsar://broker:6650", redis_url="redis://redis:6379/0")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def _host(tmp_path: Path, settings: Settings, files: dict[str, str] | None = None, **more) -> Host:
    for name, text in (_SOUND | (files or {})).items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    given: dict[str, Any] = {"python": "3.11.7", "open_files": 65_536, "clock_state": lambda: 0}
    return Host(settings, tmp_path / "root", **given | more)


def _found(host: Host) -> list[Finding]:
    return examined(CHECKS, host).findings


def test_a_host_that_is_set_up_well_passes_each_check(tmp_path: Path, settings: Settings) -> None:
    result = examined(CHECKS, _host(tmp_path, settings))

    assert (result.findings, result.skipped) == ([], {})


@pytest.mark.parametrize(
    ("check", "severity", "files", "more"),
    [
        ("python-version", "error", {}, {"python": "3.10.2"}),
        ("python-version", "warning", {}, {"python": "3.15.0"}),
        (
            "huge-pages",
            "warning",
            {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"},
            {},
        ),
        (
            "huge-pages",
            "warning",
            {"sys/kernel/mm/transparent_hugepage/defrag": "[always] defer madvise never"},
            {},
        ),
        (
            "swappiness",
            "warning",
            {"proc/sys/vm/swappiness": "60", "proc/swaps": "Filename\n/dev/sdb partition 1 0 -2"},
            {},
        ),
        ("open-files", "warning", {}, {"open_files": 1024}),
        ("time-sync", "warning", {}, {"clock_state": lambda: 5}),
    ],
)
def test_one_thing_that_is_wrong(
    tmp_path: Path, settings: Settings, check: str, severity: str, files, more
) -> None:
    [finding] = _found(_host(tmp_path, settings, files, **more))

    assert (finding.check, finding.severity) == (check, severity)
    assert finding.mend


def test_a_store_on_a_disk_that_turns(tmp_path: Path, settings: Settings) -> None:
    device = tmp_path.stat().st_dev
    place = f"sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/rotational"

    [finding] = _found(_host(tmp_path, settings, {place: "1"}))

    assert (finding.check, finding.severity) == ("turning-disk", "note")
    assert _found(_host(tmp_path, settings, {place: "0"})) == []


def test_huge_pages_stay_off_after_a_reboot(tmp_path: Path, settings: Settings) -> None:
    on = {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}

    [finding] = _found(_host(tmp_path, settings, on))

    assert finding.mend.startswith(
        "echo 'w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise' | sudo tee "
        "/etc/tmpfiles.d/huge-pages-enabled.conf"
    )


def test_swappiness_is_nothing_without_swap(tmp_path: Path, settings: Settings) -> None:
    assert _found(_host(tmp_path, settings, {"proc/sys/vm/swappiness": "60"})) == []


def test_without_limit_files_are_enough(tmp_path: Path, settings: Settings) -> None:
    assert _found(_host(tmp_path, settings, open_files=-1)) == []


def test_huge_pages_are_a_note_where_no_service_runs(tmp_path: Path) -> None:
    on = {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}
    settings = _FAR.but(data_dir=tmp_path / "data")

    assert [one.severity for one in _found(_host(tmp_path, settings, on))] == ["note"]


def test_what_a_system_does_not_tell_is_skipped(tmp_path: Path, settings: Settings) -> None:
    host = _host(tmp_path, settings)
    for name in _SOUND:
        (tmp_path / "root" / name).unlink()

    result = examined(CHECKS, host)

    assert result.findings == []
    assert set(result.skipped) == {"huge-pages", "swappiness", "file-system"}


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        ("/dev/sda1 / ext4 rw 0 0\nsrv:/x {data} nfs4 rw 0 0", ["error"]),
        ("srv:/x / nfs rw 0 0\n/dev/sdb1 {data} ext4 rw 0 0", []),
        ("/dev/sda1 / ext4 rw 0 0\nsrv:/x {data}x cifs rw 0 0", []),
    ],
)
def test_a_store_on_a_file_system_without_locks(
    tmp_path: Path, settings: Settings, mounts: str, found: list[str]
) -> None:
    settings.data_dir.mkdir()
    files = {"proc/self/mounts": mounts.format(data=settings.data_dir)}

    assert [one.severity for one in _found(_host(tmp_path, settings, files))] == found
    far = _FAR.but(data_dir=settings.data_dir)
    assert _found(_host(tmp_path, far, files)) == []


@pytest.mark.parametrize(
    ("free_gib", "size_gib", "severities"),
    [
        (50, 100, []),
        (0.5, 2, []),
        (0.5, 20, ["warning"]),
        (0.05, 0.4, ["error"]),
        (1, 100, ["error"]),
    ],
)
def test_room_on_the_disk(
    tmp_path: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    free_gib: float,
    size_gib: float,
    severities: list[str],
) -> None:
    real = os.statvfs(tmp_path)
    fields = list(real)
    block = real.f_frsize
    fields[2], fields[4] = int(size_gib * 1024**3 / block), int(free_gib * 1024**3 / block)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))

    assert [one.severity for one in _found(_host(tmp_path, settings))] == severities


def test_a_folder_that_cannot_be_written_to(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != reports)  # root may all

    [finding] = _found(_host(tmp_path, settings.but(reports_dir=reports)))

    assert finding.what == f"reports_dir {reports} cannot be written to"
    assert finding.severity == "error"


def test_a_folder_below_a_file_cannot_be(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "file"
    file.touch()

    [finding] = _found(_host(tmp_path, settings.but(reports_dir=file / "reports")))

    assert finding.what == f"reports_dir {file / 'reports'}: {file} is not a folder"
    assert finding.mend == "set reports_dir to another"


def test_a_folder_that_is_not_there_is_made_and_the_one_above_it_left_to_its_owner(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)  # root may all
    settings.data_dir.mkdir(exist_ok=True)
    reports = tmp_path / "my reports"

    [finding] = _found(_host(tmp_path, settings.but(reports_dir=reports)))

    assert finding.mend == f"sudo install -d -o {os.getuid()} '{reports}'"
