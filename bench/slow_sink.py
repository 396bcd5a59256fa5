"""A slow sink of one's own for `bench memory`, in a module that loads nothing else."""

from __future__ import annotations

import asyncio

_DELIVERY_S = 0.05


async def deliver_slowly(_push: object) -> None:
    """Take a push in its time, as a processor does that `dispatch --sink` names."""
    await asyncio.sleep(_DELIVERY_S)
