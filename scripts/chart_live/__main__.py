"""Installs, upgrades, rolls back and removes the chart on a real Kubernetes API server.

    python -m scripts.chart_live [--chart FOLDER] [--from REVISION] [--helm NAME]

The first run builds the server from the go.mod beside this file, which takes Go and a while. No pod
runs: CONTRIBUTING.md says what that shows and what it does not.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pushlane.core.errors import PushlaneError, UserError
from scripts.chart_live.api import Object
from scripts.chart_live.build import binaries, kubernetes_version
from scripts.chart_live.cluster import Cluster, cluster
from scripts.chart_live.helm import Helm
from scripts.chart_live.release import Key, Release
from scripts.chart_live.rounds import CHART, ROOT, Round, from_an_older, of_all_values
from scripts.chart_live.scaling import check_left_alone, scale, targets
from scripts.chart_live.workloads import check
from scripts.go_modules import program

HELMS = ("helm-3", "helm-4")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    arguments = _arguments()
    try:
        return _try_all(arguments.chart, arguments.revision, arguments.helm or HELMS)
    except PushlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chart_live", description=__doc__.splitlines()[0])
    parser.add_argument("--chart", type=Path, default=ROOT / CHART, help="the chart's folder")
    parser.add_argument(
        "--from",
        dest="revision",
        metavar="REVISION",
        help="upgrade from the chart of this git revision, too (default: of the newest tag)",
    )
    parser.add_argument(
        "--helm", action="append", choices=HELMS, help="with this one alone (default: with each)"
    )
    return parser.parse_args()


def _try_all(chart: Path, revision: str | None, helms: Sequence[str]) -> int:
    """Every round with every Helm, also after one has failed; the exit code."""
    with tempfile.TemporaryDirectory(prefix="pushlane-chart-live-") as name:
        folder = Path(name)
        rounds = [*of_all_values(chart), *from_an_older(chart, revision, folder)]
        built = {helm: program(helm, _note) for helm in helms}
        programs = binaries(_note)
        began = time.monotonic()
        with cluster(programs, folder, _note) as found:
            _note(f"Kubernetes {kubernetes_version()} is up after {time.monotonic() - began:.1f} s")
            passed = [
                _passes(found, Helm(helm, built[helm], found.kubeconfig, folder), one)
                for helm in helms
                for one in rounds
            ]
    _note(f"{sum(passed)} of {len(passed)} passed")
    return 0 if all(passed) else 1


def _passes(found: Cluster, helm: Helm, one: Round) -> bool:
    began = time.monotonic()
    try:
        told = _try(Release(found.api, helm, one.namespace(helm.name)), one)
    except PushlaneError as error:
        print(f"{helm.name} {one.name}: FAILED: {error}", flush=True)
        return False
    print(f"{helm.name} {one.name}: {told}; {time.monotonic() - began:.1f} s", flush=True)
    return True


def _try(release: Release, one: Round) -> str:
    """Install, upgrade, roll back and uninstall; what there was to see."""
    release.prepare()
    earlier, later = release.rendered(one.first), release.rendered(one.then)
    release.provide([*earlier, *later])
    before = release.inventory()
    release.check_strictly(later)
    release.install(one.first)
    pods = check(release.api, release.namespace, release.objects())
    scaled = scale(release.api, targets(release.api, release.namespace, release.objects()))
    release.upgrade(one.first)
    check_left_alone(release.api, scaled)
    first = release.state()
    release.upgrade(one.then)
    after = check(release.api, release.namespace, release.objects())
    kept = release.kept()
    release.roll_back(1)
    _compare(first, release.state())
    kept |= release.kept()
    release.uninstall()
    release.wait_for_nothing_but(before | kept)
    left = ", ".join(f"{kind} {name}" for kind, _, name in sorted(kept)) or "nothing"
    return (
        f"installed (objects: {len(first)}, pods: {pods}), upgraded ({len(later)}, {after}), "
        f"rolled back, uninstalled (left: {left})"
    )


def _compare(first: dict[Key, Object], now: dict[Key, Object]) -> None:
    """What a rollback brought back is what there was.

    Raises:
        UserError: an object is gone, new or another; the message names it.
    """
    if differ := sorted(key for key in first.keys() | now.keys() if first.get(key) != now.get(key)):
        names = ", ".join(f"{kind} {name}" for kind, _, name in differ)
        raise UserError(f"after helm rollback these are not what they were: {names}")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
