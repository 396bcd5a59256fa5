"""A push, the bytes in which it travels, alive or dead, and its outcome.

The wire format (docs/wire.md) is a msgpack array: fields may be added at the end, never moved. An
array that begins with a text is of format 1, a push; a later format begins with its number. A push
never shows its recipient or its content in a repr, so that none can slip into a log or a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from pushlane.core.errors import MalformedPush, UnknownFormat

FORMAT = 3
"""The highest format on lanes that this version reads: 1 is a push, 2 a bundle, 3 a push's key."""

MAX_PUSH_BYTES = 64 * 1024
LARGEST = MAX_PUSH_BYTES + 64  # a retry writes more of it than its submit did
MAX_SEQ = 2**32 - 1

Seq = Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQ)]
SeqOrNone = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQ)]

NO_SPAN: AbstractContextManager[None] = nullcontext()
SPANS: ContextVar[Callable[[Push, str], AbstractContextManager[None]]]
SPANS = ContextVar("pushlane_spans", default=lambda push, name: NO_SPAN)
"""Makes the spans that a push's processor asks for."""


class Push(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message to one recipient.

    `seq` runs from 1 to the task's total. `expires_at_ms` and `submitted_at_ms` are Unix times in
    milliseconds; an expiry of 0 means never. `attempt` is 1 on the first delivery. It is not sent
    before `not_before_ms`, nor in its recipient's quiet hours, whose time zone is `zone` (an IANA
    name). In an ordered task `after_seq` is the push of the same key before this one, 0 for the
    first. Of the pushes with the same `collapse` key and recipient only the newest is sent.
    `strikes` counts the processes that are known to have died while delivering it. `attributes`
    and `trace_id` go into its receipts, for reports; a retry was due at `due_at_ms`.
    `addresses` says by sink where the push goes there, under an empty name for all other sinks;
    `payloads` what is sent there as it is. Of pushes of an app with the same `key` one is sent.
    `waits` has where its wait went before it was written again (`model.waits`); `tracestate` goes
    on beside the `traceparent` in `trace_id`.
    """

    task_id: str
    seq: Seq
    recipient: str
    title: str = ""
    body: str = ""
    data: dict[str, Any] | None = None
    expires_at_ms: int = 0
    submitted_at_ms: int = 0
    attempt: int = 1
    not_before_ms: int = 0
    zone: str = ""
    after_seq: SeqOrNone = 0
    collapse: str = ""
    strikes: int = 0
    attributes: dict[str, str] | None = None
    trace_id: str = ""
    due_at_ms: int = 0
    addresses: dict[str, str] | None = None
    payloads: dict[str, Any] | None = None
    key: str = ""
    waits: bytes | None = None
    tracestate: str = ""

    def address(self, sink: str) -> str:
        """Return where the push goes at this sink: to its recipient, unless there is an address.

        Empty when its row had no address for the sink.
        """
        addresses = self.addresses
        if addresses is None:
            return self.recipient
        return addresses.get(sink, addresses.get("", self.recipient))

    def payload(self, sink: str) -> Any:
        """Return what is sent at this sink as it is, None when there is nothing of the kind."""
        payloads = self.payloads or {}
        return payloads.get(sink, payloads.get(""))

    @property
    def push_id(self) -> str:
        """The id of the push, the same for every attempt: a sink uses it as its Idempotency-Key."""
        return f"{self.task_id}-{self.seq}"

    def span(self, name: str) -> AbstractContextManager[None]:
        """Time a part of a processor's work on it, as a span of its trace, if that is sampled."""
        return SPANS.get()(self, name)

    def __repr__(self) -> str:
        return f"Push({self.push_id}, attempt={self.attempt})"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Push)
