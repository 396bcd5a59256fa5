"""Rows about processes: what is well, what each has to do, and what it uses."""

from __future__ import annotations

from scripts.monitoring.asking import (
    ANYWHERE,
    BYTES,
    CHOSEN,
    NONE_IS_GOOD,
    NUMBER,
    OVER,
    PART,
    PER_S,
    QUANTILES,
    SECONDS,
    line,
    number,
    quantiles,
    unable,
)
from scripts.monitoring.expression import binary, or_zero
from scripts.monitoring.known import known
from scripts.monitoring.panels import Look, Panel, Query

_OURS = ("Pushlane.+",)


def wellness() -> tuple[Panel, ...]:
    """Return panels that say at a glance whether anything is wrong."""
    return (*_numbers(), *_drain())


def _numbers() -> tuple[Panel, ...]:
    leaders = known("pushlane_leader")
    firing = ANYWHERE.count(known("ALERTS"), alertname=_OURS, alertstate="firing")
    return (
        number("Leaders", CHOSEN.total(leaders), (None, "red"), (1, "green"), (2, "orange")),
        number("Dispatchers", CHOSEN.count(leaders), (None, "red"), (1, "green")),
        number("Without broker", unable("pushlane_broker_up"), *NONE_IS_GOOD),
        number("Without registry", unable("pushlane_registry_up"), *NONE_IS_GOOD),
        number(
            "Registry age",
            CHOSEN.highest(known("pushlane_registry_age_seconds")),
            *((None, "green"), (5, "orange"), (30, "red")),
            unit=SECONDS,
        ),
        number("Alerts that fire", or_zero(firing), *NONE_IS_GOOD),
    )


def _drain() -> tuple[Panel, ...]:
    drain, target = known("pushlane_drain_seconds"), known("pushlane_drain_target_seconds")
    firing = ANYWHERE.count(known("ALERTS"), "alertname", alertname=_OURS, alertstate="firing")
    return (
        Panel(
            "Time to drain",
            SECONDS,
            (
                Query(CHOSEN.once(drain), "{{sink}}"),
                Query(CHOSEN.once(target), "target", is_dashed=True),
            ),
            width=16,
        ),
        Panel("Alerts", NUMBER, (Query(firing, "{{alertname}}"),), Look.STACK, width=8),
    )


def receipts() -> tuple[Panel, ...]:
    """Return panels of receipts, from their log to the reports."""
    return (*_log(), *_pipeline())


def _log() -> tuple[Panel, ...]:
    append = known("pushlane_receipts_append_seconds")
    took = [CHOSEN.quantile(part, append, over=OVER) for part in QUANTILES]
    return (
        line(
            "Receipts made durable",
            PER_S,
            CHOSEN.rate(known("pushlane_receipts_total"), "sink", over=OVER),
            "{{sink}}",
            width=8,
        ),
        quantiles("Time of an append", took, "append", width=8),
        line(
            "Receipts not in their log yet",
            NUMBER,
            CHOSEN.total(known("pushlane_receipts_waiting"), "sink"),
            "{{sink}}",
            width=8,
        ),
        line(
            "Receipts lost",
            PER_S,
            CHOSEN.rate(known("pushlane_receipts_lost_total"), "sink", "reason", over=OVER),
            "{{sink}} {{reason}}",
            width=12,
        ),
        line(
            "Log of receipts behind",
            SECONDS,
            CHOSEN.highest(known("pushlane_receipts_behind_seconds"), "sink"),
            "{{sink}}",
            width=12,
        ),
    )


def _pipeline() -> tuple[Panel, ...]:
    batch = known("pushlane_pipeline_batch_seconds")
    took = [CHOSEN.quantile(part, batch, over=OVER) for part in QUANTILES]
    lag, lag_s = known("pushlane_receipts_lag"), known("pushlane_receipts_lag_seconds")
    stored = known("pushlane_receipts_stored_total")
    return (
        line("Reports behind", SECONDS, CHOSEN.highest(lag_s), "lag", width=6),
        line("Receipts behind", NUMBER, CHOSEN.highest(lag), "lag", width=6),
        line("Receipts stored", PER_S, CHOSEN.rate(stored, over=OVER), "stored", width=6),
        quantiles("Time of a batch", took, "batch", width=6),
    )


