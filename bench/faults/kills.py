"""Faults that happen to dispatchers: killed at random or at a named point, frozen, told to stop.

The points are met from outside: the receiving end holds its answers or tells when it has given one,
and the kill follows.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time

from bench.faults import hanging
from bench.faults.held import arrive, held
from bench.faults.stream import Stream

_SLOTS_FILL_S = 0.15
_OUTCOME_TO_ACK_S = 0.12


async def kill_at_random(stream: Stream) -> float:
    return await _kill_and_restart(stream)


async def kill_before_push(stream: Stream) -> float:
    """Slots are taken and requests are on their way, but none has arrived."""
    await stream.oracle.deaf()
    await asyncio.sleep(_SLOTS_FILL_S)
    await stream.kill(stream.forks[0])
    await stream.oracle.hear()
    return _restarted(stream)


async def kill_before_answer(stream: Stream) -> float:
    """Pushes have arrived and are kept, but nobody was told."""
    await stream.oracle.behave("hold")
    await stream.oracle.arrivals(random.randint(1, stream.load.slots))
    await stream.kill(stream.forks[0])
    await stream.oracle.behave()
    await stream.oracle.free()
    return _restarted(stream)


async def kill_before_ack(stream: Stream) -> float:
    """Pushes were answered this moment: their acks are not sent yet."""
    await stream.oracle.arrivals(random.randint(1, 10 * stream.load.slots))
    return await _kill_and_restart(stream)


async def kill_after_republish(stream: Stream) -> float:
    """Pushes were refused: they are about to be, or just were, put on a lane again."""
    await stream.oracle.behave("500", share=0.5)
    await stream.oracle.arrivals(random.randint(1, 5 * stream.load.slots))
    await asyncio.sleep(random.uniform(0, _OUTCOME_TO_ACK_S))
    await stream.kill(stream.forks[0])
    await stream.oracle.behave()
    return _restarted(stream)


async def kill_while_refused(stream: Stream) -> float:
    """Of three pushes one is told to come again later."""
    await stream.oracle.behave("429", share=0.3)
    await stream.oracle.arrivals(random.randint(1, 20 * stream.load.slots))
    return await _kill_and_restart(stream)


async def restart_gently(stream: Stream) -> float:
    """SIGTERM to the one that runs longest; a new one takes its place."""
    await stream.stop(stream.forks[0])
    return _restarted(stream)


async def stop_before_ack(stream: Stream) -> float:
    """SIGTERM when pushes were answered this moment; another process takes its place."""
    await stream.oracle.arrivals(random.randint(1, 10 * stream.load.slots))
    return await restart_gently(stream)


async def freeze_12_s(stream: Stream) -> float:
    return await _freeze(stream, 12.0)


async def freeze_70_s(stream: Stream) -> float:
    return await _freeze(stream, 70.0)


async def _freeze(stream: Stream, lasting_s: float) -> float:
    fork = stream.forks[0]
    stream.strikes()
    fork.send(signal.SIGSTOP)
    await asyncio.sleep(lasting_s)
    stream.strikes()
    fork.send(signal.SIGCONT)
    stream.forks.append(stream.forks.pop(0))
    return time.time()


async def change_keys(stream: Stream) -> float:
    """The sink is opened anew, with all slots in use."""
    before = stream.nursery.times("reopened")
    stream.change_keys()
    await stream.until(lambda: stream.nursery.times("reopened") > before, "it was not opened anew")
    return time.time()


async def kill_pod(stream: Stream) -> float:
    """kill -9 of one of two; on again when the other has sent all that the killed one held."""
    killed_s = time.time()
    await stream.kill(stream.forks[0])
    await arrive(stream, await held(stream))
    stream.start_dispatcher()
    return killed_s


async def freeze_pod(stream: Stream) -> float:
    """One of two is frozen for good; on again when the other has sent all that it held."""
    fork, frozen_s = stream.forks[0], time.time()
    fork.send(signal.SIGSTOP)
    await arrive(stream, await held(stream))
    await stream.kill(fork)
    stream.start_dispatcher()
    return frozen_s


async def hang_worker(stream: Stream) -> float:
    """One of two workers blocks its loop; on again when all that it held has arrived.

    Their parent is a new one each time: it gives up a worker that hangs five times.
    """
    nursery, before = stream.nursery, stream.nursery.times("started")
    await stream.stop(stream.forks[0])
    stream.start_dispatcher()
    await stream.until(lambda: nursery.times("started") >= before + 2, "two workers did not start")
    order = hanging.order(nursery.folder)
    await stream.until(lambda: not order.exists(), "no worker took the order to hang")
    hung_s = time.time()
    await arrive(stream, await held(stream))
    await stream.until(lambda: nursery.times("started") >= before + 3, "it was not started again")
    return hung_s


async def halve(stream: Stream) -> float:
    """SIGTERM to half of them at once, as an autoscaler does; then as many join."""
    leaving = stream.forks[: len(stream.forks) // 2]
    began_s = time.time()
    await asyncio.gather(*(stream.stop(fork) for fork in leaving))
    for _ in leaving:
        stream.start_dispatcher()
    return began_s


async def _kill_and_restart(stream: Stream) -> float:
    await stream.kill(stream.forks[0])
    return _restarted(stream)


def _restarted(stream: Stream) -> float:
    ended_s = time.time()
    stream.start_dispatcher()
    return ended_s
