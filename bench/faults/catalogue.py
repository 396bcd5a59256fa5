"""Which faults there are, under which load each strikes, and what is promised of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from bench.backlog import BUNDLE
from bench.faults import chaos, clusters, kills, outages, registry_losses, rests
from bench.faults.feed import Mode
from bench.faults.stream import Load, Stream
from bench.faults.verdict import Bound, Tally
from bench.faults.world import CLUSTER, EMBEDDED, PULSAR, SMALL_DISK, SYNCED
from pushlane.core.task import DeliveryMode, OnUnknown

Strike = Callable[[Stream], Awaitable[float]]
Bounded = Callable[[int, Mode, Load, Tally], Bound]

AT_LEAST_ONCE = Mode("at_least_once", DeliveryMode.AT_LEAST_ONCE)
AT_MOST_ONCE = Mode("at_most_once", DeliveryMode.AT_MOST_ONCE)
ONCE = Mode("once, sink honours keys", DeliveryMode.ONCE, honour=True)
RESEND = Mode("once, resend", DeliveryMode.ONCE)
BURY = Mode("once, bury", DeliveryMode.ONCE, OnUnknown.BURY)
MIXED = Mode("mixed", DeliveryMode.AT_LEAST_ONCE, among=(AT_LEAST_ONCE, AT_MOST_ONCE, RESEND, BURY))
MODES = (AT_LEAST_ONCE, AT_MOST_ONCE, ONCE, RESEND, BURY, MIXED)

ONE = Load()
TWO = Load(processes=2)
EIGHT = Load(processes=8)
HANG_PATIENCE_S = 5.0
TWO_WORKERS = Load(
    sink="bench.faults.hanging:send",
    flags=("--workers", "2", "--loop-patience", f"{HANG_PATIENCE_S:g}"),
)
TWO_FOR_LONG = Load(processes=2, backlog=6_000, recovery_deadline_s=120.0)
IMPATIENT = Load(flags=("--retry-timeouts",), environment={"PUSHLANE_SINK_TIMEOUT_S": "1"})
DOWN = Load(backlog=20_000, attempts=5)
AWAY = Load(backlog=10_000, attempts=5)
DOWN_IMPATIENT = replace(IMPATIENT, backlog=20_000, attempts=5)
MANY = Load(
    answer_ms=100.0,
    pushes=20,
    backlog=20_000,
    written_deadline_s=600.0,
    recovery_deadline_s=120.0,
)
WEBHOOK = Load(slots=50, answer_ms=2.0, slow=0.5, failing=0.02, client="loop")
WEBHOOK_HURRIED = replace(WEBHOOK, environment={"PUSHLANE_DRAIN_TIMEOUT_S": "0.05"})
TWO_WEBHOOKS = replace(WEBHOOK, processes=2, recovery_deadline_s=120.0)
TINY_TASKS = Load(pushes=10, backlog=300)
COUNTS_LOST = Load(finish_deadline_s=200.0)  # looked for every minute
COUNTS_LOST_BY_TWO = replace(COUNTS_LOST, processes=2)

BOTH = EMBEDDED + PULSAR

KEEP_ALIVE_S = 60.0  # a broker notices within two of its intervals of 30 s that a client is silent
AGAIN_S = 10.0
PROBED_S = 1.5  # a second until the next probe, and its way
APART_S = 20.0  # what has a strike goes two at a time, in steps of a second


def nothing(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    return Bound(lost=0, duplicates=0)


def of_one_process(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """Bound repeats by what one process has in flight or, without a ledger, not yet counted."""
    in_flight = faults * load.slots
    if mode.delivery is DeliveryMode.AT_LEAST_ONCE:
        return Bound(0, in_flight + faults * tally.busiest_window)
    if mode.delivery is DeliveryMode.AT_MOST_ONCE or mode.on_unknown is OnUnknown.BURY:
        return Bound(in_flight, 0)
    return Bound(0, 0 if mode.honour else in_flight)


def or_failed(bound: Bounded) -> Bounded:
    """Let pushes of at_most_once be lost, too, that were answered 500: they are not tried again."""

    def bounded(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
        lost, duplicates = bound(faults, mode, load, tally)
        return Bound(lost + (tally.answers.get("500", 0) if mode.is_strict else 0), duplicates)

    return bounded


def of_two_processes(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """Beside what the frozen one had, what the other had in flight when it woke.

    pyreqwest calls late what was answered while the process was frozen, also a 500: it is dead.
    """
    lost, duplicates = of_one_process(2 * faults, mode, load, tally)
    return Bound(lost + (0 if load.client == "loop" else faults * load.slots), duplicates)


def what_was_not_acked(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """An ack leaves within 0.15 s of the last outcome of its bundle; what is older is known to the
    broker. Of each task one bundle is open.
    """
    open_bundles = load.backlog // load.pushes + 1
    return Bound(0, faults * (load.slots + 3 * tally.busiest_window + open_bundles * (BUNDLE - 1)))


def what_was_cut(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """Nobody can tell whether a push arrived whose answer was cut off."""
    return Bound(0, 0 if mode.honour else tally.answers.get("cut", 0))


def dead_by_promise(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """What may have arrived and must not go again: in flight until it rests, then one a probe."""
    if mode.delivery is DeliveryMode.AT_LEAST_ONCE:
        return Bound(0, 0)
    return _until_it_rests(faults, load, rests.EARLY_PROBES)


def silent_ones(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """A delivery that timed out may have arrived, whatever the mode."""
    return _until_it_rests(faults, load, 1)


def cut_off(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    """The answers on their way when the sink ended."""
    in_flight = faults * load.slots
    strict = mode.delivery is DeliveryMode.AT_MOST_ONCE
    return Bound(in_flight, 0) if strict else Bound(0, in_flight)


def wrongly_buried(faults: int, mode: Mode, load: Load, tally: Tally) -> Bound:
    return Bound(50 * faults, 0)


def _until_it_rests(faults: int, load: Load, early: int) -> Bound:
    return Bound(faults * (2 * load.slots + int(rests.PROBES_PER_S * load.outage_s) + early), 0)


@dataclass(frozen=True)
class Fault:
    """`strike` makes it happen once, and returns the Unix time at which it was over; pushes go on
    `within_s` of that.
    """

    name: str
    strike: Strike
    runs: int
    bound: Bounded = nothing
    load: Load = ONE
    places: tuple[str, ...] = BOTH
    modes: tuple[Mode, ...] = (AT_LEAST_ONCE,)
    within_s: float = float("inf")


_CERTAIN = (AT_LEAST_ONCE, ONCE)
_MIXED: dict[str, Any] = {"places": EMBEDDED, "modes": (MIXED,)}
_PROMISED = (AT_LEAST_ONCE, AT_MOST_ONCE)

FAULTS = (
    Fault("kill-random", kills.kill_at_random, 40, of_one_process, modes=MODES),
    Fault("kill-before-push", kills.kill_before_push, 15, of_one_process),
    Fault("kill-before-answer", kills.kill_before_answer, 15, of_one_process, modes=_CERTAIN),
    Fault("kill-before-ack", kills.kill_before_ack, 15, of_one_process, modes=_CERTAIN),
    Fault("kill-after-republish", kills.kill_after_republish, 15, of_one_process, modes=_CERTAIN),
    Fault("kill-one-of-two", kills.kill_at_random, 15, of_one_process, TWO),
    Fault("rolling-restart", kills.restart_gently, 15, nothing, TWO, modes=MODES),
    Fault("scale-down", kills.halve, 5, nothing, EIGHT, modes=_PROMISED),
    Fault("pod-killed", kills.kill_pod, 10, of_one_process, TWO, within_s=AGAIN_S),
    Fault(
        "pod-frozen",
        kills.freeze_pod,
        2,
        of_one_process,
        TWO_FOR_LONG,
        within_s=KEEP_ALIVE_S + AGAIN_S,
    ),
    Fault(
        "worker-hung",
        kills.hang_worker,
        10,
        of_one_process,
        TWO_WORKERS,
        EMBEDDED,
        within_s=HANG_PATIENCE_S + AGAIN_S + APART_S,
    ),
    Fault("freeze-12s", kills.freeze_12_s, 2, of_one_process, TWO, EMBEDDED, _CERTAIN),
    Fault("freeze-70s", kills.freeze_70_s, 1, of_one_process, TWO, BOTH, _CERTAIN),
    Fault(
        "webhook-killed", kills.kill_before_ack, 20, or_failed(of_one_process), WEBHOOK, **_MIXED
    ),
    Fault("webhook-stopped", kills.stop_before_ack, 20, or_failed(nothing), WEBHOOK, **_MIXED),
    Fault(
        "webhook-stopped-late",
        kills.stop_before_ack,
        20,
        or_failed(of_one_process),
        WEBHOOK_HURRIED,
        **_MIXED,
    ),
    Fault(
        "webhook-frozen-12s",
        kills.freeze_12_s,
        10,
        or_failed(of_two_processes),
        TWO_WEBHOOKS,
        **_MIXED,
    ),
    Fault(
        "webhook-frozen-70s",
        kills.freeze_70_s,
        2,
        or_failed(of_two_processes),
        TWO_WEBHOOKS,
        **_MIXED,
    ),
    Fault("webhook-keys-changed", kills.change_keys, 80, or_failed(nothing), WEBHOOK, **_MIXED),
    Fault("broker-killed", outages.kill_broker, 3, of_one_process, ONE, PULSAR + SYNCED, _CERTAIN),
    Fault("broker-cut", outages.cut_broker, 8, of_one_process, ONE, PULSAR, _CERTAIN),
    Fault("broker-stalled-5s", outages.stall_broker, 3, of_one_process, ONE, PULSAR),
    Fault("broker-stalled-65s", outages.stall_broker_long, 1, of_one_process, ONE, PULSAR),
    Fault("redis-killed", outages.kill_redis, 5, load=COUNTS_LOST, places=PULSAR, modes=_CERTAIN),
    Fault("redis-frozen-12s", outages.freeze_redis, 2, places=PULSAR, modes=_CERTAIN),
    Fault("redis-cut", outages.cut_redis, 5, places=PULSAR, modes=_CERTAIN),
    Fault("redis-stalled-12s", outages.stall_redis, 1, places=PULSAR),
    Fault("broker-killed-1000-lanes", outages.kill_broker_of_many, 1, of_one_process, MANY, PULSAR),
    Fault("admin-chaos", chaos.odd_admin, 1, places=PULSAR, modes=_CERTAIN),
    Fault("redis-chaos", chaos.odd_redis, 1, places=PULSAR, modes=_CERTAIN),
    Fault(
        "redis-emptied-and-a-kill",
        outages.empty_redis_and_kill,
        3,
        what_was_not_acked,
        COUNTS_LOST,
        PULSAR,
    ),
    Fault("redis-emptied", outages.empty_redis, 3, load=COUNTS_LOST, places=PULSAR),
    Fault(
        "redis-emptied-between-reads",
        registry_losses.empty_between_reads,
        10,
        load=COUNTS_LOST,
        places=PULSAR,
    ),
    Fault(
        "redis-fails-over-stale",
        registry_losses.fail_over,
        10,
        load=COUNTS_LOST_BY_TWO,
        places=PULSAR,
    ),
    Fault("pushes-of-forgotten", registry_losses.push_of_forgotten, 10, places=PULSAR),
    Fault("100000-pushes-of-forgotten", registry_losses.many_of_forgotten, 10, places=PULSAR),
    Fault(
        "broker-stalled-while-retried",
        registry_losses.stall_broker_while_retried,
        10,
        places=PULSAR,
    ),
    Fault("sink-429", outages.sink_429, 8, modes=_CERTAIN),
    Fault("sink-500", outages.sink_500, 8, modes=_CERTAIN),
    Fault("sink-reset", outages.sink_reset, 8, modes=_CERTAIN),
    Fault("sink-hang", outages.sink_hang, 8, load=IMPATIENT, modes=_CERTAIN),
    Fault("sink-cut", outages.sink_cut, 8, what_was_cut, modes=_CERTAIN),
    Fault("sink-away-503", rests.sink_away, 5, load=AWAY, modes=_CERTAIN, within_s=PROBED_S),
    Fault("sink-away-refused", rests.sink_away_refuses, 5, cut_off, AWAY, within_s=PROBED_S),
    Fault("sink-down-503", rests.sink_503, 1, dead_by_promise, DOWN, modes=_PROMISED),
    Fault("sink-down-refused", rests.sink_refuses, 1, cut_off, DOWN, modes=_PROMISED),
    Fault("sink-down-silent", rests.sink_silent, 1, silent_ones, DOWN, modes=_PROMISED),
    Fault("sink-down-silent-retried", rests.sink_silent, 1, nothing, DOWN_IMPATIENT),
    Fault("sink-half-30", rests.sink_30_percent, 1, load=DOWN),
    Fault("sink-half-60", rests.sink_60_percent, 1, load=DOWN),
    Fault("sink-wrong", rests.sink_wrong, 1, wrongly_buried, DOWN),
    Fault("kill-while-429", kills.kill_while_refused, 15, of_one_process),
    Fault("disk-full", outages.fill_disk, 4, places=SMALL_DISK, modes=_CERTAIN),
    Fault(
        "cluster-broker-killed",
        clusters.kill_broker,
        3,
        of_one_process,
        places=CLUSTER,
        modes=_CERTAIN,
        within_s=AGAIN_S,
    ),
    Fault("cluster-bookie-killed", clusters.kill_bookie, 3, places=CLUSTER),
    Fault("cluster-topics-move", clusters.move_topics, 8, of_one_process, TWO, CLUSTER),
    Fault("topic-churn", outages.churn, 10, load=TINY_TASKS),
)
