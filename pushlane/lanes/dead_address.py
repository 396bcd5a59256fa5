"""A dead address: one that a sink's provider will never deliver to again, such as an old token.

Neither value holds the address itself: only its keyed hash (`lanes.recipient_hash`) and, if the
settings have a key, its encrypted text (`model.address_seal`).
"""

from __future__ import annotations

from typing import NamedTuple

REASON_LONGEST = 200
_SIGNS = 2**64


class AddressDeath(NamedTuple):
    """The end of an address, as a sink heard of it from a push of `app`.

    `died_at_ms` is when its provider found it dead, or else when that push was sent. `sealed` is
    empty when no key is set.
    """

    hash: int
    died_at_ms: int
    reason: str
    app: str = ""
    sealed: str = ""


class DeadAddress(NamedTuple):
    """The record of a dead address at a sink, kept since `recorded_at_ms` (Unix ms)."""

    sink: str
    hash: int
    recorded_at_ms: int
    died_at_ms: int
    reason: str
    app: str
    sealed: str

    @property
    def fingerprint(self) -> str:
        """The hash as a text, by which the address is told from others and not known."""
        return f"{self.hash % _SIGNS:016x}"


class DeadAddressQuery(NamedTuple):
    """The records that are wanted: those made since then, of one sink or of all."""

    since_ms: int = 0
    sink: str = ""
    newest_first: bool = False


class DeadAddressPage(NamedTuple):
    """Some of the records. `after` is where the next page begins, 0 on the last one."""

    addresses: list[DeadAddress]
    after: int = 0
