"""What a claim costs on the embedded ledger."""

from __future__ import annotations

from pathlib import Path

from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.ledger import EmbeddedLedger
from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.push import Push

WINDOW_S = 600.0
LONG_S = 600


class Steps:
    """How much work SQLite had, in thousands of its instructions."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def pushes(first: int, last: int) -> list[Push]:
    return [Push("t", seq, "nobody@example.com") for seq in range(first, last + 1)]


async def test_a_claim_of_what_came_again_does_not_look_at_all_that_is_remembered(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path)
    await database.open()
    ledger = EmbeddedLedger(database, WINDOW_S)
    for first in range(1, 50_000, 1_000):
        await ledger.confirm(pushes(first, first + 999))
    steps = Steps()
    await database.write(lambda connection: connection.set_progress_handler(steps, 1_000))

    results = await ledger.claim(pushes(101, 120), "b", LONG_S)

    assert results == [ClaimResult.CONFIRMED] * 20
    assert steps.count < 100
    await database.close()
