"""The values that sources yield: numbered rows, and reasons for rows that cannot be used.

A reason names fields and places, never what a row holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from pushlane.core.errors import BadInput


class BadRow(msgspec.Struct, frozen=True):
    """The reason why a row cannot be used; a submit that stops at bad rows raises `error`.

    `is_empty` says that its push has nothing in it, which a silent task may send.
    """

    reason: str
    error: type[BadInput] = BadInput
    is_empty: bool = False


class Unusable(Exception):
    """Says while a row is encoded that it cannot be used, and why."""

    def __init__(self, row: BadRow) -> None:
        super().__init__(row.reason)
        self.row = row


Row = tuple[int, "Sequence[Any] | BadRow"]


class Wanted(msgspec.Struct, frozen=True):
    """The fields a submit needs of each row. JSON rows may lack the optional ones."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in the order of a row's values."""
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
        """Yield every row from the first on, its values in the order of `wanted.names`.

        Raises:
            BadInput: the file cannot be read on.
        """
