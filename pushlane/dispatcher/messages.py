"""Messages in hand, and the pushes that are taken off them one by one.

A message is to be acked when the last of its pushes is settled. Until then all of it comes again
after a crash; what was settled of it is known by the registry, and dropped.
"""

from __future__ import annotations

import time

import msgspec

from pushlane.lanes.bundle import Bundle, is_bundle, open_bundle
from pushlane.lanes.errors import MalformedPush, PushlaneError, UnknownFormat
from pushlane.lanes.metric import Buckets
from pushlane.lanes.ports import Taken
from pushlane.lanes.push import MAX_PUSH_BYTES, Push, decode, decode_many

Place = tuple[str, int]
"""Task id and seq: the same for every copy of a push."""


class Message:
    """A message off a lane, with what is left of it. `decode_times` hears how long reading takes.

    `asked_s` is when the registry was last asked about it, on a monotonic clock. `left` counts its
    pushes that are not settled; it `is_spent` when none is left to be taken. `error` says why
    nothing of it can be read, not even whose pushes it has: then it is one push that nobody knows.
    """

    __slots__ = (
        "_bundle",
        "_decode_times",
        "_gone",
        "_next",
        "_pushes",
        "asked_s",
        "error",
        "is_spent",
        "left",
        "taken",
    )

    def __init__(
        self, taken: Taken, asked_s: float = 0.0, decode_times: Buckets | None = None
    ) -> None:
        self.taken = taken
        self._decode_times = decode_times
        self.asked_s = asked_s
        self.error: PushlaneError | None = None
        self._pushes: list[Push] | None = None  # once they are read
        self._bundle = _NOTHING
        self._next = 0
        self._gone = 0
        try:
            if is_bundle(taken.body):
                self._bundle = open_bundle(taken.body)
            else:
                push = decode(taken.body)
                self._bundle = Bundle(push.task_id, (push.seq,), ())
                self._pushes = [push]
        except (MalformedPush, UnknownFormat) as error:
            self.error = error
        self.left = len(self._bundle)
        self.is_spent = False

    @property
    def task_id(self) -> str:
        """Empty when that cannot be read."""
        return self._bundle.task_id

    @property
    def last_seq(self) -> int:
        return self._bundle.seqs[-1]

    def seqs(self) -> list[int]:
        """Return the seqs that can still be taken, in rising order."""
        places = range(self._next, len(self._bundle))
        return [self._bundle.seqs[place] for place in places if not self._gone >> place & 1]

    def take(self) -> Held:
        """Take the next push; only while the message is not spent."""
        place = self._next
        self._go_on(place + 1)
        if self._pushes is None:
            self._pushes = self._read()
        if self._pushes:
            push = self._pushes[place]
            return Held(self, place, push.seq, push)
        seq = self._bundle.seqs[place]
        try:
            if self.error is not None:
                raise self.error
            return Held(self, place, seq, decode(self._bundle.body(place)))
        except (MalformedPush, UnknownFormat) as error:
            return Held(self, place, seq, None, error)

    def _read(self) -> list[Push]:
        """Read all of its pushes at once; none when one of them cannot be read."""
        if self.error is not None:
            return []
        try:
            began_s = time.perf_counter()
            pushes = decode_many(self._bundle.all_bodies())
            if self._decode_times is not None:
                self._decode_times.add(time.perf_counter() - began_s)
        except MalformedPush:
            return []
        task_id = self._bundle.task_id
        for push, seq in zip(pushes, self._bundle.seqs, strict=True):
            if push.seq != seq or push.task_id != task_id:  # one cut short took of those behind it
                return []
        return pushes

    def drop(self, bits: int, first_seq: int) -> int:
        """Leave out what is not taken of those whose bit is set, bit n for the seq `first_seq + n`.

        Returns how many these were.
        """
        dropped = 0
        for place in range(self._next, len(self._bundle)):
            seq = self._bundle.seqs[place]
            if seq >= first_seq and bits >> (seq - first_seq) & 1 and not self._gone >> place & 1:
                self._gone |= 1 << place
                dropped += 1
        self.left -= dropped
        self._go_on(self._next)
        return dropped

    def body(self, place: int) -> bytes:
        """Return a push as it travels alone."""
        return self._bundle.body(place) if is_bundle(self.taken.body) else self.taken.body

    def raw(self, place: int) -> bytes:
        """Return the bytes of a push that cannot be read, cut to what a dead-letter lane takes."""
        if self.error is None and not self._bundle.problem:
            return self._bundle.fields(place)[:MAX_PUSH_BYTES]
        return b"" if place else self.taken.body[:MAX_PUSH_BYTES]

    def _go_on(self, place: int) -> None:
        if self._gone:
            while self._gone >> place & 1:
                place += 1
        self._next = place
        self.is_spent = place >= len(self._bundle.seqs)


_NOTHING = Bundle("", (0,), ())


class Held(msgspec.Struct, gc=False, eq=False):
    """A push in hand, as it came in its message.

    One that cannot be read has no `push`; `error` says why. In an ordered task it was found to be
    its turn at `cleared_s`, on a monotonic clock.
    """

    message: Message
    place: int
    seq: int
    push: Push | None
    error: PushlaneError | None = None
    cleared_s: float = 0.0

    @property
    def body(self) -> bytes:
        return self.message.body(self.place)

    @property
    def lane(self) -> str:
        return self.message.taken.lane
