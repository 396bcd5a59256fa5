"""`sample` writes a small CSV file to try things out with."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import IO, Annotated, cast

import typer

from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, argument, option
from pushlane.core.errors import BadInput
from pushlane.producers.text_file import delimiter_of, encoding_of

_CITIES = (
    ("Berlin", "Europe/Berlin"),
    ("Lagos", "Africa/Lagos"),
    ("São Paulo", "America/Sao_Paulo"),
    ("Tokyo", "Asia/Tokyo"),
)


def sample(
    flags: Flags,
    file: Annotated[Path, argument("FILE", "The CSV file to write; packed if it ends in .gz.")],
    rows: Annotated[int, typer.Option(min=1, max=10_000_000, help="Recipients in it.")] = 20,
    delimiter: Annotated[str, option("';'|tab", "Separator of the columns.")] = ",",
    encoding: Annotated[str, option("NAME", "Such as cp1252 or utf-16.")] = "utf-8",
) -> None:
    """Write a CSV file of made-up recipients, to try `submit` with.

    Its columns are recipient, city and zone. For example:
    pushlane sample people.csv && pushlane submit people.csv --level high --title 'Hi {city}'
    """
    mark = delimiter_of(delimiter)
    try:
        with _new(file, encoding_of(encoding)) as out:
            table = csv.writer(out, delimiter=mark)
            table.writerow(("recipient", "city", "zone"))
            for number in range(rows):
                table.writerow((f"device-{number + 1}", *_CITIES[number % len(_CITIES)]))
    except FileExistsError:
        raise BadInput(f"{file} exists already; give another name, or remove it") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    note(f"{rows:,} recipients in {file}: columns recipient, city, zone")


def _new(file: Path, encoding: str) -> IO[str]:
    """Open a file that is not there yet. Raises BadInput if the encoding lacks a city's letters."""
    try:
        "".join(city for city, _ in _CITIES).encode(encoding)
    except UnicodeEncodeError as error:
        raise BadInput(f"encoding {encoding!r} has no ã, as in São Paulo; give another") from error
    if file.suffix.lower() == ".gz":
        return cast("IO[str]", gzip.open(file, "xt", encoding=encoding, newline=""))
    return file.open("x", encoding=encoding, newline="")
