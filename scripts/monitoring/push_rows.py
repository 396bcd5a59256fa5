"""Rows about pushes: who waits, who goes, and what becomes of them."""

from __future__ import annotations

from scripts.monitoring.asking import (
    CHOSEN,
    NUMBER,
    OVER,
    PART,
    PER_S,
    QUANTILES,
    SECONDS,
    line,
    quantiles,
)
from scripts.monitoring.expression import top
from scripts.monitoring.known import known
from scripts.monitoring.panels import Look, Panel, Query
from scripts.monitoring.recorded import DELIVERY, LIMIT_WAIT, WAITED

_TOP = 10


def queue() -> tuple[Panel, ...]:
    """Return panels of what is not sent yet."""
    by_level = "{{level}} {{sink}}"
    task, app = known("pushlane_task_backlog"), known("pushlane_app_backlog")
    return (
        Panel(
            "Backlog",
            NUMBER,
            (Query(CHOSEN.once(known("pushlane_backlog")), by_level),),
            Look.STACK,
        ),
        Panel(
            "Oldest task",
            SECONDS,
            (Query(CHOSEN.once(known("pushlane_oldest_age_seconds")), by_level),),
        ),
        Panel(
            "Oldest task, whatever holds it",
            SECONDS,
            (Query(CHOSEN.once(known("pushlane_unsent_oldest_age_seconds")), by_level),),
        ),
        Panel(
            "Wait for their time",
            NUMBER,
            (Query(CHOSEN.once(known("pushlane_waiting_backlog")), by_level),),
            Look.STACK,
        ),
        Panel("Tasks", NUMBER, (Query(top(_TOP, CHOSEN.once(task)), "{{task}}"),), Look.TABLE),
        Panel("Apps", NUMBER, (Query(top(_TOP, CHOSEN.once(app)), "{{app}}"),), Look.TABLE),
    )


def fairness() -> tuple[Panel, ...]:
    """Return panels of who gets the sinks, beside who is entitled to them."""
    return (
        _shares("Shares of levels", "level", ""),
        _shares("Shares of apps", "app", "app_"),
        line(
            "Weights of levels",
            NUMBER,
            CHOSEN.highest(known("pushlane_weight"), "level", "sink"),
            "{{level}} {{sink}}",
        ),
        line(
            "Sent, by level",
            PER_S,
            CHOSEN.rate(known("pushlane_picked_total"), "level", over=OVER),
            "{{level}}",
            Look.STACK,
        ),
    )


def _shares(title: str, label: str, prefix: str) -> Panel:
    entitled = CHOSEN.once(known(f"pushlane_{prefix}entitled_share"))
    observed = CHOSEN.once(known(f"pushlane_{prefix}observed_share"))
    legend = f"{{{{{label}}}}} {{{{sink}}}}"
    queries = Query(observed, legend), Query(entitled, f"{legend} entitled", is_dashed=True)
    return Panel(title, PART, queries)


def deliveries() -> tuple[Panel, ...]:
    """Return panels of what is sent, how long it takes and what becomes of it."""
    return (*_rates(), *_times(), *_failures())


def _rates() -> tuple[Panel, ...]:
    return (
        line(
            "Outcomes",
            PER_S,
            CHOSEN.rate(known("pushlane_outcomes_total"), "outcome", over=OVER),
            "{{outcome}}",
            Look.STACK,
        ),
        line(
            "Delivered, by sink",
            PER_S,
            CHOSEN.rate(known("pushlane_outcomes_total"), "sink", over=OVER, outcome="delivered"),
            "{{sink}}",
            Look.STACK,
        ),
    )


def _times() -> tuple[Panel, ...]:
    waited = [CHOSEN.recorded_quantile(part, WAITED.metric, "level") for part in QUANTILES]
    took = [CHOSEN.recorded_quantile(part, DELIVERY.metric, "sink") for part in QUANTILES]
    return (
        quantiles("Wait until the sink has it, from when it could go", waited, "{{level}}"),
        quantiles("Time of a delivery", took, "{{sink}}"),
    )


def _failures() -> tuple[Panel, ...]:
    return tuple(
        line(title, PER_S, CHOSEN.rate(known(name), "reason", over=OVER), "{{reason}}", width=6)
        for title, name in (
            ("Retries", "pushlane_retries_total"),
            ("Dead", "pushlane_dead_total"),
            ("Not sent", "pushlane_dropped_total"),
            ("Dead addresses", "pushlane_dead_addresses_total"),
        )
    )


def sinks() -> tuple[Panel, ...]:
    """Return panels of what the sinks take, and what keeps pushes from them."""
    return (*_states(), *_room(), *_limits())


def _states() -> tuple[Panel, ...]:
    probes, spared = known("pushlane_sink_probes_total"), known("pushlane_spared_total")
    return (
        line(
            "Dispatchers, by the state of the sink",
            NUMBER,
            CHOSEN.total(known("pushlane_sink_state"), "sink", "state"),
            "{{sink}} {{state}}",
            Look.STACK,
            width=8,
        ),
        line(
            "Dispatchers whose credentials are refused",
            NUMBER,
            CHOSEN.total(known("pushlane_sink_refuses_us"), "sink"),
            "{{sink}}",
            width=8,
        ),
        Panel(
            "Pushes that a sink could not take",
            PER_S,
            (
                Query(CHOSEN.rate(spared, "sink", over=OVER), "{{sink}} spared"),
                Query(CHOSEN.rate(probes, "sink", over=OVER), "{{sink}} probes"),
            ),
            width=8,
        ),
    )


def _room() -> tuple[Panel, ...]:
    full, opened = known("pushlane_lanes_full"), known("pushlane_lanes_open")
    in_flight, slots = known("pushlane_in_flight"), known("pushlane_slots")
    return (
        line(
            "Pushes at hand",
            NUMBER,
            CHOSEN.total(known("pushlane_at_hand"), "sink"),
            "{{sink}}",
            width=12,
        ),
        line(
            "Age of the oldest push at hand",
            SECONDS,
            CHOSEN.highest(known("pushlane_prefetch_age_seconds"), "sink"),
            "{{sink}}",
            width=12,
        ),
        Panel(
            "Slots",
            NUMBER,
            (
                Query(CHOSEN.total(in_flight, "sink"), "{{sink}} in flight"),
                Query(CHOSEN.total(slots, "sink"), "{{sink}} usable", is_dashed=True),
            ),
            width=8,
        ),
        line(
            "Put off after a refusal",
            NUMBER,
            CHOSEN.total(known("pushlane_refused"), "sink"),
            "{{sink}}",
            width=8,
        ),
        Panel(
            "Lanes",
            NUMBER,
            (
                Query(CHOSEN.total(opened, "sink"), "{{sink}} open"),
                Query(CHOSEN.total(full, "sink"), "{{sink}} full"),
            ),
            width=8,
        ),
    )


def _limits() -> tuple[Panel, ...]:
    waits = [CHOSEN.recorded_quantile(part, LIMIT_WAIT.metric, "scope") for part in QUANTILES]
    return (
        line(
            "Waits for a limit",
            PER_S,
            CHOSEN.rate(known("pushlane_limited_total"), "scope", "sink", over=OVER),
            "{{scope}} {{sink}}",
            width=8,
        ),
        quantiles("Time waited for a limit", waits, "{{scope}}", width=8),
        line(
            "Dispatchers that can lease no limits",
            NUMBER,
            CHOSEN.total(known("pushlane_limiter_away"), "sink"),
            "{{sink}}",
            width=8,
        ),
    )