_many_decoder = msgspec.msgpack.Decoder(list[Push])
_array_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_number_decoder = msgspec.msgpack.Decoder(int)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FIELDS = len(Push.__struct_fields__)
# How the array of a push begins ("an array, of a length in two bytes") with so many left out.
_HEADS = [b"\xdc" + (_FIELDS - left_out).to_bytes(2, "big") for left_out in range(6)]


def encode(push: Push, before: bytes = b"") -> bytes:
    """Return the bytes that travel on a lane.

    A push that came in the bytes `before` keeps the fields at their end that are not known here.
    Last fields that it does not have are left out: most have neither addresses nor any behind them.
    """
    body = _encoder.encode(push)
    if not push.tracestate:  # each of them is one byte then
        is_short = push.addresses is None and push.payloads is None
        left_out = 1 if push.waits is not None else 2 if push.key else 5 if is_short else 3
        body = _HEADS[left_out] + body[3:-left_out]
    unknown = _array_decoder.decode(before)[_FIELDS:] if before else None
    if not unknown:
        return body
    return _encoder.encode([*_array_decoder.decode(_encoder.encode(push)), *unknown])


def decode(body: bytes) -> Push:
    """Return the push in these bytes.

    Raises:
        UnknownFormat: they are of a format that came later.
        MalformedPush: the bytes are not a push, or more than a push may have.
    """
    if len(body) > LARGEST:
        require_known(body, FORMAT)
        raise MalformedPush(f"{len(body)} bytes on a lane, over the limit of {MAX_PUSH_BYTES}")
    try:
        return _decoder.decode(body)
    except UNREADABLE as error:
        require_known(body, FORMAT)
        raise MalformedPush(f"{len(body)} bytes on a lane are not a push") from error


def decode_many(bodies: Sequence[bytes]) -> list[Push]:
    """Return the pushes in these bodies, at less than half the cost of decoding each.

    Raises:
        MalformedPush: one of them cannot be read.
    """
    if max(map(len, bodies)) > LARGEST:
        raise MalformedPush(f"one of {len(bodies)} pushes is over the limit of {MAX_PUSH_BYTES}")
    head = b"\xdd" + len(bodies).to_bytes(4, "big")
    try:
        return _many_decoder.decode(b"".join((head, *bodies)))
    except UNREADABLE as error:
        raise MalformedPush(f"one of {len(bodies)} pushes cannot be read") from error


def require_known(body: bytes, known: int, what: str = "a message on a lane") -> None:
    """Raise UnknownFormat for a whole array that begins with a higher number than `known`."""
    try:
        first = _number_decoder.decode(_array_decoder.decode(body)[0])
    except (*UNREADABLE, IndexError):
        return
    if first > known:
        raise UnknownFormat(first, what)


