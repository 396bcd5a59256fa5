"""Bundles: many pushes of one task in one message on a lane (docs/wire.md).

A bundle is a msgpack array `[2, task id, first seq, places, pushes]`. `places` is the number of
pushes when their seqs follow each other, else the list of steps from each seq to the next. A push
is a byte string: the msgpack array of its fields behind the seq, so that an unreadable push spoils
no other. A message that begins with a text is a single push (`core.push`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, NamedTuple

import msgspec

from pushlane.core.errors import MalformedPush
from pushlane.core.push import FORMAT, MAX_SEQ, Seq, decode, require_known

BUNDLE = 2
"""The format of a bundle, with which it begins."""

MOST_PUSHES = 512
MOST_BYTES = 1024 * 1024
"""Bytes of pushes in a bundle that is written, before compression."""

MOST_POOLED = 32
"""Pushes in a bundle on a lane that tasks share, so that none waits long behind another's."""

_MOST_BYTES_READ = 2 * MOST_BYTES
_MOST_FIELDS = 2**16 - 1
_SEQ_BYTES = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
"""The length of a whole number that has more than one byte, by its first."""

_COUNT_BYTES = {0xD9: 1, 0xDA: 2, 0xDB: 4}  # of a text that is not short, by its first byte

_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_PUSHES)]
_Steps = Annotated[
    list[Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQ)]],
    msgspec.Meta(max_length=MOST_PUSHES - 1),
]


class _Bundle(msgspec.Struct, frozen=True, array_like=True, gc=False):
    format: int
    task_id: str
    first_seq: Seq
    places: _Count | _Steps
    pushes: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_pack = _encoder.encode
_decoder = msgspec.msgpack.Decoder(_Bundle)
_text_decoder = msgspec.msgpack.Decoder(str)
_seq_decoder = msgspec.msgpack.Decoder(Seq)
_places_decoder = msgspec.msgpack.Decoder(_Count | _Steps)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Bundle:
    """An opened message: pushes of one task, with these seqs in rising order.

    When its task and seqs can be read, but none of its pushes, `problem` says why.
    """

    __slots__ = ("_fields", "_id", "_starts", "problem", "seqs", "task_id")

    def __init__(
        self, task_id: str, seqs: Sequence[int], fields: Sequence[bytes], problem: str = ""
    ) -> None:
        self.task_id = task_id
        self.seqs = seqs
        self.problem = problem
        self._fields = fields
        self._id = _pack(task_id)
        self._starts: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self.seqs)

    def body(self, place: int) -> bytes:
        """Return the push at this place as a message of its own, for `core.push.decode`.

        Raises MalformedPush when its bytes are no array.
        """
        if self.problem:
            raise MalformedPush(self.problem)
        fields = self._fields[place]
        head = _head(fields)
        return self._start(head, len(fields)) + _pack(self.seqs[place]) + fields[len(head) :]

    def all_bodies(self) -> list[bytes]:
        """Return all pushes at once, which costs less. Raises MalformedPush if one is no array."""
        head = _head(self._fields[0]) if self._fields else b""
        size = len(head)
        if self.problem or any(fields[:size] != head for fields in self._fields):
            return [self.body(place) for place in range(len(self.seqs))]
        start = self._start(head, len(self._fields[0]))
        pairs = zip(self.seqs, self._fields, strict=True)
        return [start + _pack(seq) + fields[size:] for seq, fields in pairs]

    def _start(self, head: bytes, size: int) -> bytes:
        """Return what stands before the seq of a push whose fields begin with this head."""
        start = self._starts.get(head)
        if start is None:
            count = _count(head) + 2
            if not head or count > _MOST_FIELDS:
                raise MalformedPush(f"{size} bytes in a bundle are not a push")
            start = self._starts[head] = _array(count) + self._id
        return start

    def fields(self, place: int) -> bytes:
        """Return what follows the seq of the push at this place, readable or not."""
        return self._fields[place]

    def bodies(self) -> Iterator[bytes]:
        """Yield each push as a message of its own, undecoded, but for those that are no array."""
        for place in range(len(self._fields)):
            try:
                yield self.body(place)
            except MalformedPush:
                continue


