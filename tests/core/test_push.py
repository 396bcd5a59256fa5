"""A push travels whole, and shows nothing of what it holds."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from pushlane.core.errors import MalformedPush, UnknownFormat
from pushlane.core.push import (
    MAX_PUSH_BYTES,
    Arrival,
    DeadPush,
    Kind,
    Outcome,
    Push,
    Scope,
    decode,
    decode_many,
    encode,
    encode_dead,
)
from pushlane.model.dead_letters import decode_dead, decode_mark

PUSH = Push(
    "t1",
    7,
    "token-of-somebody",
    title="Hello",
    body="secret words",
    data={"order": 12},
    expires_at_ms=5,
    submitted_at_ms=3,
    attempt=2,
)
DEAD = DeadPush("t1", 7, 2, "gone", 99, encode(PUSH))
WITH_WAITS = replace(
    PUSH, addresses={"sms": "1", "": "2"}, payloads={"sms": {"a": 1}}, key="k", waits=b"w"
)
WITH_ALL = replace(WITH_WAITS, tracestate="a=1")


def test_a_push_travels_whole():
    assert decode(encode(PUSH)) == PUSH


def test_a_dead_push_travels_whole():
    assert decode_dead(encode_dead(DEAD)) == DEAD


def test_a_push_of_an_older_version_gets_the_defaults():
    assert decode(msgspec.msgpack.encode(["t1", 7, "r"])) == Push("t1", 7, "r")


def test_a_push_of_a_newer_version_is_read_as_far_as_known():
    fields = msgspec.msgpack.decode(encode(WITH_ALL))

    assert decode(msgspec.msgpack.encode([*fields, "new"])) == WITH_ALL


@pytest.mark.parametrize("body", [b"", b"\xc1", b"text", encode(PUSH)[:-1], b"\x93\x01\x02\x03"])
def test_bytes_that_are_no_push_are_malformed(body):
    with pytest.raises(MalformedPush, match=f"{len(body)} bytes"):
        decode(body)


def test_more_than_a_push_may_have_is_malformed():
    with pytest.raises(MalformedPush, match=f"over the limit of {MAX_PUSH_BYTES}"):
        decode(encode(Push("t1", 7, "r", body="x" * (MAX_PUSH_BYTES + 64))))


def test_many_are_read_as_each_is_alone():
    older = msgspec.msgpack.encode(["t1", 8, "r"])
    newer = msgspec.msgpack.encode([*msgspec.msgpack.decode(encode(WITH_ALL)), "new", {"a": [1]}])
    bodies = [encode(PUSH), older, newer]

    assert decode_many(bodies) == [decode(body) for body in bodies]


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"\xc1",
        encode(PUSH)[:-1],
        encode(PUSH) + b"\xc0",
        encode(PUSH) * 2,
        encode(Push("t1", 7, "r", body="x" * (MAX_PUSH_BYTES + 64))),
        msgspec.msgpack.encode([3, "t1"]),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_none_of_many_is_read_when_one_cannot_be(odd, place):
    bodies = [encode(PUSH)] * 2
    bodies.insert(place, odd)

    with pytest.raises(MalformedPush):
        decode_many(bodies)


def test_what_nests_too_deep_is_malformed():
    deep = (
        b"\x96"
        + msgspec.msgpack.encode(["t1", 7, "r", "", ""])[1:]
        + b"\x81\xa1a"
        + b"\x91" * 60_000
    )

    with pytest.raises(MalformedPush):
        decode(deep)


@pytest.mark.parametrize("after_seq", [-1, 2**32])
def test_a_predecessor_that_can_be_none_is_malformed(after_seq):
    with pytest.raises(MalformedPush):
        decode(encode(msgspec.structs.replace(PUSH, after_seq=after_seq)))


def test_bytes_that_are_no_dead_push_are_malformed():
    with pytest.raises(MalformedPush):
        decode_dead(b"\x91\x01")


def test_every_attempt_has_the_same_push_id():
    assert PUSH.push_id == msgspec.structs.replace(PUSH, attempt=3).push_id == "t1-7"


@pytest.mark.parametrize("shown", [repr(PUSH), str(PUSH), repr(DEAD), f"{[PUSH]}"])
def test_what_is_shown_of_a_push_is_nothing_personal(shown):
    assert "t1-7" in shown
    assert not any(word in shown for word in ("token", "Hello", "secret", "order"))


def test_a_pause_is_a_retry_that_pauses_the_task():
    outcome = Outcome.pause("401")

    assert (outcome.kind, outcome.pause_task, outcome.reason) == ("retry", True, "401")


def test_a_sink_that_is_throttled_means_a_retry_that_is_about_the_sink():
    outcome = Outcome.throttled("HTTP 429", 7.0)
    assert outcome.kind is Kind.RETRY
    assert (outcome.after_s, outcome.scope) == (7.0, Scope.SINK)
    assert outcome.arrival is Arrival.REFUSED


def test_what_is_throttled_may_be_less_than_the_sink():
    assert Outcome.throttled("too many", scope=Scope.RECIPIENT).scope is Scope.RECIPIENT


def test_a_sinks_word_that_a_push_is_dead_is_about_the_push_unless_it_says_otherwise():
    assert Outcome.dead("no").scope is Scope.PUSH
    assert Outcome.dead("no", scope=None).scope is None
    assert Outcome.retry("no").scope is None


@pytest.mark.parametrize("version", [4, 5, 200, 70_000])
def test_an_envelope_of_a_later_version_is_told_from_bytes_that_are_none(version):
    body = msgspec.msgpack.encode([version, "t1", b"anything at all"])

    with pytest.raises(UnknownFormat, match=f"format {version}.*upgrade") as raised:
        decode(body)

    assert raised.value.version == version


def test_a_later_envelope_may_be_larger_than_a_push():
    with pytest.raises(UnknownFormat):
        decode(msgspec.msgpack.encode([4, b"x" * MAX_PUSH_BYTES]))


@pytest.mark.parametrize(
    "fields", [[1, "t1"], [2, "t1"], [3, "t1"], [0], [-4, "t1"], [True, "t1"], [4.0, "t1"], []]
)
def test_only_whole_numbers_from_four_on_are_later_versions(fields):
    with pytest.raises(MalformedPush):
        decode(msgspec.msgpack.encode(fields))


def test_a_later_envelope_that_is_torn_is_malformed():
    with pytest.raises(MalformedPush):
        decode(msgspec.msgpack.encode([4, "t1", b"payload"])[:-1])


def test_fields_that_are_not_known_stay_at_the_end_of_a_push_that_is_encoded_again():
    fields = msgspec.msgpack.decode(encode(WITH_ALL))
    newer = msgspec.msgpack.encode([*fields, "new", {"a": [1, 2]}])

    again = encode(replace(decode(newer), attempt=3), newer)

    assert msgspec.msgpack.decode(again)[len(fields) :] == ["new", {"a": [1, 2]}]
    assert decode(again) == replace(WITH_ALL, attempt=3)


def test_a_push_of_an_older_version_is_encoded_again_with_all_fields():
    older = msgspec.msgpack.encode(["t1", 7, "r"])

    assert encode(decode(older), older) == encode(Push("t1", 7, "r"))


@pytest.mark.parametrize("read", [decode_dead, decode_mark])
def test_dead_pushes_and_marks_of_a_later_version_are_told_too(read):
    with pytest.raises(UnknownFormat, match="format 2"):  # which only messages of pushes have
        read(msgspec.msgpack.encode([2, "t1"]))


def test_a_push_goes_to_its_recipient_where_it_has_no_address_for_a_sink():
    assert PUSH.address("sms") == PUSH.recipient
    assert WITH_ALL.address("sms") == "1"
    assert WITH_ALL.address("other") == "2"
    assert replace(PUSH, addresses={"sms": ""}).address("sms") == ""


def test_what_a_push_has_not_takes_no_bytes():
    with_address = replace(PUSH, addresses={"": "1"})
    with_key, with_waits, traced = (
        replace(PUSH, **one) for one in ({"key": "k"}, {"waits": b"w"}, {"tracestate": "a=1"})
    )
    pushes = (PUSH, with_address, with_key, with_waits, traced, WITH_WAITS, WITH_ALL)
    whole = len(PUSH.__struct_fields__)
    left_out = [whole - len(msgspec.msgpack.decode(encode(push))) for push in pushes]
    assert left_out == [5, 3, 2, 1, 0, 1, 0]
    assert [decode(encode(push)) for push in pushes] == list(pushes)
