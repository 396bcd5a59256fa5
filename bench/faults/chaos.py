"""Services that answer at random with refusals, halves, other things or nothing while pushes flow.

Pushes are refused in part meanwhile, so that later lanes are made. What reaches the service is
answered by it: a request that it heard is never taken back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.faults.stream import Stream
from bench.proxy import Odd, Proxy

LONGEST_STOP_S = 3.0
_SHARE = 0.3
_REFUSED = 0.1
_SILENCE_S = 10.0
_LOOK_EVERY_S = 0.05


def _http(status: int, body: bytes, length: int | None = None) -> Odd:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status} Odd\r\nContent-Type: application/json\r\nContent-Length: {size}"
    return Odd(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)


CUT = Odd()
SILENCE = Odd(after_s=_SILENCE_S)
ADMIN = (
    *(_http(status, b'{"reason":"odd"}') for status in (404, 412, 429, 500, 503)),
    _http(200, b"<html>hello</html>"),
    _http(200, b'{"half": ', length=100),
    CUT,
    SILENCE,
)
REDIS = (
    Odd(b"-LOADING Redis is loading the dataset in memory\r\n"),
    Odd(b"-READONLY You can't write against a read only replica.\r\n"),
    Odd(b"-ERR odd\r\n"),
    Odd(b"+OK\r\n"),
    Odd(b"$100\r\nhalf"),
    Odd(b"HTTP/1.1 200 OK\r\n\r\n"),
    CUT,
    SILENCE,
)


async def odd_admin(stream: Stream) -> float:
    """Lanes that are open go on as if nothing were."""
    longest_s = await _odd(stream, stream.services.broker_path[1], ADMIN)
    if longest_s > LONGEST_STOP_S:
        stream.broken.append(f"nothing arrived for {longest_s:.1f} s while the admin REST was odd")
    return time.time()


async def odd_redis(stream: Stream) -> float:
    await _odd(stream, stream.services.redis_path, REDIS)
    return time.time()


async def _odd(stream: Stream, path: Proxy, answers: Sequence[Odd]) -> float:
    """The longest time meanwhile in which nothing new arrived. It begins once all is under way."""
    await stream.oracle.arrivals(20 * stream.load.slots)
    await stream.oracle.behave("500", share=_REFUSED)
    path.answer_oddly(answers, _SHARE)
    longest_s = await longest_stop(stream, stream.load.outage_s / 2)
    path.heal()
    await stream.oracle.behave()
    return longest_s


async def longest_stop(stream: Stream, lasting_s: float) -> float:
    """The longest time in which nothing new arrived."""
    tally = stream.oracle.tally
    began_s = time.monotonic()
    kept, since_s, longest_s = len(tally.kept), began_s, 0.0
    while (now_s := time.monotonic()) < began_s + lasting_s:
        if len(tally.kept) > kept:
            kept, since_s = len(tally.kept), now_s
        longest_s = max(longest_s, now_s - since_s)
        await asyncio.sleep(_LOOK_EVERY_S)
    return longest_s
