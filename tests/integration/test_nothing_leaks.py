"""Recipients, addresses, content and secrets come out nowhere but at the sink that they are for.

Marked values go every way through the product, failures included (`marked_ways`), and everything
that was said is searched, and everything that was kept. Left out, as they hold pushes by design:
the database of the embedded store (lanes and dead pushes), and the spool of a producer. Attributes
and trace ids go into receipts by design, and are not marked.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pushlane import Settings
from pushlane.backends.backend import connect
from pushlane.model.receipt import ReceiptBatch, decode_receipts
from tests.canary import Canaries, contents, leaks
from tests.integration import marked_ways
from tests.integration.marked_providers import providers
from tests.integration.marked_pushes import ANSWERS, MarkedPushes, provider

HOLD_PUSHES = ("store/pushlane.db*", "spool/**/*")
"""What holds pushes by design, below the folder of the run."""
GIVEN = ("*.csv", "*.json", "*.jsonl", "*.toml", "secret", "marked.py", "__pycache__/*")
"""What the run itself has put there. What the product makes of it is below `made` and `store`."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarkedPushes]:
    canaries, keys = Canaries(), tmp_path_factory.mktemp("keys")
    with provider() as (url, received), providers(keys, canaries) as tables:
        folder = tmp_path_factory.mktemp("marked")
        marked = MarkedPushes(folder, canaries, url, received, tables)
        try:
            marked_ways.refuse_rows(marked)
            marked_ways.refuse_files(marked)
            marked_ways.produce(marked)
            marked_ways.deliver(marked, "text", workers=1)
            marked_ways.deliver(marked, "json", workers=2)
            marked_ways.use_up(marked)
            yield marked
        finally:
            marked.pushlane.end_all()


def test_nothing_that_is_said_holds_a_marked_value(run: MarkedPushes) -> None:
    assert leaks(run.canaries, run.said) == {}


def test_nothing_that_is_kept_holds_one_but_lanes_dead_pushes_and_spools(run: MarkedPushes) -> None:
    kept = contents(run.folder, (*HOLD_PUSHES, *GIVEN))

    assert {"made/rejects.jsonl", "made/file.jsonl"} < kept.keys()
    assert any(name.startswith("store/receipts/") for name in kept)
    assert leaks(run.canaries, kept) == {}


def test_the_marked_values_have_arrived_where_they_are_meant_to(run: MarkedPushes) -> None:
    """Else the search would find nothing as nothing was sent."""
    arrived = "".join(run.received)
    fields = ("recipient", "address", "title", "body", "data", "payload")
    secrets = ("credentials", "authorization", "header", "path", "query")

    assert [name for name in (*fields, *secrets) if run.canaries.word(name) not in arrived] == []
    assert [name for name in (*ANSWERS, "slow") if f"/{name}/" not in arrived] == []
    database = contents(run.folder, GIVEN)["store/pushlane.db"]
    assert run.canaries.found_in(database)


@pytest.mark.parametrize("form", ["text", "json"])
def test_each_kind_of_failure_was_spoken_of(run: MarkedPushes, form: str) -> None:
    said = run.said[f"dispatch {form}"]
    shown = "".join(text for who, text in run.said.items() if who.endswith(f" {form}"))

    assert "logs are at debug" in said
    assert "Task exception was never retrieved" in said
    for words in ("sink busy rests", "is paused: stopped at ***", "it refuses our credentials"):
        assert words in said
    for reason in ("no number ***", "none of [", "raised ValueError", "raised OSError", "timed out",
                   "HTTP 410", "malformed", "raised LookupError"):  # fmt: skip
        assert reason in shown, reason
    assert "not an APNs token" in run.said[f"tokens dead {form}"]
    for dropped in ("suppressed", "capped"):
        assert f'reason="{dropped}"' in run.said[f"metrics {form}"]


async def batches_of(run: MarkedPushes) -> list[ReceiptBatch]:
    """All that stands in the log of receipts."""
    async with connect(Settings(data_dir=run.store)) as backend:
        log = backend.receipts
        start = await log.first()
        end = await log.advance(start)
        return [
            decode_receipts(body)
            for place in range(len(start))
            async for page in log.read(place, start[place], end[place])
            for body in page
        ]


async def test_receipts_have_of_each_recipient_a_mask_and_a_hash(run: MarkedPushes) -> None:
    batches = await batches_of(run)

    assert {"delivered", "retry", "dead", "dropped"} <= {one for b in batches for one in b.outcome}
    recipients = {recipient for batch in batches for recipient in batch.recipient}
    assert all("…" in recipient and len(recipient) == 5 for recipient in recipients)


def test_a_planted_leak_is_found_in_logs_and_in_files(run: MarkedPushes) -> None:
    """The search sees what one processor of a user's own logs, and one line in a file."""
    task = run.submit("leaky", "leaky")
    dispatching = run.pushlane.start("dispatch", "--serve", "leaky", "--drain")
    assert dispatching.wait() == 0
    (run.store / "receipts" / "planted").write_text(run.canaries.value("recipient"))
    kept = contents(run.folder, (*HOLD_PUSHES, *GIVEN))

    assert run.pushlane.task(task)["state"] == "done"
    assert list(leaks(run.canaries, {"leaky": dispatching.text})) == ["leaky"]
    assert list(leaks(run.canaries, kept)) == ["store/receipts/planted"]