class Kind(StrEnum):
    """The kind of an outcome. Each but `RETRY` ends the push."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    EXPIRED = "expired"
    DROPPED = "dropped"


class Arrival(StrEnum):
    """The knowledge of a sink about a push that failed: whether it can have arrived."""

    REFUSED = "refused"
    """The push cannot have arrived."""

    FAILED = "failed"
    """The push failed, as far as the sink was told."""

    UNKNOWN = "unknown"
    """The push may have arrived: nothing was heard of it."""


class Scope(StrEnum):
    """The smallest thing that explains an outcome, from narrow to wide."""

    PUSH = "push"
    """This push alone: others to the same recipient may get through."""

    RECIPIENT = "recipient"
    """The recipient or token; other recipients are not concerned."""

    APP = "app"
    """The app that submitted the push, or its credentials."""

    HOST = "host"
    """The host that was asked, where a sink asks many."""

    SINK = "sink"
    """The sink: any other push would have fared the same."""


class Outcome(msgspec.Struct, frozen=True):
    """The answer of a sink for one push.

    `after_s` is a wait that the sink asked for (Retry-After), None for the task's own backoff.
    `pause_task` asks for the whole task to be paused for `reason`: the push goes back to its lane
    and no attempt is counted. `arrival` says whether a failed push may have arrived, for tasks that
    must not repeat it. `scope` is the thing that the outcome is about; None when the sink cannot
    tell whether the push or the sink itself is at fault. With `refuses_us` it refuses our
    credentials, and rests until they are replaced. `gone_at_ms` is when the provider found a dead
    address gone, 0 if it does not say. `goes_to` is set by the dispatcher alone: the sink that a
    dead push goes on to. `is_silent` says that the time ran out: a sink that is silent is not tried
    again as soon as one that answers, or refuses connections.
    """

    kind: Kind
    reason: str = ""
    after_s: float | None = None
    pause_task: bool = False
    arrival: Arrival = Arrival.FAILED
    scope: Scope | None = None
    refuses_us: bool = False
    goes_to: str = ""
    gone_at_ms: int = 0
    is_silent: bool = False

    @staticmethod
    def delivered() -> Outcome:
        return DELIVERED

    @staticmethod
    def retry(
        reason: str, after_s: float | None = None, *, arrival: Arrival = Arrival.FAILED
    ) -> Outcome:
        """Return the outcome of a push that may be tried again, at the cost of an attempt."""
        return Outcome(Kind.RETRY, reason, after_s, arrival=arrival)

    @staticmethod
    def throttled(
        reason: str,
        after_s: float | None = None,
        scope: Scope = Scope.SINK,
        *,
        arrival: Arrival = Arrival.REFUSED,
    ) -> Outcome:
        """Return the outcome of a failure that is not about the push, which loses no attempt.

        `scope` cannot take any push now, for `after_s` if known.
        """
        return Outcome(Kind.RETRY, reason, after_s, arrival=arrival, scope=scope)

    @staticmethod
    def refused(reason: str) -> Outcome:
        """Return the outcome of a push that was refused as our credentials are bad.

        The sink is held for `reason`, and tried again slowly; no push loses an attempt.
        """
        return Outcome(
            Kind.RETRY, reason, arrival=Arrival.REFUSED, scope=Scope.SINK, refuses_us=True
        )

    @staticmethod
    def pause(reason: str, *, arrival: Arrival = Arrival.REFUSED) -> Outcome:
        return Outcome(Kind.RETRY, reason, pause_task=True, arrival=arrival)

    @staticmethod
    def dead(
        reason: str, *, arrival: Arrival = Arrival.FAILED, scope: Scope | None = Scope.PUSH
    ) -> Outcome:
        """Return the outcome of a push that is not tried again.

        A `scope` of None says that a broken sink may answer so too.
        """
        return Outcome(Kind.DEAD, reason, arrival=arrival, scope=scope)

    @staticmethod
    def gone(reason: str, gone_at_ms: int = 0) -> Outcome:
        """Return the outcome of a push whose address is dead at this sink, for every push.

        `gone_at_ms` is the Unix time in milliseconds at which the provider found it so, if told: an
        address that was registered later stays.
        """
        return Outcome(Kind.DEAD, reason, scope=Scope.RECIPIENT, gone_at_ms=gone_at_ms)

    @staticmethod
    def expired() -> Outcome:
        return EXPIRED

    @staticmethod
    def dropped(reason: str) -> Outcome:
        return Outcome(Kind.DROPPED, reason)


DELIVERED = Outcome(Kind.DELIVERED)
EXPIRED = Outcome(Kind.EXPIRED, "past its expiry")


class DeadPush(msgspec.Struct, frozen=True, array_like=True):
    """A push on the dead-letter lane: its bytes as it travelled, why it died, when and where.

    `sink` is empty when no sink had to do with it.
    """

    task_id: str
    seq: int
    attempt: int
    reason: str
    died_at_ms: int
    body: bytes
    sink: str = ""

    def __repr__(self) -> str:
        return f"DeadPush({self.task_id}-{self.seq}, {self.reason!r})"


def encode_dead(dead: DeadPush) -> bytes:
    return _encoder.encode(dead)
