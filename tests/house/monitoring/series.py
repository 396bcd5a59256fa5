"""Series for promtool: by their names and labels the values of each minute."""

from __future__ import annotations


def two(name: str, values: str, more: str = "", labels: str = "") -> dict[str, str]:
    """A series of each of two pods."""
    given = f"{labels}, " if labels else ""
    return {
        f'{name}{{{given}pod="a", job="pushlane"}}': values,
        f'{name}{{{given}pod="b", job="pushlane"}}': more or values,
    }


def states(state: str, values: str, more: str = "") -> dict[str, str]:
    """The breakers of two pods that are in one state, else closed: 1 or 0 by the minute."""
    opposite = {"0x60": "1x60", "1x60": "0x60"}
    more = more or values
    return {
        **two("pushlane_sink_state", values, more, f'sink="app", state="{state}"'),
        **two(
            "pushlane_sink_state", opposite[values], opposite[more], 'sink="app", state="closed"'
        ),
    }


def refused(values: str, more: str = "") -> dict[str, str]:
    return two("pushlane_sink_refuses_us", values, more, 'sink="app"')


def restarts(first: str, second: str) -> dict[str, str]:
    """Those of two workers of a pod."""
    labels = 'pod="a", job="pushlane"'
    return {
        f'pushlane_worker_restarts_total{{worker="0", {labels}}}': first,
        f'pushlane_worker_restarts_total{{worker="1", {labels}}}': second,
    }


def outcomes(delivered: int, dead: int) -> dict[str, str]:
    """Pushes a minute of two pods."""
    labels = 'level="high", sink="app", outcome="{}"'
    return {
        **two("pushlane_outcomes_total", f"0+{delivered}x60", "", labels.format("delivered")),
        **two("pushlane_outcomes_total", f"0+{dead}x60", "", labels.format("dead")),
    }


def late(drain_s: str, backlog: str) -> dict[str, str]:
    return {
        'pushlane_drain_seconds{sink="app", job="pushlane", pod="a"}': drain_s,
        'pushlane_drain_target_seconds{job="pushlane", pod="a"}': "300x60",
        'pushlane_drain_backlog{sink="app", job="pushlane", pod="a"}': backlog,
    }


def waits(level: str, age_s: str, backlog: str) -> dict[str, str]:
    labels = f'level="{level}", sink="app", job="pushlane"'
    return {
        f"pushlane_oldest_age_seconds{{{labels}}}": age_s,
        f"pushlane_backlog{{{labels}}}": backlog,
    }


def shares(entitled: float, observed: float, backlog: int = 100_000) -> dict[str, str]:
    """A level that sends 10 pushes a second."""
    labels = 'level="high", sink="app", job="pushlane"'
    return {
        f"pushlane_backlog{{{labels}}}": f"{backlog}x60",
        f"pushlane_rate{{{labels}}}": "10x60",
        f"pushlane_entitled_share{{{labels}}}": f"{entitled}x60",
        f"pushlane_observed_share{{{labels}}}": f"{observed}x60",
    }


def disks(free: str) -> dict[str, str]:
    """A full data volume beside one with room, and the sizes of both."""
    return {
        'pushlane_disk_free_bytes{dir="data", instance="a", job="pushlane"}': free,
        'pushlane_disk_free_bytes{dir="data", instance="b", job="pushlane"}': "900x60",
        **{
            f'pushlane_disk_size_bytes{{dir="data", instance="{one}", job="pushlane"}}': "1000x60"
            for one in "ab"
        },
    }


def versions(first: str, second: str) -> dict[str, str]:
    labels = 'version="{}", format="2"'
    return {
        **two("pushlane_info", first, "", labels.format("0.2.0")),
        **two("pushlane_info", second, "", labels.format("0.3.0")),
    }


def looked(name: str, values: str) -> dict[str, str]:
    return {f'pushlane_{name}_looked_at_seconds{{job="pushlane", pod="a"}}': values}
