"""When so many pushes of a task are dead that it is paused."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pushlane.core.errors import BadInput
from pushlane.core.task import Progress

OFF = "off"
EXAMPLES = "5%, 50% of the first 1000, or off"
LEAST_ENDED = 100
"""A share of fewer pushes says too little: nothing is stopped before so many have ended."""

_RULE = re.compile(r"(\d{1,3}(?:\.\d{1,4})?) ?%(?: of the first ([\d,]{1,13}))?")
_LOWEST, _HIGHEST = 0.1, 99.0


class StopRule(NamedTuple):
    """Stops a task when more than `percent` of what has ended failed.

    `within` ends the rule after so many pushes; 0 never does.
    """

    percent: float
    within: int = 0

    def is_passed(self, now: Progress, added: int = 0, since: tuple[int, int] = (0, 0)) -> bool:
        """Tell whether the task has to stop; the last `added` were counted at once.

        `since` is how many had ended, and how many of them failed, before the rule began to count.
        """
        ended, failed = now.finished - since[0], now.failed - since[1]
        if ended < LEAST_ENDED or (self.within and max(ended - added, 0) >= self.within < ended):
            return False
        return 100 * failed > self.percent * ended

    def __str__(self) -> str:
        return f"{self.percent:g}%" + (f" of the first {self.within}" if self.within else "")


DEFAULT_STOP = str(StopRule(50, 1_000))
"""The rule of tasks that are submitted with a total."""


def stored_stop(text: str) -> str:
    """Return a rule as it is stored; empty when none is given. Raises BadInput as parsing does."""
    return "" if text == "" else str(parse_stop_rule(text) or OFF)


@lru_cache(maxsize=256)
def read_stop_rule(text: str) -> StopRule | None:
    """Return the rule that is stored as this text; None for `off`, and for a newer version's."""
    try:
        return parse_stop_rule(text)
    except BadInput:
        return None


def parse_stop_rule(text: str) -> StopRule | None:
    """Return the rule in a text like `50% of the first 1000`, None for `off`. Raises BadInput."""
    if not isinstance(text, str):
        raise BadInput(f"stop-if-dead {text!r} is not a text; write {EXAMPLES}")
    if text == OFF:
        return None
    found = _RULE.fullmatch(text.strip())
    if found is None:
        wrong = "has no %" if re.fullmatch(r"\d*\.?\d+", text) else "cannot be read"
        raise BadInput(f"stop-if-dead {text[:40]!r} {wrong}; write {EXAMPLES}")
    percent, within = float(found[1]), int((found[2] or "0").replace(",", "") or 0)
    if not _LOWEST <= percent <= _HIGHEST:
        raise BadInput(
            f"stop-if-dead {text!r} is not from {_LOWEST:g}% to {_HIGHEST:g}%; write {EXAMPLES}"
        )
    if found[2] and within < LEAST_ENDED:
        raise BadInput(
            f"stop-if-dead {text!r} looks at too few: nothing is stopped before {LEAST_ENDED} "
            f"pushes have ended; write {EXAMPLES}"
        )
    return StopRule(percent, within)
