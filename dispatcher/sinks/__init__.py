"""Where pushes are delivered: one file a sink, all behind the port `lanes.ports.Sink`.

A sink says what became of each push. It never acks, retries or reads a lane.
"""

from __future__ import annotations

import re
from pathlib import Path

from pushlane.lanes.errors import BadInput
from pushlane.lanes.ports import Sink
from pushlane.lanes.suggestions import did_you_mean
from pushlane.lanes.urls import masked

_KINDS = ("null", "log", "webhook", "webhook+h2c", "on")
_FUNCTION = re.compile(r"[\w.]+")
_FORMS = (
    "null, log:PATH, webhook:URL, webhook+h2c:URL, package.module:callable or on:package.module"
)


def open_sink(spec: str, *, slots: int, timeout_s: float, retry_timeouts: bool = False) -> Sink:
    """The sink that a spec names.

    `slots` is how many deliveries are in flight at most. A delivery that takes over `timeout_s` is
    dead, as it may have arrived, unless `retry_timeouts`.

    Raises:
        BadInput: no such sink; lists those there are.
    """
    kind, _, target = spec.partition(":")
    if spec.startswith(("http://", "https://")):
        kind, target = "webhook", spec
    if kind == "null" and not target:
        from pushlane.dispatcher.sinks.null import NullSink

        return NullSink()
    if kind == "log" and target:
        from pushlane.dispatcher.sinks.log import LogSink

        return LogSink(Path(target))
    if kind in ("webhook", "webhook+h2c") and target:
        from pushlane.dispatcher.sinks.webhook import WebhookSink

        only_http2 = kind == "webhook+h2c"
        return WebhookSink(target, slots, timeout_s, retry_timeouts, only_http2=only_http2)
    if kind == "on" and _FUNCTION.fullmatch(target):
        from pushlane.dispatcher.sinks.by_type import TypeSink, load_marked

        return TypeSink(load_marked(target), slots, timeout_s, retry_timeouts)
    if kind not in _KINDS and _FUNCTION.fullmatch(target):
        from pushlane.dispatcher.sinks.processor import ProcessorSink, load

        return ProcessorSink(load(spec), slots, timeout_s, retry_timeouts)
    hint = "" if kind in _KINDS else did_you_mean(kind, _KINDS)
    # Of what comes after the colon nothing is shown: it may hold a token.
    shown = kind if target == "" else f"{kind}:…"
    raise BadInput(f"sink {masked(shown)!r} is not one of {_FORMS}{hint}")
