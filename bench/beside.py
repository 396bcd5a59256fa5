"""Puts the figures of a sink beside those of bare clients, in the JSON and in the table.

Rates and CPU times are medians over the rounds, ratios those of rounds. A run whose receiver was
busy is told by its round: the receiver may have limited who sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from bench.cpu import CpuMeter, Middle
from bench.figures import Figure
from pushlane.core.errors import BadInput

OURS = "ours"
BARE = "pyreqwest"
"""The bare client whose figures have no name before them in the JSON."""
_BUSY = 0.45
_LEAST_PUSHES = 4_000


class Measured(NamedTuple):
    """A run's rate, the CPU time a push of who sent and of the receiver, whose share of a core."""

    rate: float
    cpu_us: float
    receiver_cpu_us: float
    receiver_share: float

    @classmethod
    def of(cls, part: Middle, sender: CpuMeter, receiver: CpuMeter) -> Measured:
        share = receiver.share(part)
        return cls(part.rate, sender.cpu_us(part), receiver.cpu_us(part), share)

    def __str__(self) -> str:
        busy = ", which was busy" if self.receiver_share > _BUSY else ""
        return (
            f"{self.rate:,.0f}/s, {self.cpu_us:.1f} us of CPU a push, the receiver "
            f"{self.receiver_cpu_us:.1f} us{busy}"
        )


Runs = Mapping[str, Sequence[Measured]]
"""A run a round, by who sent: ours, and each bare client by its name."""


def require_enough(rounds: int, pushes: int) -> None:
    """Raise BadInput for less than can be measured."""
    if rounds < 1:
        raise BadInput(f"--rounds {rounds} measures nothing: give 1 or more")
    if pushes < _LEAST_PUSHES:
        raise BadInput(f"--pushes {pushes} are too few: give {_LEAST_PUSHES:,} or more")


def summary(runs: Runs, prefix: str, bare_rate: str) -> dict[str, Any]:
    """Return the JSON of what was measured in one way; `bare_rate` ends the key of a bare rate."""
    ours = runs[OURS]
    result: dict[str, Any] = {
        f"{prefix}rate": round(median(one.rate for one in ours)),
        **_cpu(ours, prefix),
        f"{prefix}receiver_cpu_max": round(
            max(one.receiver_share for some in runs.values() for one in some), 2
        ),
    }
    for name, bare in runs.items():
        if name == OURS:
            continue
        named = prefix if name == BARE else f"{prefix}{name}_"
        ratios = [our.rate / other.rate for our, other in zip(ours, bare, strict=True)]
        result |= {
            f"{named}{bare_rate}": round(median(one.rate for one in bare)),
            f"{named}ratio": round(median(ratios), 3),
            f"{named}ratios": [round(ratio, 3) for ratio in ratios],
            **_cpu(bare, f"{named}bare_"),
        }
    return result


def _cpu(runs: Sequence[Measured], prefix: str) -> dict[str, float]:
    return {
        f"{prefix}cpu_us": round(median(one.cpu_us for one in runs), 1),
        f"{prefix}receiver_cpu_us": round(median(one.receiver_cpu_us for one in runs), 1),
    }


def busy(runs: Runs, way: str) -> dict[str, list[int]]:
    """Return the rounds, from 1, in which the receiver took over 45 % of a core, by who sent."""
    return {
        f"{name if name == OURS else f'bare {name}'}{way}": rounds
        for name, some in runs.items()
        if (rounds := [n for n, one in enumerate(some, 1) if one.receiver_share > _BUSY])
    }


def with_cpu(result: Mapping[str, Any], rate: str, cpu_us: str) -> str:
    """Put a rate and the CPU time beside it; results from before that was measured have none."""
    cpu = f", {result[cpu_us]:g} us" if cpu_us in result else ""
    return f"{result[rate]:,}/s{cpu}"


def receiver_figures(result: Mapping[str, Any], prefix: str, what: str) -> list[Figure]:
    """Return what the receiver took a push and of a core."""
    keys = [f"{prefix}receiver_cpu_us", f"{prefix}bare_receiver_cpu_us"]
    if not all(key in result for key in keys):
        return []
    ours, bare = (result[key] for key in keys)
    shown = f"{ours:g} and {bare:g} us; {result[f'{prefix}receiver_cpu_max']:.0%}"
    return [Figure(f"{what}: the receiver a push, ours and bare; of a core, most", shown)]


def busy_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return the remark on runs whose receiver may have limited them."""
    if "receiver_busy" not in result:
        return []
    runs = (
        f"{who} (round {', '.join(map(str, rounds))})"
        for who, rounds in result["receiver_busy"].items()
    )
    return [Figure(f"receiver over {_BUSY:.0%} of a core in", "; ".join(runs) or "none")]
