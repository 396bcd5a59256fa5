"""Gates: whatever may keep a push of a lane from taking its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pushlane.core.lane import Job
from pushlane.core.push import Push


class BaseOption:
    """What gates and guards have in common: most have a say for a push's task alone."""

    changed: Callable[[], None] = staticmethod(lambda: None)  # as long as it stands in no list

    def concerns_push(self, push: Push) -> bool:
        return False

    def took_back(self, jobs: Sequence[Job]) -> None:
        """Hear of pushes that did not go: what let them go lets them again."""
