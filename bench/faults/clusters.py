"""Faults that happen to a cluster: a broker or a bookie killed, topics that move."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from bench.faults.chaos import LONGEST_STOP_S, longest_stop
from bench.faults.held import arrives, waiting
from bench.faults.stream import Stream

_AFTER_A_BOOKIE_S = 8.0
_LANDED_S = 1.0


async def kill_broker(stream: Stream) -> float:
    """kill -9 of the one with most lanes; on again when each lane that it had is, since it has gone
    over to the other.
    """
    cluster, namespace = stream.cluster, stream.namespace
    lanes = {stream.feeder.lanes[task] for task in waiting(stream)}
    owners = await asyncio.to_thread(cluster.owners, namespace, list(lanes))
    [(killed, _)] = Counter(owners.values()).most_common(1)
    moved = [lane for lane, owner in owners.items() if owner == killed]
    await asyncio.to_thread(cluster.kill, f"broker-{killed}")
    await asyncio.sleep(_LANDED_S)
    waited_for = waiting(stream, moved)
    await asyncio.to_thread(cluster.taken_over, namespace, moved)
    taken_over_s = time.time()
    await arrives(stream, waited_for)
    took_s = time.time() - taken_over_s
    await asyncio.to_thread(cluster.start_broker, killed)
    await asyncio.to_thread(cluster.broker_answers, killed)
    return time.time() - took_s


async def kill_bookie(stream: Stream) -> float:
    """kill -9 of one of three: the others have all that it had."""
    cluster = stream.cluster
    await asyncio.to_thread(cluster.kill, "bookie-0")
    longest_s = await longest_stop(stream, _AFTER_A_BOOKIE_S)
    if longest_s > LONGEST_STOP_S:
        stream.broken.append(f"nothing arrived for {longest_s:.1f} s after a bookie was killed")
    await asyncio.to_thread(cluster.start_bookie, 0)
    await asyncio.to_thread(cluster.bookie_answers, 0)
    return time.time()


async def move_topics(stream: Stream) -> float:
    """All lanes are closed, and go to whichever broker; on again when each lane is."""
    began_s = time.time()
    await asyncio.to_thread(stream.cluster.unload, stream.namespace)
    await arrives(stream, waiting(stream))
    return began_s