def is_bundle(message: bytes) -> bool:
    """Tell a bundle by its first two bytes; a single push begins with the text of its task."""
    return len(message) > 1 and 0x95 <= message[0] <= 0x9F and message[1] == BUNDLE


def open_bundle(message: bytes) -> Bundle:
    """Open a bundle; each push is looked at when it is asked for.

    Raises:
        UnknownFormat: it is of a format that came later.
        MalformedPush: not even its task and seqs can be read.
    """
    if len(message) > _MOST_BYTES_READ:
        return _unread(message, f"over the limit of {_MOST_BYTES_READ}")
    try:
        bundle = _decoder.decode(message)
    except _UNREADABLE:
        return _unread(message, "not a whole bundle")
    seqs = _seqs(bundle.first_seq, bundle.places)
    if len(seqs) != len(bundle.pushes):
        return _unread(message, f"a bundle of {len(bundle.pushes)} pushes that says {len(seqs)}")
    if seqs[-1] > MAX_SEQ:
        return _unread(message, "a bundle with seqs that cannot be")
    return Bundle(bundle.task_id, seqs, bundle.pushes)


def _unread(message: bytes, why: str) -> Bundle:
    require_known(message, FORMAT)
    problem = f"{len(message)} bytes on a lane: {why}"
    task_id, seqs = _header(message, problem)
    return Bundle(task_id, [seq for seq in seqs if seq <= MAX_SEQ], (), problem)


def open_message(message: bytes) -> Bundle:
    """Open any message; a single push is opened as a bundle of one.

    Raises:
        UnknownFormat: it is of a format that came later.
        MalformedPush: not even its task and seqs can be read.
    """
    if is_bundle(message):
        return open_bundle(message)
    push = decode(message)
    return Bundle(push.task_id, (push.seq,), (fields_of(message),))


def bodies_of(message: bytes) -> Iterable[bytes]:
    """Return the pushes in a message, each as a message of its own; none of an unreadable one."""
    if not is_bundle(message):
        return (message,)
    try:
        return open_bundle(message).bodies()
    except MalformedPush:
        return ()


class Packed(NamedTuple):
    """A message with the number of its pushes, and the seq of the last one."""

    message: bytes
    last_seq: int
    pushes: int


def packed(bodies: Iterable[bytes], most: int) -> Iterator[Packed]:
    """Yield the pushes of one task, in rising order of their seqs, as bundles.

    A bundle ends behind every seq that is a multiple of `most`, and before the push that would take
    it over 1 MiB: so the same pushes are in the same bundles when they are packed again. If `most`
    is 1, each push stays as it is.
    """
    if most == 1:
        for one in bodies:
            yield Packed(one, _seq_of(one), 1)
        return
    seqs: list[int] = []
    pushes: list[bytes] = []
    size = 0
    encoded_id = b""
    for one in bodies:
        start = _header_bytes(one)  # one that came from an older version may have a shorter one
        if not encoded_id:
            encoded_id = one[start : _id_end(one)]
        seq, fields = _split(one, start + len(encoded_id))
        if pushes and (len(pushes) == most or not fits(size, fields)):
            yield _closed(encoded_id, seqs, pushes)
            seqs, pushes, size = [], [], 0
        seqs.append(seq)
        pushes.append(fields)
        size += len(fields)
        if seq % most == 0:
            yield _closed(encoded_id, seqs, pushes)
            seqs, pushes, size = [], [], 0
    if pushes:
        yield _closed(encoded_id, seqs, pushes)


def fits(size: int, fields: bytes) -> bool:
    """Return whether a bundle that has `size` bytes of pushes may take these fields, too."""
    return size + len(fields) <= MOST_BYTES


def fields_of(body: bytes) -> bytes:
    """Return the part of a push that a bundle holds: its fields behind the seq, as an array."""
    return _split(body, _id_end(body))[1]


def unnumbered(pushes: Sequence[bytes]) -> bytes:
    """Return a bundle of pushes that follow each other, without its beginning: see `numbered`."""
    return _pack(len(pushes)) + _pack(pushes)


