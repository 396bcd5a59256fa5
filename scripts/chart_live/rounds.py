"""Plans what is installed and to what it is upgraded."""

from __future__ import annotations

import re
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from pushlane.core.errors import UserError

ROOT = Path(__file__).parent.parent.parent
CHART = "charts/pushlane"


@dataclass(frozen=True)
class Step:
    """A chart's folder and the values it is given."""

    chart: Path
    values: Path


@dataclass(frozen=True)
class Round:
    """What is installed first, and to what it is upgraded."""

    name: str
    first: Step
    then: Step

    def namespace(self, helm: str) -> str:
        """Its own with each Helm, of the letters that Kubernetes takes."""
        return re.sub("[^a-z0-9-]+", "-", f"{helm}-{self.name}".lower())[:63].rstrip("-")


def of_all_values(chart: Path) -> list[Round]:
    """Each values file in the chart's folder `ci`, upgraded to the next one; the last to the first.

    Raises:
        UserError: there is no chart, or it has no such files.
    """
    if not (chart / "Chart.yaml").exists():
        raise UserError(f"{chart} holds no chart: it has no Chart.yaml")
    files = sorted((chart / "ci").glob("*.yaml"))
    if not files:
        raise UserError(f"{chart / 'ci'} has no values files (*.yaml) to try")
    steps = [Step(chart, file) for file in files]
    return [
        Round(first.values.stem.removesuffix("-values"), first, then)
        for first, then in pairwise([*steps, steps[0]])
    ]


def from_an_older(chart: Path, revision: str | None, folder: Path) -> list[Round]:
    """From the chart of a git revision to this one, for each values file that both have.

    Without a revision it is that of the newest tag, and nothing where that has no chart.

    Raises:
        UserError: the revision that was asked for has no chart, or no such file.
    """
    asked = revision or _newest_tag()
    packed = _git("archive", asked, CHART) if asked else None
    if packed is None:
        if revision:
            raise UserError(f"git revision {revision} has no {CHART}")
        return []
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder / "older")  # noqa: S202 - git has made it
    older = folder / "older" / CHART
    files = sorted(file.name for file in (older / "ci").glob("*.yaml"))
    both = [name for name in files if (chart / "ci" / name).exists()]
    if revision and not both:
        raise UserError(
            f"git revision {revision} has no values file in {CHART}/ci that is here, too"
        )
    return [
        Round(
            f"{name.removesuffix('.yaml')}-from-{asked}",
            Step(older, older / "ci" / name),
            Step(chart, chart / "ci" / name),
        )
        for name in both
    ]


def _newest_tag() -> str | None:
    found = _git("describe", "--tags", "--abbrev=0")
    return found.decode().strip() if found else None


def _git(*arguments: str) -> bytes | None:
    """What git printed, None when it refused."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None
