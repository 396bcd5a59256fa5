"""The metrics that every process shows: its version, the room on its disks, what it left out."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pushlane.core.push import FORMAT
from pushlane.settings import Settings
from pushlane.util.metrics import Exporter, Labels, MetricCollector, MetricMaker, ReadMetric
from pushlane.util.tracestate import LeftOut
from pushlane.version import VERSION

Folders = Mapping[str, Path]
"""The folders that a process uses, by the word for each: data, reports, fanout."""

_DIR: Labels = {"dir": ("data", "reports", "fanout")}


def _free(folders: Folders) -> dict[str, float]:
    return {name: free for name, (free, _) in _disks(folders).items()}


def _size(folders: Folders) -> dict[str, float]:
    return {name: size for name, (_, size) in _disks(folders).items()}


def _disks(folders: Folders) -> dict[str, tuple[float, float]]:
    """Return the bytes that are free, and all there are; nothing of a folder that is not there."""
    found = {}
    for name, folder in folders.items():
        with suppress(OSError):
            usage = shutil.disk_usage(folder)
            found[name] = (float(usage.free), float(usage.total))
    return found


_make: MetricMaker[Folders] = MetricMaker(Exporter.EVERY)

PROCESS_METRICS: tuple[ReadMetric[Folders], ...] = (
    _make.gauge(
        "info",
        "1",
        "Always 1: the version, and the highest format of messages that it reads",
        lambda _: {(VERSION, str(FORMAT)): 1.0},
        {"version": (), "format": ()},
    ),
    _make.gauge(
        "disk_free_bytes",
        "bytes",
        "Free space on the disk of a folder that the process uses",
        _free,
        _DIR,
    ),
    _make.gauge("disk_size_bytes", "bytes", "Size of that disk", _size, _DIR),
    _make.counter(
        "tracestates_left_out_total",
        "tracestates",
        "Tracestates that came with a push and do not travel: malformed, over 512 bytes, or "
        "without a traceparent",
        lambda _: LeftOut.count,
    ),
)
"""All metrics of every process, in the order in which they are shown."""


def process_collector(folders: Folders) -> MetricCollector[Folders]:
    """Return what shows these metrics of a process that uses these folders."""
    return MetricCollector(PROCESS_METRICS, lambda: [(folders, ())])


def folders_in_use(settings: Settings) -> dict[str, Path]:
    """Return the folders that these settings name, whether they are there or not."""
    data_dir = settings.data_dir
    return {
        **({"data": data_dir} if settings.capabilities.is_local else {}),
        "reports": settings.reports_dir or data_dir / "reports",
        "fanout": settings.fanout_dir or data_dir / "fanout",
    }
