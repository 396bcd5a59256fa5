"""Makes up the demo's audiences, as the Parquet and CSV files that a user would bring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pushlane.lanes.task import Level

APP, MAIL = "app", "mail"
"""The demo's sinks."""

TAGS = ("task", "seq", "level")
"""The columns by which the emulator of a provider, told nothing else, knows a push again."""

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
    sink: str = APP

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}{self.suffix}"


BACKLOG = (
    Campaign("flash-sale", Level.HIGH, LARGE, ".parquet", "Flash sale", "{name}, it ends tonight"),
    Campaign("digest", Level.MEDIUM, MIDDLE, ".csv", "Your week", "{name}, 5 stories for you"),
    Campaign("friends", Level.MEDIUM, MIDDLE, ".csv", "New friends", "{name}, 3 people follow you"),
    Campaign("newsletter", Level.LOW, LARGE, ".parquet", "Newsletter", "Hello {name}"),
)
TO_MAIL = (
    Campaign("invoices", Level.HIGH, 8_000, ".csv", "Invoice", "{name}, it is due", MAIL),
    Campaign("tips", Level.LOW, 4_000, ".csv", "Tips", "{name}, did you know?", MAIL),
)
LATE_TASK = Campaign(
    "security-alert", Level.HIGH, LATE, ".csv", "Security", "{name}, was this you?"
)

ALL = (*BACKLOG, *TO_MAIL, LATE_TASK)


def write_all(folder: Path, with_tags: bool) -> None:
    import pyarrow as pa
    from pyarrow.csv import write_csv
    from pyarrow.parquet import write_table

    for campaign in ALL:
        numbers = range(1, campaign.pushes + 1)
        columns: dict[str, list[Any]] = {
            "recipient": [f"device-{n}" for n in numbers],
            "name": [f"user {n}" for n in numbers],
        }
        if with_tags:
            level = campaign.level.value
            tags = ([campaign.name] * len(numbers), list(numbers), [level] * len(numbers))
            columns |= dict(zip(TAGS, tags, strict=True))
        write = write_table if campaign.suffix == ".parquet" else write_csv
        write(pa.table(columns), campaign.path(folder))
