"""The connection to the broker, and the bridge from its threads to the event loop.

The client answers on threads of its own. They touch nothing of asyncio but `wake`, and a call
never blocks the loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import _pulsar
import certifi

from pushlane.backends.pulsar.credentials import Credentials, credentials_of
from pushlane.backends.pulsar.vendor_errors import failure
from pushlane.core.errors import BadInput, PushlaneError, UnknownLane, Unreachable
from pushlane.settings import Settings
from pushlane.settings.transport import tls_files
from pushlane.util.errors import Denied, MissingPermission
from pushlane.util.threads import Threads
from pushlane.util.tls import TlsFiles, url_tls_problem

Got = TypeVar("Got")


async def hedged(
    attempt: Callable[[], Coroutine[Any, Any, Got]],
    discard: Callable[[Got], object] = lambda _: None,
    *,
    after_s: float,
    most: int,
) -> Got:
    """Return what the first attempt returns that succeeds; `discard` gets what others return.

    At most `most` begin, each `after_s` after the one before, or when all before have failed. A
    failure is raised when it comes before there is a second, or once all have begun: the caller may
    begin anew. Hedged requests are from Dean and Barroso, The Tail at Scale, 2013.
    """
    clock_s = asyncio.get_running_loop().time
    waiting: set[asyncio.Task[Got]] = set()
    begun, next_s = 0, clock_s()
    try:
        while True:
            if begun < most and clock_s() >= next_s:
                waiting.add(asyncio.create_task(attempt()))
                begun, next_s = begun + 1, clock_s() + after_s
            timeout_s = max(0.0, next_s - clock_s()) if begun < most else None
            done, waiting = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            got = [one.result() for one in done if one.exception() is None]
            for spare in got[1:]:
                discard(spare)
            if got:
                return got[0]
            if done and begun in {1, most}:
                return done.pop().result()
            if not waiting:
                next_s = clock_s()
    finally:
        for one in waiting:
            if not one.cancel() and one.exception() is None:
                discard(one.result())


log = logging.getLogger("pushlane.pulsar")

OPERATION_TIMEOUT_S = 10
CLOSE_PATIENCE_S = 60.0
_OPENED_AGAIN_AFTER_S = 2.0
MOST_OPENINGS = 5  # the last begins before the first has taken its 10 s to fail
_ANSWER_S = 1.0
_PROBED_AGAIN_AFTER_S = 0.4  # so that two hosts are asked in a second
_MOST_PROBES = 5
_MOST_BLOCKING = 16
_PROBED_TOPICS = 64

Answer = Callable[..., None]


def wake(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Run the callback on the loop, from any thread."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop is closed: nobody is left to tell
        return


def ignore(result: _pulsar.Result) -> None:
    """Ignore the answer of a call that nobody waits for."""


def _close(opened: _pulsar.Consumer | _pulsar.Producer) -> None:
    opened.close_async(ignore)


@dataclass(eq=False, repr=False)
class Connection:
    """One client of the broker. `raw` is pulsar-client's own object.

    `is_away` is set when something could not be opened, or was found lost, until something is open.
    `threads` are for calls of the client that block. One that asks a reader whether there is more,
    while the broker is away and the reader is closed, may never come back: no exit waits for it.
    """

    raw: _pulsar.Client
    url: str
    credentials: Credentials = field(default_factory=Credentials)
    is_away: bool = False
    threads: Threads = field(default_factory=lambda: Threads(_MOST_BLOCKING, "pushlane-pulsar"))
    _probes: Iterator[int] = field(default_factory=itertools.count)

    def failure(self, result: _pulsar.Result, doing: str) -> PushlaneError:
        """Make the error that a result code stands for, when `doing` failed."""
        return failure(result, self.url, doing, self.credentials)

    async def call(
        self,
        doing: str,
        start: Callable[[Answer], None],
        discard: Callable[[Any], None] | None = None,
    ) -> Any:
        """Start a call of the client and wait for its answer.

        `discard` gets an answer that comes when the waiting task is cancelled, or after that.

        Raises:
            PushlaneError: the meaning of the result code.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[_pulsar.Result, Any]] = loop.create_future()

        def settle(result: _pulsar.Result, value: Any) -> None:
            if not answered.cancelled():
                answered.set_result((result, value))
            else:
                drop(result, value)

        def drop(result: _pulsar.Result, value: Any) -> None:
            if discard is not None and not result.value:
                discard(value)

        start(lambda result, value=None: wake(loop, settle, result, value))
        try:
            result, value = await answered
        except asyncio.CancelledError:
            if not answered.cancelled():  # the answer came at the same moment
                drop(*answered.result())
            raise
        if result.value:
            raise self.failure(result, doing)
        return value

    async def open(
        self, topic: str, doing: str, start: Callable[[Answer], None], most: int = MOST_OPENINGS
    ) -> Any:
        """Call the client, as `call` does, to open a reader or a producer of the topic.

        One that takes long is begun again beside that. The client never asks again for a first one
        that is refused once it has the connection, as one is while its topic moves, nor for a
        broker that is gone by another way: it waits for the end of its operation timeout. When
        several open, all but the first are closed.
        """
        attempt = partial(self._open, topic, doing, start)
        return await hedged(attempt, _close, after_s=_OPENED_AGAIN_AFTER_S, most=most)

    async def _open(self, topic: str, doing: str, start: Callable[[Answer], None]) -> Any:
        """Open once. What comes after the waiting task was cancelled is closed.

        While the broker is away this fails within a second. An attempt that began in an outage is
        made again by the client after ever longer waits, so the one that gets through has to be a
        new one.
        """
        if self.is_away and not await self.answers(topic):
            raise self.failure(_pulsar.Result.ConnectError, doing)
        try:
            opened = await self.call(doing, start, discard=_close)
        except Unreachable:
            self.is_away = True
            raise
        self.is_away = False
        return opened

    async def probe(self, topic: str) -> None:
        """Ask the broker for any answer, even that there is no such topic, or none that we may use.

        Of several hosts one may be silent: each attempt is answered by the next one. It asks for a
        topic of its own, beside `topic`, since all who ask for one wait for the same answer.

        Raises:
            Denied: the broker does not accept our credentials.
            Unreachable: nothing answers within about 10 s.
        """
        await hedged(lambda: self._probe(topic), after_s=_PROBED_AGAIN_AFTER_S, most=_MOST_PROBES)

    async def _probe(self, topic: str) -> None:
        name = f"{topic}-probe-{next(self._probes) % _PROBED_TOPICS}"
        with suppress(UnknownLane, MissingPermission):
            await self.call(
                "look up a topic", lambda done: self.raw.get_topic_partitions_async(name, done)
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
        which aborts the process when the interpreter ends at that moment. The client's own close
        has been seen to wait for ever: it is given up after CLOSE_PATIENCE_S, and the broker lets
        go of us when the connection ends with the process.
        """
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            with suppress(_pulsar.PulsarException):  # the broker is away: it lets go by itself
                self.raw.close()
            wake(loop, closed.set)

        threading.Thread(target=close, name="close Pulsar", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await closed.wait()
        except TimeoutError:
            text = (
                "the client of Pulsar at %s did not close its connections in time: they are "
                "left open"
            )
            log.warning(text, self.url, extra={"action": "close_late"})
        self.threads.close()


@asynccontextmanager
async def open_connection(
    settings: Settings, credentials: Credentials | None = None
) -> AsyncIterator[Connection]:
    """Connect to the broker, once it has been seen to answer, and disconnect in the end.

    `credentials` are those of the settings, where somebody holds them already.

    Raises:
        BadInput: the URL is none of a broker, or a file cannot be used.
        Denied: the broker does not accept our credentials.
        Unreachable: nothing answers there within 10 s.
    """
    credentials = credentials or credentials_of(settings)
    await credentials.fresh_token()  # the client's threads only take what is there
    files = tls_files(settings, "pulsar")
    try:
        raw = _pulsar.Client(settings.broker, _configuration(files, credentials))
    except ValueError as error:
        raise BadInput(
            f"broker {settings.broker!r} is not a URL like pulsar://127.0.0.1:6650 ({error})"
        ) from error
    connection = Connection(raw, settings.broker, credentials)
    renewal = asyncio.create_task(credentials.keep_fresh(), name="renew token")
    try:
        await _first_answer(connection, settings, files)
        yield connection
    finally:
        renewal.cancel()
        await connection.close()


async def _first_answer(connection: Connection, settings: Settings, files: TlsFiles) -> None:
    """Wait until the broker answers; say what is wrong with TLS where that is the reason."""
    try:
        await connection.probe(f"persistent://{settings.namespace}/start")
    except Denied:
        raise
    except Unreachable as error:
        problem = await url_tls_problem(settings.broker, files)
        if not problem:
            raise
        raise Unreachable(f"Pulsar at {settings.broker} cannot be used: {problem}") from error


def _configuration(files: TlsFiles, credentials: Credentials) -> _pulsar.ClientConfiguration:
    files.check_ca()
    files.check_pair()
    configuration = _pulsar.ClientConfiguration()
    configuration.operation_timeout_seconds(OPERATION_TIMEOUT_S)
    configuration.connection_timeout(OPERATION_TIMEOUT_S * 1000 // 2)
    configuration.stats_interval_in_seconds(0)
    configuration.tls_validate_hostname(True)  # by default every host may have any certificate
    configuration.tls_allow_insecure_connection(False)
    # Without a file the client trusts nobody's on some systems; certifi comes with it.
    configuration.tls_trust_certs_file_path(str(files.ca_file or certifi.where()))
    # It would write to the terminal; with a Python logger the client's threads can deadlock.
    configuration.set_file_logger(_pulsar.LoggerLevel.Error, os.devnull)
    if files.cert_file is not None:  # read again for each connection
        configuration.tls_certificate_file_path(str(files.cert_file))
        configuration.tls_private_key_file_path(str(files.key_file))
    if credentials.has_token:  # asked for each connection, and when the broker finds it expired
        configuration.authentication(_pulsar.AuthenticationToken.create(credentials.token))
    elif files.cert_file is not None:
        pair = str(files.cert_file), str(files.key_file)
        configuration.authentication(_pulsar.AuthenticationTLS.create(*pair))
    return configuration
