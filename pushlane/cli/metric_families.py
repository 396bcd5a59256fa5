"""Puts metrics of several origins together, so that each family is shown once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

log = logging.getLogger("pushlane.health")

_WITH_CREATED = ("counter", "histogram", "summary")


class ProcessMetrics(Collector):
    """All metrics of a process: ours, and those of the client's own registry.

    A processor registers its own there, and the client those of the process and of Python.
    """

    def __init__(self, ours: CollectorRegistry) -> None:
        self._ours = ours
        self._is_told = False

    def collect(self) -> Iterable[Metric]:
        return together([*self._ours.collect(), *self._others()])

    def _others(self) -> list[Metric]:
        try:
            return list(REGISTRY.collect())
        except Exception as error:  # noqa: BLE001 - a collector of a processor: ours are still shown
            if not self._is_told:
                self._is_told = True
                text = (
                    "a metric that is none of ours cannot be read (%s), so none of these is shown"
                )
                log.warning(text, type(error).__name__, extra={"action": "metrics_failed"})
            return []


def together(families: Iterable[Metric]) -> list[Metric]:
    """Return each family once, with the samples of all of its name, but not those of another type.

    Times of creation, which are a family of their own in the plain format, are left out as well.
    """
    found: dict[str, Metric] = {}
    for family in families:
        known = found.setdefault(family.name, family)
        if known is not family and known.type == family.type:
            known.samples.extend(family.samples)
    return [one for one in found.values() if not _is_created(one.name, found)]


def of_worker(worker: str, families: Iterable[Metric]) -> Iterator[Metric]:
    """Yield the families with the worker as a label of each sample."""
    for family in families:
        family.samples = [
            sample._replace(labels={**_exported(sample.labels), "worker": worker})
            for sample in family.samples
        ]
        yield family


def _exported(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels with one `worker` of their own renamed, as Prometheus does."""
    return {("exported_worker" if key == "worker" else key): text for key, text in labels.items()}


def _is_created(name: str, found: dict[str, Metric]) -> bool:
    of = found.get(name.removesuffix("_created"))
    return name.endswith("_created") and of is not None and of.type in _WITH_CREATED
