"""Which faults there are, under which load each strikes, and what is promised of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.faults import kills
from bench.faults.feed import Mode
from bench.faults.stream import Load, Stream
from bench.faults.verdict import Bound, Tally, unsent_acks
from lanes.task import DeliveryMode, OnUnknown

Strike = Callable[[Stream], Awaitable[float]]
Bounded = Callable[[int, Mode, Load, Tally], Bound]

AT_LEAST_ONCE = Mode("at_least_once", DeliveryMode.AT_LEAST_ONCE)
AT_MOST_ONCE = Mode("at_most_once", DeliveryMode.AT_MOST_ONCE)
ONCE = Mode("once, sink honours keys", DeliveryMode.ONCE, honour=True)
RESEND = Mode("once, resend", DeliveryMode.ONCE)
BURY = Mode("once, bury", DeliveryMode.ONCE, OnUnknown.BURY)
MODES = (AT_LEAST_ONCE, AT_MOST_ONCE, ONCE, RESEND, BURY)

ONE = Load()
TWO = Load(processes=2)
_LANES = 8


def nothing(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    return Bound(lost=0, duplicates=0)


def of_one_process(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """What one process has in flight, and without a ledger the acks that it has not sent."""
    in_flight = faults * load.slots
    if mode.delivery is DeliveryMode.AT_LEAST_ONCE:
        return Bound(0, in_flight + faults * unsent_acks(tally.busiest_window, _LANES))
    if mode.delivery is DeliveryMode.AT_MOST_ONCE or mode.on_unknown is OnUnknown.BURY:
        return Bound(in_flight, 0)
    return Bound(0, 0 if mode.honour else in_flight)


@dataclass(frozen=True)
class Fault:
    """`strike` makes it happen once, and returns the Unix time at which it was over."""

    name: str
    strike: Strike
    bound: Bounded
    runs: int
    load: Load = ONE
    brokers: tuple[str, ...] = ("embedded", "pulsar")
    modes: tuple[Mode, ...] = (AT_LEAST_ONCE,)


FAULTS = (
    Fault("kill-random", kills.kill_at_random, of_one_process, 60, modes=MODES),
    Fault("kill-before-push", kills.kill_before_push, of_one_process, 20),
    Fault("kill-before-answer", kills.kill_before_answer, of_one_process, 20),
    Fault("kill-before-ack", kills.kill_before_ack, of_one_process, 20),
    Fault("kill-after-republish", kills.kill_after_republish, of_one_process, 20),
    Fault("kill-one-of-two", kills.kill_at_random, of_one_process, 20, load=TWO),
    Fault("rolling-restart", kills.restart_gently, nothing, 20, load=TWO),
    Fault("freeze", kills.freeze_12_s, of_one_process, 2, TWO, brokers=("embedded",)),
    Fault("freeze", kills.freeze_70_s, of_one_process, 1, TWO, brokers=("pulsar",)),
)
