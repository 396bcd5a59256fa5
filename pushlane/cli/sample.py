"""`sample` writes a small CSV file to try things out with."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, argument
from pushlane.core.errors import BadInput

_CITIES = (
    ("Berlin", "Europe/Berlin"),
    ("Lagos", "Africa/Lagos"),
    ("São Paulo", "America/Sao_Paulo"),
    ("Tokyo", "Asia/Tokyo"),
)


def sample(
    flags: Flags,
    file: Annotated[Path, argument("FILE", "The CSV file to write.")],
    rows: Annotated[int, typer.Option(min=1, max=10_000_000, help="Recipients in it.")] = 20,
) -> None:
    """Write a CSV file of made-up recipients, to try `submit` with.

    Its columns are recipient, city and zone. For example:
    pushlane sample people.csv && pushlane submit people.csv --level high --title 'Hi {city}'
    """
    try:
        with file.open("x", newline="", encoding="utf-8") as out:
            table = csv.writer(out)
            table.writerow(("recipient", "city", "zone"))
            for number in range(rows):
                table.writerow((f"device-{number + 1}", *_CITIES[number % len(_CITIES)]))
    except FileExistsError:
        raise BadInput(f"{file} exists already; give another name, or remove it") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    note(f"{rows:,} recipients in {file}: columns recipient, city, zone")