def others() -> tuple[Panel, ...]:
    """Return panels of what rules and alerts do, and of producers."""
    return (*_rules(), *_producers())


def _rules() -> tuple[Panel, ...]:
    events = CHOSEN.rate(known("pushlane_rules_events_total"), "rule", "result", over=OVER)
    evaluations = CHOSEN.rate(known("pushlane_alerts_evaluations_total"), "result", over=OVER)
    firing = CHOSEN.highest(known("pushlane_alerts_firing"), "rule")
    return (
        line("Events of rules", PER_S, events, "{{rule}} {{result}}", width=8),
        line("Evaluations of alert rules", PER_S, evaluations, "{{result}}", width=8),
        line("Alert rules that fire", NUMBER, firing, "{{rule}}", width=8),
    )


def _producers() -> tuple[Panel, ...]:
    took = [
        ANYWHERE.quantile(part, known("pushlane_producer_enqueue_seconds"), "producer", over=OVER)
        for part in QUANTILES
    ]
    return (
        _of_producers("Producers", PER_S, "rate", "accepted", "sent"),
        _of_producers("Not sent yet", NUMBER, "total", "buffered", "spooled"),
        _of_producers("Producers in trouble", PER_S, "rate", "refused", "failed_sends"),
        quantiles("Time to hand over", took, "{{producer}}", width=6),
    )


def _of_producers(title: str, unit: str, how: str, *names: str) -> Panel:
    """Show counters as rates, or gauges as sums, each with its word."""
    legend = "{{producer}} "
    if how == "rate":
        found = [known(f"pushlane_producer_{name}_total") for name in names]
        asked = [ANYWHERE.rate(metric, "producer", over=OVER) for metric in found]
    else:
        asked = [ANYWHERE.total(known(f"pushlane_producer_{name}"), "producer") for name in names]
    queries = [Query(one, legend + name) for one, name in zip(asked, names, strict=True)]
    return Panel(title, unit, queries, width=6)


def processes() -> tuple[Panel, ...]:
    """Return panels of the processes: versions, memory, files, disks."""
    each = ("instance", "worker")
    legend = "{{instance}} {{worker}}"
    memory = CHOSEN.total(known("process_resident_memory_bytes"), *each)
    cpu = CHOSEN.rate(known("process_cpu_seconds_total"), *each, over=OVER)
    opened = CHOSEN.total(known("process_open_fds"), *each)
    files = binary(opened, "/", CHOSEN.total(known("process_max_fds"), *each))
    free = binary(
        CHOSEN.lowest(known("pushlane_disk_free_bytes"), "instance", "dir"),
        "/",
        CHOSEN.lowest(known("pushlane_disk_size_bytes"), "instance", "dir"),
    )
    up, workers = known("up"), known("pushlane_worker_up")
    restarts = CHOSEN.increase(known("pushlane_worker_restarts_total"), *each, over=OVER)
    return (
        Panel(
            "Processes that answer",
            NUMBER,
            (
                Query(CHOSEN.total(up, "job"), "{{job}} up"),
                Query(CHOSEN.count(up, "job"), "{{job}} all", is_dashed=True),
                Query(CHOSEN.total(workers, "instance"), "workers of {{instance}}"),
            ),
            width=8,
        ),
        line(
            "Processes, by version",
            NUMBER,
            CHOSEN.total(known("pushlane_info"), "version"),
            "{{version}}",
            Look.STACK,
            width=8,
        ),
        line("Disk left", PART, free, "{{instance}} {{dir}}", width=8),
        line("Memory", BYTES, memory, legend, width=6),
        line("CPU", NUMBER, cpu, legend, width=6),
        line("Open files, of those it may have", PART, files, legend, width=6),
        line("Workers started again", NUMBER, restarts, legend, width=6),
    )
