"""Waits beside the last release, which knows nothing of them: it keeps them, and tells none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pushlane.backends.backend import Backend
from pushlane.core.push import Push, decode, encode
from pushlane.model.receipt import decode_receipts, encode_receipts
from pushlane.model.waits import Cause, pack
from tests.earlier_release import LAST, code_of, ran, retried
from tests.receipt_bodies import body
from tests.waits.scenes import TakesTime, add, played, sent, serving
from tests.waits.virtual import Clock

_READ = """
import sys
from pushlane.lanes.receipt import decode_receipts, encode_receipts

batch = decode_receipts(bytes.fromhex(sys.argv[1]))
assert len(batch) == 2
print(encode_receipts(batch).hex())
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return code_of(LAST, tmp_path_factory.mktemp("earlier"))


def test_what_the_last_release_tried_in_between_is_unseen(
    monkeypatch: pytest.MonkeyPatch, code: Path
) -> None:
    clock = Clock()
    now = int(clock.wall_s() * 1_000) + 10_000
    told = {Cause.SLOT: 20_000, Cause.TRIED: 5_000, Cause.RETRY: 5_000}
    waits = pack(told, now - 30_000, 2)
    push = Push("t", 1, "to-1", submitted_at_ms=now - 60_000, attempt=2, waits=waits)

    again = decode(retried(code, encode(push), now))

    assert (again.attempt, again.waits, again.due_at_ms) == (3, waits, now + 5_000)

    async def scene(backend: Backend) -> None:
        fields = msgspec.structs.asdict(again)
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend, pushes=1, of_push=lambda _: fields)
            await sent(sink, 1)

    [one] = played(monkeypatch, scene, clock)
    unseen_ms = one.parts.pop(Cause.UNSEEN)
    assert unseen_ms == pytest.approx(35_000, abs=100)
    told_ms = {cause.value: spent for cause, spent in told.items()}
    assert {cause: one.parts.pop(cause) for cause in told_ms} == pytest.approx(told_ms, rel=0.001)
    assert sum(one.parts.values()) <= 100


def test_what_it_tried_first_is_unseen_up_to_its_retry(
    monkeypatch: pytest.MonkeyPatch, code: Path
) -> None:
    clock = Clock()
    now = int(clock.wall_s() * 1_000) + 10_000
    push = Push("t", 1, "to-1", submitted_at_ms=now - 60_000)

    again = decode(retried(code, encode(push), now))

    assert (again.attempt, again.waits) == (2, None)

    async def scene(backend: Backend) -> None:
        fields = msgspec.structs.asdict(again)
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend, pushes=1, of_push=lambda _: fields)
            await sent(sink, 1)

    [one] = played(monkeypatch, scene, clock)
    assert one.parts[Cause.UNSEEN] == pytest.approx(65_000, abs=100)


def test_the_last_release_reads_receipts_with_waits_and_writes_such_as_tell_none(
    code: Path,
) -> None:
    batch = decode_receipts(body("b-1", [1, 2], waits={"slot": 500, "share": 100}))
    assert batch.waits is not None

    read = decode_receipts(ran(code, _READ, encode_receipts(batch).hex()))

    assert read.waits is None
    assert read == msgspec.structs.replace(batch, waits=None)
