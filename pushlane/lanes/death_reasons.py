"""Of what the pushes of a task died.

A reason is a short class like `HTTP 404`, never what a sink or a push says in detail.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MOST_REASONS = 20
"""So many reasons of a task are told apart; all behind them are `OTHER`."""

OTHER = "other"
DEAD_ADDRESS = "dead address"
"""The reason of a push whose address is dead: about its recipient, so not counted as failed."""


class Deaths(msgspec.Struct, frozen=True):
    """How many distinct seqs of a task died of each reason, the commonest first.

    At most `MOST_REASONS` are told apart. What an older version has counted has no reason: it is
    in `Progress.dead` alone.
    """

    task_id: str
    by_reason: Mapping[str, int] = {}

    @staticmethod
    def of(task_id: str, by_reason: Mapping[str, int]) -> Deaths:
        """Return the deaths with the commonest reason first."""
        commonest = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))
        return Deaths(task_id, dict(commonest))
