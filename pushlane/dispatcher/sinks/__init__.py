"""Where pushes are delivered: one file a kind of sink, all behind the port `core.ports.Sink`.

A sink says what became of each push. It never acks, retries or reads a lane. The module of a kind
has its options, which are what its table in the settings may hold, and can open the sink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import fields

from pushlane.core.errors import BadInput
from pushlane.core.ports import Sink
from pushlane.model.targets import PlainTarget
from pushlane.settings.sinks import OF_EVERY_SINK, unfit
from pushlane.util.extras import needs_extra
from pushlane.util.texts import did_you_mean, masked

KINDS = {
    "null": "plain:NullOptions",
    "log": "plain:LogOptions",
    "print": "plain:PrintOptions",
    "webhook": "webhook:WebhookOptions",
    "processor": "processor:ProcessorOptions",
    "on": "processor:ByTypeOptions",
    "fcm": "fcm:FcmOptions",
    "apns": "apns:ApnsOptions",
    "webpush": "webpush:WebPushOptions",
    "gorush": "gorush:GorushOptions",
    "http": "http_batch:HttpBatchOptions",
}
"""The module and the options of each kind of sink, loaded when a sink of the kind is opened."""

OVER_HTTP = frozenset({"webhook", "fcm", "apns", "webpush", "gorush", "http"})
"""The kinds that speak HTTP."""

_WORDS = ("null", "print", "log", "webhook", "webhook+h2c", "on")
_FUNCTION = re.compile(r"[\w.]+")


class SinkOptions(Protocol):
    """The options of one kind of sink, checked."""

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> Sink:
        """Open the sink. Raises BadInput when it cannot be."""

    def target(self) -> PlainTarget:
        """Return what it delivers to; of options with which it can be opened."""


def open_sink(spec: str, *, slots: int, timeout_s: float, retry_timeouts: bool = False) -> Sink:
    """The sink that a spec names. Raises BadInput when there is none; lists those there are.

    `slots` is how many deliveries are in flight at most. A delivery that takes over `timeout_s` is
    dead, as it may have arrived, unless `retry_timeouts`.
    """
    return opened(spec_options(spec), slots, timeout_s, retry_timeouts)


def spec_options(spec: str) -> SinkOptions:
    """Return the options of the sink that a spec names. Raises BadInput for no such sink."""
    kind, options = _read_spec(spec)
    return sink_options(kind, options, "the sink")


def opened(options: SinkOptions, slots: int, timeout_s: float, retry_timeouts: bool) -> Sink:
    """Open a sink, which then says what it delivers to. Raises BadInput when it cannot be."""
    sink = options.open(slots, timeout_s, retry_timeouts)
    cast(Any, sink).target = options.target()
    return sink


def sink_options(kind: str, options: Mapping[str, Any], who: str) -> SinkOptions:
    """Return the options of a sink of this kind; `who` names the sink in messages.

    Raises BadInput for no such kind or option, one that is not given, or one that cannot be.
    """
    described = require_options(kind, options, who)
    for field in fields(described):
        if field.name in options:
            value = options[field.name]
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                told = unfit(field.name, value, field.type)
                raise BadInput(f"{who}, of the kind {kind}: {told}") from error
        elif field.required:
            raise BadInput(f"{who}, of the kind {kind}: needs the option {field.name}")
    return cast(SinkOptions, msgspec.convert(dict(options), described))


def require_options(kind: str, names: Iterable[str], who: str) -> type[msgspec.Struct]:
    """Return the options' type of a kind of sink.

    Raises BadInput if it has not all these names, or a package of the kind is missing.
    """
    if kind not in KINDS:
        raise BadInput(
            f"{who}: there is no kind {kind[:40]!r}; use {', '.join(KINDS)}"
            f"{did_you_mean(kind, KINDS)}"
        )
    module, _, class_name = KINDS[kind].partition(":")
    with needs_extra("fcm", f"{who}, of the kind {kind},"):  # the one kind that has an extra
        loaded = import_module(f"{__name__}.{module}")
    described = getattr(loaded, class_name)
    known = described.__struct_fields__
    for name in names:
        if name not in known:
            if name == "http2":
                raise BadInput(
                    f"{who}: http2 is an option of fcm and apns only, not of the kind {kind}: it "
                    "is experimental, and not for hosts that come from rows; leave it out"
                )
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise BadInput(
                f"{who}: the kind {kind} has no option {name[:40]!r}"
                f"{did_you_mean(name, (*known, *OF_EVERY_SINK))}; {has}"
            )
    return cast("type[msgspec.Struct]", described)


def _read_spec(spec: str) -> tuple[str, dict[str, Any]]:
    kind, _, target = spec.partition(":")
    if spec.startswith(("http://", "https://")):
        kind, target = "webhook", spec
    if kind in ("null", "print") and not target:
        return kind, {}
    if kind == "log" and target:
        return kind, {"path": target}
    if kind in ("webhook", "webhook+h2c") and target:
        return "webhook", {"url": target, "only_http2": kind == "webhook+h2c"}
    if kind == "on" and _FUNCTION.fullmatch(target):
        return kind, {"module": target}
    if kind not in _WORDS and _FUNCTION.fullmatch(target):
        return "processor", {"function": spec}
    hint = "" if kind in _WORDS else did_you_mean(kind, _WORDS)
    # Of what comes after the colon nothing is shown: it may hold a token.
    shown = kind if target == "" else f"{kind}:…"
    raise BadInput(
        f"sink {masked(shown)!r} is not one of null, print, log:PATH, webhook:URL, "
        f"webhook+h2c:URL, package.module:callable or on:package.module{hint}"
    )
