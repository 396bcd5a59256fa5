"""Whole batches from Pulsar's log, one after the other, by a job that may try nothing twice.

A worker process that dies, for whatever reason, ends such a job; here none does. Four batches fit
a run of CI; PUSHLANE_TEST_BATCHES=50 reads fifty, in many minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.settings import Settings
from tests.processes import Pushlane
from tests.receipt_bodies import body

BATCHES = int(os.environ.get("PUSHLANE_TEST_BATCHES", "4"))
BODIES_A_BATCH = 4_000
RECEIPTS_A_BODY = 20
BODIES_AN_APPEND = 1_000
DEADLINE_S = 900.0
NO_SECOND_TRY = "local[*, 1]"

pytestmark = [
    pytest.mark.timeout(DEADLINE_S + 300),
    pytest.mark.usefixtures("java"),
    pytest.mark.parametrize(
        "pushlane", [pytest.param("pulsar", marks=pytest.mark.pulsar)], indirect=True
    ),
]


@pytest.fixture
def unsampled(pushlane: Pushlane) -> Iterator[Pushlane]:
    """All rows are kept at once: none has to be filled up later, from batches read again."""
    changes = {"pipeline_detail_lag": "0", "reports_dir": str(pushlane.folder / "reports")}
    commands = Pushlane(pushlane.folder, {**pushlane.settings, **changes})
    yield commands
    commands.end_all()


def append(settings: Settings, bodies: int) -> None:
    """So many bodies of one task, whose seqs go on from body to body."""
    with SyncReceiptLog(settings) as log:
        for first in range(0, bodies, BODIES_AN_APPEND):
            places = range(first, first + BODIES_AN_APPEND)
            log.append([body("a", _seqs(place)) for place in places])


def _seqs(place: int) -> range:
    first = place * RECEIPTS_A_BODY + 1
    return range(first, first + RECEIPTS_A_BODY)


def test_whole_batches_are_read_and_no_worker_dies(unsampled: Pushlane) -> None:
    bodies = BATCHES * BODIES_A_BATCH
    append(Settings(**unsampled.settings), bodies)

    job = unsampled.start(
        *("pipeline", "run", "--until-idle", "--max-bodies", str(BODIES_A_BATCH)),
        *("--master", NO_SECOND_TRY),
    )
    code = job.wait(DEADLINE_S)

    read = [
        line for line in job.text.splitlines() if f": {BODIES_A_BATCH * RECEIPTS_A_BODY:,} " in line
    ]
    assert (code, len(read)) == (0, BATCHES), job.text
    counts = unsampled.json("pipeline", "status")["counts"]
    assert (counts["bodies"], counts["receipts"]) == (bodies, bodies * RECEIPTS_A_BODY)
    assert (counts["duplicates"], counts["quarantined"]) == (0, 0)
