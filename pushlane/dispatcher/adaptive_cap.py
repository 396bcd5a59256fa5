"""How many deliveries a sink bears at once, found out by its latency and its errors.

Additive increase, multiplicative decrease, as in TCP (Chiu and Jain, 1989); growth of latency over
its best counts like an error, before the sink begins to refuse (TCP Vegas).
"""

from __future__ import annotations

from pushlane.core.slots import Batch, Slots
from pushlane.dispatcher.failures import Sign, sign_of

_FEWEST = 8
_MOST_ERRORS = 0.1
_SLOWER = 2.0
_FALLS_TO = 0.5  # so low that the best latency is seen again
_BEST_FADES = 1.001
_NEW_BEST = 1.02
_STRAINED = frozenset({Sign.REFUSED, Sign.FAILED, Sign.SILENT})


class AdaptiveCap:
    """A cap between `floor` and `ceiling`, for deliveries in batch.

    It begins at the floor and doubles until there is first trouble. It is looked at once in as many
    landings as there are places, so that each step has shown what it does before the next one.
    """

    def __init__(self, floor: int, ceiling: int) -> None:
        self._floor = floor
        self._ceiling = max(floor, ceiling)
        self._cap = float(floor)
        self._had_trouble = False
        self._best_s = 0.0
        self._landed = 0
        self._errors = 0
        self._sum_s = 0.0
        self._was_full = False

    @property
    def cap(self) -> int:
        """How many deliveries may be in batch now."""
        return int(self._cap)

    def landed(self, latency_s: float, in_flight: int, *, is_error: bool) -> None:
        """Hear of a delivery, and how many were in batch with it.

        An error is one that says something of the sink: refused, busy, timed out.
        """
        self._landed += 1
        self._errors += is_error
        self._sum_s += latency_s
        self._was_full = self._was_full or in_flight >= self.cap
        if self._landed >= max(_FEWEST, self.cap):
            self._step()

    def _step(self) -> None:
        mean_s = self._sum_s / self._landed
        if self._errors > _MOST_ERRORS * self._landed:
            self._fall()
        elif self._best_s and mean_s > _SLOWER * self._best_s:
            self._fall()
            self._best_s *= _NEW_BEST  # it may be slower for good, whatever is in batch
        else:
            self._best_s = min(self._best_s * _BEST_FADES, mean_s) if self._best_s else mean_s
            if self._was_full:  # else it shows nothing of more
                more = 1 if self._had_trouble else self._cap
                self._cap = min(self._ceiling, self._cap + more)
        self._landed = self._errors = 0
        self._sum_s = 0.0
        self._was_full = False

    def _fall(self) -> None:
        self._cap = max(self._floor, self._cap * _FALLS_TO)
        self._had_trouble = True


class CapWatch:
    """Keeps the slots in use under the cap that it finds."""

    def __init__(self, cap: AdaptiveCap) -> None:
        self._cap = cap
        self._slots: Slots | None = None

    def limit(self, slots: Slots) -> None:
        """Let no more of these be in use, from now on."""
        self._slots = slots
        slots.usable = self._cap.cap

    def launched(self, batch: Batch) -> None:
        """Hear of pushes that go: they say nothing of the sink yet."""

    def landed(self, batch: Batch, now_s: float) -> None:
        if self._slots is None:
            return
        for outcome in batch.outcomes:
            is_error = sign_of(outcome) in _STRAINED
            self._cap.landed(batch.took_s, self._slots.in_flight, is_error=is_error)
        self._slots.usable = self._cap.cap
