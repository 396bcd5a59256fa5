"""Makes an audience to try a fan-out on: invented devices in Parquet files, the same for each seed.

Like a real one it has rows without a recipient and recipients that come twice. Beside it goes a
CSV file of recipients who want no pushes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

ROWS_A_FILE = 250_000
ROWS_A_GROUP = 50_000
WITHOUT_RECIPIENT = 0.001
TWICE = 0.005
SUPPRESSED = 0.01

COLOURS = ["Amber", "Ashen", "Azure", "Cobalt", "Coral", "Ivory", "Jade", "Olive", "Ruby", "Teal"]
ANIMALS = ["Badger", "Bison", "Crane", "Gecko", "Heron", "Lemur", "Lynx", "Otter", "Owl", "Wren"]
NAMES = [f"{colour} {animal}" for colour in COLOURS for animal in ANIMALS]
PLACES = [  # country, zone, share
    ("US", "America/New_York", 0.18),
    ("US", "America/Los_Angeles", 0.12),
    ("BR", "America/Sao_Paulo", 0.10),
    ("DE", "Europe/Berlin", 0.15),
    ("GB", "Europe/London", 0.10),
    ("IN", "Asia/Kolkata", 0.20),
    ("JP", "Asia/Tokyo", 0.10),
    ("AU", "Australia/Sydney", 0.05),
]
PLATFORMS = (["android", "ios", "web"], [0.62, 0.33, 0.05])
VERSIONS = (["4.0.1", "4.1.0", "4.2.0", "4.2.1"], [0.10, 0.25, 0.40, 0.25])
PLANS = (["free", "plus", "pro"], [0.80, 0.15, 0.05])
EXPERIMENTS = (["control", "new-tone"], [0.5, 0.5])


def make_rows(count: int, first: int, chance: np.random.Generator) -> pa.Table:
    """So many rows of the audience; devices are numbered from `first`."""
    places = chance.choice(len(PLACES), count, p=[share for *_, share in PLACES])
    return pa.table(
        {
            "recipient": recipients(count, first, chance),
            "name": pick(NAMES, chance.integers(len(NAMES), size=count)),
            "country": pick([country for country, *_ in PLACES], places),
            "zone": pick([zone for _, zone, _ in PLACES], places),
            "platform": weighed(PLATFORMS, count, chance),
            "app_version": weighed(VERSIONS, count, chance),
            "plan": weighed(PLANS, count, chance),
            "experiment": weighed(EXPERIMENTS, count, chance),
            "last_seen_days": pa.array(chance.geometric(0.05, count) - 1, pa.int32()),
        }
    )


def recipients(count: int, first: int, chance: np.random.Generator) -> pa.Array:
    """Tokens of devices: a few missing, a few the same as the one before."""
    numbers = np.arange(first, first + count)
    again = chance.random(count) < TWICE
    again[0] = False
    numbers[again] -= 1
    missing = pa.array(chance.random(count) < WITHOUT_RECIPIENT)
    tokens = pc.binary_join_element_wise(
        "device", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 10, "0"), "-"
    )
    return pc.if_else(missing, pa.scalar(None, pa.string()), tokens)


def pick(words: list[str], places: np.ndarray) -> pa.Array:
    return pa.array(words).take(pa.array(places))


def weighed(
    words: tuple[list[str], list[float]], count: int, chance: np.random.Generator
) -> pa.Array:
    return pick(words[0], chance.choice(len(words[0]), count, p=words[1]))


def write(rows: int, folder: Path, seed: int) -> None:
    """`audience/*.parquet` and `suppressed.csv` in the folder."""
    chance = np.random.default_rng(seed)
    audience = folder / "audience"
    audience.mkdir(parents=True, exist_ok=True)
    for old in audience.glob("*.parquet"):
        old.unlink()
    for number, first in enumerate(range(0, rows, ROWS_A_FILE)):
        table = make_rows(min(ROWS_A_FILE, rows - first), first, chance)
        pq.write_table(table, audience / f"part-{number:03}.parquet", row_group_size=ROWS_A_GROUP)
    wanting_none = np.flatnonzero(chance.random(rows) < SUPPRESSED)
    tokens = pa.array([f"device-{number:010}" for number in wanting_none], pa.string())
    pyarrow.csv.write_csv(pa.table({"recipient": tokens}), folder / "suppressed.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("data"), metavar="DIR")
    given = parser.parse_args()
    if given.rows < 1:
        parser.error(f"--rows {given.rows}: at least 1")
    began_s = time.monotonic()
    write(given.rows, given.out, given.seed)
    print(f"{given.rows:,} rows in {given.out / 'audience'}, {time.monotonic() - began_s:.1f} s")


if __name__ == "__main__":
    main()
