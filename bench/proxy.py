"""TCP proxies that can be cut or stalled, answer oddly, or lead elsewhere: the network.

They run on a thread of their own, so that they go on whatever the benchmark does.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

_READ_AT_ONCE = 64 * 1024


class Way(NamedTuple):
    """From where to where, on one port."""

    listen: str
    target: str
    port: int


class Odd(NamedTuple):
    """An answer in place of a service's own: after so long these bytes, then the end."""

    says: bytes = b""
    after_s: float = 0.0


class Proxy:
    """Forwards connections. Its methods are for any thread, and hold at once."""

    def __init__(self, way: Way, loop: asyncio.AbstractEventLoop) -> None:
        self._way = way
        self._loop = loop
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = False
        self._odd: Sequence[Odd] = ()
        self._odd_share = 0.0
        self._port = way.port
        self._strike: Callable[[], None] | None = None
        self._strike_at: Callable[[bytes], bool] = lambda data: True
        self._strike_in = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        way = self._way
        self._server = await asyncio.start_server(self._serve, way.listen, way.port)

    def cut(self) -> None:
        """Break every connection; new ones break at once."""
        self._do(self._cut)

    def stall(self) -> None:
        """Connections stay, and nothing gets through."""
        self._do(self._flowing.clear)

    def answer_oddly(self, answers: Sequence[Odd], share: float) -> None:
        """This share of what is asked gets one of the answers, and never reaches the service."""
        self._do(lambda: self._turn_odd(answers, share))

    def lead_to(self, port: int) -> None:
        """Break every connection; new ones lead to this port of the target."""
        self._do(lambda: self._lead_to(port))

    def strike_before(
        self, asks: Callable[[bytes], bool], skipped: int, strike: Callable[[], None]
    ) -> None:
        """Call it once, before something gets through that asks so, after so many others that do.

        It holds up all that is asked here meanwhile.
        """
        self._do(lambda: self._plan(asks, skipped, strike))

    @property
    def has_struck(self) -> bool:
        return self._strike is None

    def heal(self) -> None:
        self._do(self._heal)

    def _do(self, action: Callable[[], None]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(action)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def _lead_to(self, port: int) -> None:
        self._port = port
        for writer in self._writers:
            writer.transport.abort()

    def _plan(
        self, asks: Callable[[bytes], bool], skipped: int, strike: Callable[[], None]
    ) -> None:
        self._strike, self._strike_at, self._strike_in = strike, asks, skipped

    def _look_at(self, asked: bytes) -> None:
        if self._strike is None or not self._strike_at(asked):
            return
        self._strike_in -= 1
        if self._strike_in < 0:
            self._strike()
            self._strike = None

    def _turn_odd(self, answers: Sequence[Odd], share: float) -> None:
        self._odd, self._odd_share = answers, share

    def _heal(self) -> None:
        self._is_cut = False
        self._odd = ()
        self._flowing.set()

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            if self._is_cut:
                return
            far, forth = await asyncio.open_connection(self._way.target, self._port)
        except OSError:  # the service is down: as if it had refused
            return
        else:
            await self._forward(near, forth, far, back)
        finally:
            back.transport.abort()

    async def _forward(
        self,
        near: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
        far: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        """Until one side has ended."""
        ends = {forth, back}
        self._writers |= ends
        pumps = [
            asyncio.create_task(self._pump(near, forth, back)),
            asyncio.create_task(self._pump(far, back, None)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in ends:
            end.transport.abort()
        self._writers -= ends

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        asker: asyncio.StreamWriter | None,
    ) -> None:
        """`asker` gets odd answers to what is asked; None for the way back."""
        try:
            while data := await source.read(_READ_AT_ONCE):
                await self._flowing.wait()
                if asker is not None:
                    self._look_at(data)
                if asker is not None and self._odd and random.random() < self._odd_share:
                    odd = random.choice(self._odd)
                    await asyncio.sleep(odd.after_s)
                    asker.write(odd.says)
                    await asker.drain()
                    asker.close()
                    return
                target.write(data)
                await target.drain()
        except OSError:  # broken: so is its other half, then
            return


@contextmanager
def proxies(ways: Sequence[Way]) -> Iterator[list[Proxy]]:
    """A proxy for each way, forwarding until the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxies", daemon=True)
    thread.start()
    opened = [Proxy(way, loop) for way in ways]
    try:
        for proxy in opened:
            asyncio.run_coroutine_threadsafe(proxy.open(), loop).result()
        yield opened
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_all() -> None:
    """What is connected ends with its proxy."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
