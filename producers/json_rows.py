"""Reads rows of a JSON Lines file, one object a line, which may differ in their fields."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pushlane.producers.rows import BadRow, Row, Wanted
from pushlane.producers.text_lines import bounded_lines


class JsonRows:
    unit = "line"
    fixed = False

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        first = next(self._objects(), (0, None))[1]
        self.columns = tuple(first) if isinstance(first, dict) else ()

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        required, optional = wanted.required, wanted.optional
        for line, found in self._objects():
            if isinstance(found, BadRow):
                yield line, found
                continue
            try:
                values = [found[field] for field in required]
            except KeyError as missing:
                yield line, BadRow(f"has no field {missing.args[0]!r}")
                continue
            if optional:
                values += map(found.get, optional)
            yield line, values

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with self._path.open("rb") as file:
            for line, text in enumerate(bounded_lines(file.readline, self.name), start=1):
                if line == 1:
                    text = text.removeprefix(codecs.BOM_UTF8)
                try:
                    yield line, decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    if not text.isspace():
                        yield line, BadRow("is not one JSON object")
