"""What a source yields: numbered rows, and rows that cannot be used with the reason.

A reason names fields and places, never what a row holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from pushlane.lanes.errors import BadInput


class BadRow(msgspec.Struct, frozen=True):
    """Why a row cannot be used. `error` is what a submit that stops at bad rows raises."""

    reason: str
    error: type[BadInput] = BadInput


Row = tuple[int, "Sequence[Any] | BadRow"]


class Wanted(msgspec.Struct, frozen=True):
    """The fields a submit needs of each row. JSON rows may lack the optional ones."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What the values of a row are aligned to."""
        return self.required + self.optional


class RowSource(Protocol):
    """A file of rows. `columns` are those of its header, or the fields of the first JSON row.

    `fixed` says whether every row has just these; `unit` is what rows are counted in.
    """

    name: str
    unit: str
    columns: tuple[str, ...]
    fixed: bool

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        """Every row from the first on, its values aligned to `wanted.names`.

        Raises:
            BadInput: the file cannot be read on.
        """