def numbered(task_id: str, first_seq: int, rest: bytes) -> bytes:
    """Put the beginning before the rest of a bundle, now that its first seq is known."""
    return _beginning(_pack(task_id), first_seq) + rest


def _closed(encoded_id: bytes, seqs: list[int], pushes: list[bytes]) -> Packed:
    first, count = seqs[0], len(seqs)
    follow = seqs[-1] - first == count - 1
    places = count if follow else [b - a for a, b in pairwise(seqs)]
    message = _beginning(encoded_id, first) + _pack(places) + _pack(pushes)
    return Packed(message, seqs[-1], count)


def _beginning(encoded_id: bytes, first_seq: int) -> bytes:
    return bytes((0x95, BUNDLE)) + encoded_id + _pack(first_seq)


def _seqs(first: int, places: int | list[int]) -> Sequence[int]:
    if isinstance(places, int):
        return range(first, first + places)
    return list(accumulate(places, initial=first))


def _array(count: int) -> bytes:
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


def _head(fields: bytes) -> bytes:
    """Return the header of the array that a push is in a bundle; empty when it is none."""
    first = fields[0] if fields else 0
    if 0x90 <= first <= 0x9F:
        return fields[:1]
    return fields[:3] if first == 0xDC and len(fields) > 3 else b""


def _count(head: bytes) -> int:
    return int.from_bytes(head[1:], "big") if len(head) > 1 else (head or b"\0")[0] & 0x0F


def _header_bytes(body: bytes) -> int:
    """Return the length of the header of the array that a push is."""
    if body[0] & 0xF0 == 0x90:
        return 1
    return 3 if body[0] == 0xDC else 5


def _id_end(body: bytes) -> int:
    """Return where the task's id ends, and the seq begins."""
    return _text_end(body, _header_bytes(body))


def _text_end(body: bytes, at: int) -> int:
    first = body[at]
    if first & 0xE0 == 0xA0:
        return at + 1 + (first & 0x1F)
    end = at + 1 + _COUNT_BYTES[first]
    return end + int.from_bytes(body[at + 1 : end], "big")


def _seq_of(body: bytes) -> int:
    start = _id_end(body)
    return _seq_decoder.decode(body[start : start + _SEQ_BYTES.get(body[start], 1)])


def _split(body: bytes, start: int) -> tuple[int, bytes]:
    """Return the seq that stands at `start`, and the fields behind it as an array of their own."""
    first = body[start]
    end = start + _SEQ_BYTES.get(first, 1)
    seq = first if end == start + 1 else int.from_bytes(body[start + 1 : end], "big")
    size = _header_bytes(body)
    count = body[0] & 0x0F if size == 1 else int.from_bytes(body[1:size], "big")
    return seq, _array(count - 2) + body[end:]


def _header(message: bytes, problem: str) -> tuple[str, Sequence[int]]:
    """Return the task and the seqs of a bundle of which only the beginning can be read.

    Raises MalformedPush when that cannot be read either.
    """
    try:
        start, after_id = 2, _value_end(message, 2)
        after_seq = _value_end(message, after_id)
        task_id = _text_decoder.decode(message[start:after_id])
        first = _seq_decoder.decode(message[after_id:after_seq])
        places = _places_decoder.decode(message[after_seq : _value_end(message, after_seq)])
    except (*_UNREADABLE, IndexError) as error:
        raise MalformedPush(problem) from error
    return task_id, _seqs(first, places)


def _value_end(message: bytes, at: int) -> int:
    """Return where the text, number or array of numbers ends that begins at `at`."""
    first = message[at]
    if first & 0xE0 == 0xA0 or first in _COUNT_BYTES:
        return _text_end(message, at)
    if first & 0xF0 == 0x90 or first == 0xDC:
        end = at + _header_bytes(message[at : at + 1])
        count = first & 0x0F if end == at + 1 else int.from_bytes(message[at + 1 : end], "big")
        for _ in range(min(count, MOST_PUSHES)):
            end = _value_end(message, end)
        return end
    return at + _SEQ_BYTES.get(first, 1)
