"""The connection to the broker, and the bridge from its threads to the event loop.

The client answers on threads of its own. They touch nothing of asyncio but `wake`, and a call
never blocks the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import _pulsar
import certifi
import pulsar

from pushlane.lanes.errors import BadInput, UnknownLane, Unreachable
from pushlane.lanes.pulsar.vendor_errors import failure
from pushlane.lanes.settings import Settings

OPERATION_TIMEOUT_S = 10
_ANSWER_S = 1.0

Answer = Callable[..., None]


def wake(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Run the callback on the loop, from any thread."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop is closed: nobody is left to tell
        return


def ignore(result: _pulsar.Result) -> None:
    """Ignore the answer of a call that nobody waits for."""


class Connection:
    """One client of the broker. `raw` is pulsar-client's own object.

    `is_away` is set when something could not be opened, or was found lost, until something is open.
    """

    def __init__(self, raw: _pulsar.Client, url: str) -> None:
        self.raw = raw
        self.url = url
        self.is_away = False

    async def call(
        self,
        doing: str,
        start: Callable[[Answer], None],
        discard: Callable[[Any], None] | None = None,
    ) -> Any:
        """Start a call of the client and wait for its answer.

        `discard` gets an answer that comes after the waiting task was cancelled.

        Raises:
            PushlaneError: the meaning of the result code.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[_pulsar.Result, Any]] = loop.create_future()

        def settle(result: _pulsar.Result, value: Any) -> None:
            if not answered.cancelled():
                answered.set_result((result, value))
            elif discard is not None and not result.value:
                discard(value)

        start(lambda result, value=None: wake(loop, settle, result, value))
        result, value = await answered
        if result.value:
            raise failure(result, self.url, doing)
        return value

    async def open(
        self,
        topic: str,
        doing: str,
        start: Callable[[Answer], None],
    ) -> Any:
        """Call the client, as `call` does, to open a reader or a producer of the topic.

        What comes after the waiting task was cancelled is closed. While the broker is away this
        fails within a second. An attempt that began in an outage is made again by the client after
        ever longer waits, so the one that gets through has to be a new one.
        """
        if self.is_away and not await self.answers(topic):
            raise failure(_pulsar.Result.ConnectError, self.url, doing)
        try:
            opened = await self.call(doing, start, discard=lambda late: late.close_async(ignore))
        except Unreachable:
            self.is_away = True
            raise
        self.is_away = False
        return opened

    async def probe(self, topic: str) -> None:
        """Ask the broker for any answer, even that there is no such topic.

        Raises:
            Unreachable: nothing answers within 10 s.
        """
        with suppress(UnknownLane):
            await self.call(
                "look up a topic", lambda done: self.raw.get_topic_partitions_async(topic, done)
            )

    async def answers(self, topic: str) -> bool:
        """Return whether the broker answers anything within a second.

        The client tries a lost connection again after ever longer waits, up to a minute: this is a
        new attempt each time.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self.probe(topic)
        except (TimeoutError, Unreachable):
            return False
        return True

    async def close(self) -> None:
        """Send the acks that are held, and close every consumer and producer.

        Not by `close_async`: the client lets go of its callback on a thread that nobody waits for,
        which aborts the process when the interpreter ends at that moment.
        """
        with suppress(_pulsar.PulsarException):  # the broker is away: it lets go of us by itself
            await asyncio.to_thread(self.raw.close)


@asynccontextmanager
async def open_connection(settings: Settings) -> AsyncIterator[Connection]:
    """Connect to the broker, once it has been seen to answer, and disconnect in the end.

    Raises:
        BadInput: the URL is none of a broker.
        Unreachable: nothing answers there within 10 s.
    """
    try:
        raw = _pulsar.Client(settings.broker, _configuration(settings))
    except ValueError as error:
        raise BadInput(
            f"broker {settings.broker!r} is no URL like pulsar://127.0.0.1:6650 ({error})"
        ) from error
    connection = Connection(raw, settings.broker)
    try:
        await connection.probe(f"persistent://{settings.namespace}/probe")
        yield connection
    finally:
        await connection.close()


def _configuration(settings: Settings) -> _pulsar.ClientConfiguration:
    configuration = _pulsar.ClientConfiguration()
    configuration.operation_timeout_seconds(OPERATION_TIMEOUT_S)
    configuration.connection_timeout(OPERATION_TIMEOUT_S * 1000 // 2)
    configuration.stats_interval_in_seconds(0)
    configuration.tls_validate_hostname(True)  # by default every host may have any certificate
    configuration.tls_allow_insecure_connection(False)
    # Without a file the client trusts nobody's on some systems; certifi comes with it.
    configuration.tls_trust_certs_file_path(str(settings.pulsar_ca_file or certifi.where()))
    # It would write to the terminal; with a Python logger the client's threads can deadlock.
    configuration.set_file_logger(_pulsar.LoggerLevel.Error, os.devnull)
    if settings.pulsar_token is not None:
        token = settings.pulsar_token.reveal()
        configuration.authentication(pulsar.AuthenticationToken(token).auth)
    return configuration
