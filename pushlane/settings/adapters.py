"""The adapters that the setting `broker` can name, and what each of them is able to do.

An adapter is one entry in `ADAPTERS` and one package, which is loaded when it is first used. Code
outside the adapters asks for a capability, never which broker it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pushlane.util.errors import NeedsBackend
from pushlane.util.texts import masked

if TYPE_CHECKING:
    from pushlane.settings import Settings


class Capabilities(NamedTuple):
    """The differences between backends that matter to those who use them."""

    is_local: bool = False
    """The store is the folder `data_dir` on this machine, and no service is asked."""
    remembers_sources: bool = False
    """The broker always knows how far a `Source` has published; others forget it when idle.

    It publishes whole or not at all, so what is published again needs no number there.
    """
    retains_freely: bool = False
    """A lane is kept for as long as its task asks; elsewhere for `retention_s` at most."""


class Adapter(NamedTuple):
    """The package of an adapter, to be loaded when it is used, and its capabilities."""

    package: str
    capabilities: Capabilities


_EMBEDDED = Adapter(
    "pushlane.backends.embedded",
    Capabilities(is_local=True, remembers_sources=True, retains_freely=True),
)
_PULSAR = Adapter("pushlane.backends.pulsar", Capabilities())

ADAPTERS: dict[str, Adapter] = {
    "embedded": _EMBEDDED,
    "pulsar://": _PULSAR,
    "pulsar+ssl://": _PULSAR,
}
"""Every adapter, by the scheme of the broker's URL, or by a word where there is no URL."""


def find_adapter(broker: str) -> Adapter | None:
    """Return the adapter for this value of the setting `broker`, None when there is none."""
    scheme, separator, _ = broker.partition("://")
    return ADAPTERS.get(scheme + separator)


def adapter_of(settings: Settings) -> Adapter:
    """Return the adapter that the settings name; they are validated, so there is one."""
    adapter = find_adapter(settings.broker)
    assert adapter is not None
    return adapter


def package_of(settings: Settings) -> str:
    """Return the package of their adapter. Raises NeedsBackend where they name a server instead."""
    if settings.url:
        raise NeedsBackend(masked(settings.url))
    return adapter_of(settings).package
