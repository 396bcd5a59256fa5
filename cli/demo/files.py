"""Makes up the demo's audiences, as the Parquet and CSV files that a user would bring."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from pushlane.lanes.task import Level

LARGE = 100_000
MIDDLE = 20_000
LATE = 1_000


@dataclass(frozen=True)
class Campaign:
    """One task of the demo."""

    name: str
    level: Level
    pushes: int
    suffix: str
    title: str
    body: str

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}{self.suffix}"


BACKLOG = (
    Campaign("flash-sale", Level.HIGH, LARGE, ".parquet", "Flash sale", "{name}, it ends tonight"),
    Campaign("digest", Level.MEDIUM, MIDDLE, ".csv", "Your week", "{name}, 5 stories for you"),
    Campaign("friends", Level.MEDIUM, MIDDLE, ".csv", "New friends", "{name}, 3 people follow you"),
    Campaign("newsletter", Level.LOW, LARGE, ".parquet", "Newsletter", "Hello {name}"),
)
LATE_TASK = Campaign(
    "security-alert", Level.HIGH, LATE, ".csv", "Security", "{name}, was this you?"
)


def write_all(folder: Path) -> None:
    for campaign in (*BACKLOG, LATE_TASK):
        write = _write_parquet if campaign.suffix == ".parquet" else _write_csv
        write(campaign.path(folder), campaign)


def _rows(campaign: Campaign) -> tuple[list[str], list[str]]:
    numbers = range(1, campaign.pushes + 1)
    return [f"device-{n}" for n in numbers], [f"user {n}" for n in numbers]


def _write_csv(path: Path, campaign: Campaign) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recipient", "name"])
        writer.writerows(zip(*_rows(campaign), strict=True))


def _write_parquet(path: Path, campaign: Campaign) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    recipients, names = _rows(campaign)
    pq.write_table(pa.table({"recipient": recipients, "name": names}), path)
