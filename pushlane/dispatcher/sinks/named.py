"""Sinks as the settings name them, opened anew when a file that they read has changed.

So a token that is renewed on disk, as Kubernetes does with a secret, is used from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from pushlane.core.errors import BadInput
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.ports import Sink
from pushlane.dispatcher.sinks import (
    SinkOptions,
    open_sink,
    opened,
    require_options,
    sink_options,
    spec_options,
)
from pushlane.model.targets import PlainTarget, target_of
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings, option_of
from pushlane.util.files import stamp_of
from pushlane.util.texts import did_you_mean

log = logging.getLogger("pushlane.sinks")

_LOOK_EVERY_S = 1.0
_CLOSE_AFTER_S = 60.0


class NamedSink:
    """A sink of the settings. Its `deliver` is that of the sink which is open now."""

    def __init__(
        self, name: str, own: SinkSettings, settings: Settings, retry_timeouts: bool = False
    ) -> None:
        self.name = name
        self._retry_timeouts = own.retry_timeouts or retry_timeouts
        self._own = own
        self._settings = settings
        self._closing: set[asyncio.Task[None]] = set()
        self._ends = asyncio.Event()
        self._said: set[str] = set()
        self._seen = [stamp_of(path) for path in own.files()]
        self._open = self._opened()
        self.batch_size = self._open.batch_size
        self.mixes_tasks = self._open.mixes_tasks
        self.hosts_code = self._open.hosts_code
        self._use()

    async def close(self) -> None:
        self._ends.set()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._open.close()

    async def watch(self, reopened: Callable[[str], None]) -> None:
        """Open it anew whenever a file of its options changes, and tell its name, for ever.

        Say once of each of these files that others can read it.
        """
        while True:
            for said in self._own.files_open_to_others():
                if said not in self._said:
                    self._said.add(said)
                    log.warning("sink %s: %s", self.name, said, extra={"action": "file_open"})
            await asyncio.sleep(_LOOK_EVERY_S)
            if self.look():
                reopened(self.name)

    def look(self) -> bool:
        """Open it anew if a file has changed; tell whether it was."""
        seen = [stamp_of(path) for path in self._own.files()]
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            before, self._open = self._open, self._opened()
        except Exception as error:  # noqa: BLE001 - its text may hold a secret
            kind = type(error).__name__
            is_ours = isinstance(error, BadInput)
            told = error if is_ours else f"sink {self.name} cannot be opened again ({kind})"
            log.warning("%s; it keeps its old options", told, extra={"action": "sink_not_reopened"})
            return False
        self._use()
        closing = asyncio.create_task(self._close_later(before))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        log.info(
            "sink %s is opened again, as a file changed", self.name, extra={"action": "reopened"}
        )
        return True

    def _use(self) -> None:
        """Deliver by the sink that is open now."""
        self.deliver = self._open.deliver
        self.can_post = getattr(self._open, "can_post", False)
        self.post = getattr(self._open, "post", None)

    async def _close_later(self, sink: Sink) -> None:
        """Close a sink once its deliveries have had their time, as one may ask twice."""
        after_s = _CLOSE_AFTER_S + 2 * self._settings.sink_timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await self._ends.wait()
        await sink.close()

    def _opened(self) -> Sink:
        settings, options = self._settings, _options_of(self.name, self._own)
        try:
            sink = opened(options, settings.slots, settings.sink_timeout_s, self._retry_timeouts)
            self.target = target_of(sink)
            return sink
        except BadInput as error:
            raise BadInput(f"sink {self.name}: {error}") from error


def open_sinks(
    settings: Settings, serve: Sequence[str] = (), *, retry_timeouts: bool = False
) -> dict[str, Sink]:
    """Open these sinks, or all of the settings, by name. Raises BadInput when one cannot be."""
    sinks: dict[str, Sink] = {}
    for name in serve or settings.served:
        if name == DEFAULT_SINK:
            require_sink(settings, name)
            sinks[name] = open_sink(
                settings.sink,
                slots=settings.slots,
                timeout_s=settings.sink_timeout_s,
                retry_timeouts=retry_timeouts,
            )
        else:
            own = find_sink(settings, name)
            sinks[name] = NamedSink(name, own, settings.of_sink(name), retry_timeouts)
    return sinks


def require_sink(settings: Settings, name: str) -> None:
    """Raise BadInput for a sink that the settings do not have, `default` among them unless set."""
    if name != DEFAULT_SINK:
        find_sink(settings, name)
    elif name not in settings.served:
        raise BadInput(
            "the settings name sinks, and none of them is `default`: name one of them "
            f"({', '.join(settings.served)}), or set `sink`"
        )


def find_sink(settings: Settings, name: str) -> SinkSettings:
    """Return the settings of a sink. Raises BadInput, with the known names, when there are none."""
    own = settings.sinks.get(name)
    if own is None:
        known = ", ".join(settings.served)
        raise BadInput(
            f"there is no sink {name[:40]!r}; the settings have: {known}; add a table "
            f"[sinks.{name[:40]}], or name another file with --config"
            f"{did_you_mean(name, settings.served)}"
        )
    return own


def options_in(settings: Settings, name: str) -> SinkOptions:
    """Return the options of a sink; opens nothing. Raises BadInput when there cannot be such."""
    if name == DEFAULT_SINK:
        require_sink(settings, name)
        return spec_options(settings.sink)
    return _options_of(name, find_sink(settings, name))


def target_in(settings: Settings, name: str) -> PlainTarget:
    """Return what a sink delivers to; opens nothing. Raises BadInput when it cannot be opened."""
    options = options_in(settings, name)
    try:
        return options.target()
    except BadInput as error:
        raise BadInput(f"sink {name}: {error}") from error


def misspelt(settings: Settings, name: str) -> str:
    """Return what is wrong with the kind of a named sink, or with a name of its options.

    It is empty where nothing is, or the settings do not have the sink. Files and packages that only
    its dispatchers need are not looked for.
    """
    own = settings.sinks.get(name)
    try:
        if own is not None:
            _require_names(name, own)
    except BadInput as error:
        return "" if isinstance(error.__cause__, ModuleNotFoundError) else str(error)
    return ""


def _options_of(name: str, own: SinkSettings) -> SinkOptions:
    _require_names(name, own)  # before files are looked for
    return sink_options(own.kind, own.resolved(name), f"sink {name}")


def _require_names(name: str, own: SinkSettings) -> None:
    require_options(own.kind, map(option_of, own.options), f"sink {name}")
