"""A partition is cut at the same places, however Spark hands its rows over."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lanes.errors import BadInput
from lanes.push import MAX_SEQ, Push, decode, encode, head, numbered, tail
from pipeline.fanout import writer
from pipeline.fanout.request import FanoutRequest
from pipeline.fanout.writer import chunks
from pipeline.spec import parse_spec


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"seq": pa.array(range(first, first + count), pa.int64())})


def encoded(batch: pa.RecordBatch, first_seq: int) -> list[bytes]:
    return [str(first_seq + place).encode() for place in range(batch.num_rows)]


def cut(*batches: pa.RecordBatch) -> list[tuple[int, int]]:
    return [(chunk.first_seq, chunk.last_seq) for chunk in chunks(batches, encoded, 8)]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHUNK_ROWS", 20)


def test_a_chunk_ends_with_a_whole_batch() -> None:
    assert cut(rows(1, 30), rows(31, 30)) == [(1, 24), (25, 56), (57, 60)]


def test_a_part_in_the_middle_is_cut_at_the_same_multiples() -> None:
    assert cut(rows(13, 30)) == [(13, 40), (41, 42)]


def test_no_row_is_left_out_or_repeated() -> None:
    bodies = [body for chunk in chunks([rows(5, 7), rows(12, 90)], encoded, 8) for body in chunk]

    assert bodies == [str(seq).encode() for seq in range(5, 102)]


@pytest.mark.parametrize("second", [rows(12, 3), rows(10, 3)], ids=["gap", "repeat"])
def test_seqs_that_do_not_follow_each_other_are_refused(second: pa.RecordBatch) -> None:
    with pytest.raises(BadInput, match="do not follow each other"):
        cut(rows(1, 10), second)


def test_seqs_out_of_order_inside_a_batch_are_refused() -> None:
    shuffled = pa.record_batch({"seq": pa.array([1, 3, 2, 4], pa.int64())})

    with pytest.raises(BadInput, match="sort each partition by seq"):
        cut(shuffled)


@pytest.mark.parametrize("seq", [1, 127, 128, 40_000, 70_000, MAX_SEQ])
def test_a_push_that_is_numbered_later_is_as_if_it_had_its_seq_at_once(seq: int) -> None:
    packed = encode(Push("t1", MAX_SEQ, "r", "Hi", "there", {"a": 1}, zone="Europe/Rome"))

    [body] = numbered(head("t1"), seq, [tail(head("t1"), packed)])

    assert body == encode(Push("t1", seq, "r", "Hi", "there", {"a": 1}, zone="Europe/Rome"))
    assert decode(body).seq == seq


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
