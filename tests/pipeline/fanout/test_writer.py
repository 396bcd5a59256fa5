"""A partition is cut at the same places, however Spark hands its rows over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_SEQ, Push, decode, encode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.pipeline.fanout import writer
from pushlane.pipeline.fanout.request import FanoutRequest
from pushlane.pipeline.fanout.writer import PartWriter, chunks
from pushlane.pipeline.spec import parse_spec
from pushlane.settings import Settings
from pushlane.wire import Packed, bodies_of, fields_of, numbered, packed, unnumbered

LANE = "task-t1"


def bundles(first: int, count: int, size: int = 8) -> list[Packed]:
    """Those of a partition with so many pushes from this seq on."""
    pushes = (Push("t1", seq, f"user-{seq}") for seq in range(first, first + count))
    return list(packed(map(encode, pushes), size))


def cut(*some: list[Packed]) -> list[tuple[int, int]]:
    """The first and the last seq of each chunk."""
    found = chunks(chain(*some))
    return [(chunk[0].last_seq - chunk[0].pushes + 1, chunk[-1].last_seq) for chunk in found]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_CHUNK_PUSHES", 20)


def test_a_chunk_ends_with_the_bundle_that_makes_it_full() -> None:
    assert cut(bundles(1, 60)) == [(1, 24), (25, 48), (49, 60)]


def test_a_part_in_the_middle_is_cut_at_the_ends_of_its_bundles() -> None:
    assert cut(bundles(13, 30)) == [(13, 32), (33, 42)]


def test_a_chunk_has_no_more_bytes_than_one_publish_may(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bundles(1, 24)
    monkeypatch.setattr(writer, "_CHUNK_BYTES", len(made[0].message) + 1)

    assert cut(made) == [(1, 16), (17, 24)]


def test_no_bundle_is_left_out_or_repeated() -> None:
    made = bundles(5, 97)

    assert [one for chunk in chunks(made) for one in chunk] == made


@pytest.mark.parametrize("second", [(12, 3), (10, 3)], ids=["gap", "repeat"])
def test_seqs_that_do_not_follow_each_other_are_refused(second: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="do not follow each other"):
        cut(bundles(1, 10), bundles(*second))


def test_bundles_out_of_order_are_refused() -> None:
    with pytest.raises(BadInput, match="sort each partition by seq"):
        cut(bundles(1, 16)[::-1])


def test_seqs_are_counted_from_1() -> None:
    with pytest.raises(BadInput, match="counted from 1"):
        cut([Packed(b"", 7, 8)])


@pytest.mark.parametrize("seq", [1, 127, 128, 40_000, 70_000, MAX_SEQ - 1])
def test_pushes_that_are_numbered_later_are_as_if_they_had_their_seqs_at_once(seq: int) -> None:
    def push(seq: int) -> bytes:
        return encode(Push("t1", seq, "r", "Hi", "there", {"a": 1}, zone="Europe/Rome"))

    left_open = unnumbered([fields_of(push(MAX_SEQ))] * 2)

    found = list(bodies_of(numbered("t1", seq, left_open)))

    assert found == [push(seq), push(seq + 1)]
    assert [decode(body).seq for body in found] == [seq, seq + 1]


async def begin(settings: Settings) -> None:
    """The task with its lane."""
    async with connect(settings) as backend:
        await backend.registry.add(Task(id="t1", level=Level.HIGH, lane=LANE, first_lane=LANE))
        await backend.broker.open_lane(LANE)
        await backend.registry.change("t1", task_changes.start)


async def on_lane(settings: Settings) -> list[bytes]:
    async with connect(settings) as backend:
        return [body async for page in backend.broker.replay(LANE) for body in page]


def torn(some: Iterable[Packed]) -> Iterator[Packed]:
    yield from some
    raise ConnectionError("torn by the test")


@pytest.mark.parametrize("read", [1, 3, 4, 7])
async def test_a_part_that_is_resumed_keeps_its_bundles(
    settings: Settings, tmp_path: Path, read: int
) -> None:
    """However far the first attempt came: a chunk has three of them."""
    await begin(settings)
    made = bundles(13, 60)
    part = PartWriter(settings, "t1", collapses=False, progress=tmp_path)
    with pytest.raises(ConnectionError):
        await part.run(torn(made[:read]))
    assert await on_lane(settings) == [one.message for one in made[: read // 3 * 3]]

    assert await part.run(made) == 60

    assert await on_lane(settings) == [one.message for one in made]
    assert (tmp_path / "13").read_text() == "72"


def request(**given: object) -> FanoutRequest:
    spec = parse_spec({"level": "high"}, "here")
    return FanoutRequest(audience="users", spec=spec, **given)  # type: ignore[arg-type]


def test_the_same_command_has_the_same_key() -> None:
    assert request(where="a > 1").task_key == request(where="a > 1").task_key


def test_another_rule_has_another_key() -> None:
    assert request(where="a > 1").task_key != request(where="a > 2").task_key


def test_a_password_is_no_part_of_a_key() -> None:
    first, second = ({"password": word, "url": "jdbc:x"} for word in ("one", "two"))

    assert request(options=first).task_key == request(options=second).task_key


def test_another_keyspace_is_another_audience() -> None:
    first, second = ({"keyspace": name} for name in ("shop", "news"))

    assert request(options=first).task_key != request(options=second).task_key
