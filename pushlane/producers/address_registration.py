"""Registers addresses: those that were dead at a sink are sent to again from then on.

An address is known again by its keyed hash alone. That it was registered is remembered, so that
late news of an earlier death changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import itemgetter

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.lanes.recipient_hash import kept_hasher
from pushlane.lanes.suppression import scope_of
from pushlane.producers.addresses import address_text
from pushlane.producers.input import OnProgress
from pushlane.producers.suppress import (
    ChangedSuppressions,
    Values,
    change_hashes,
    usable_text,
    usable_value,
)
from pushlane.util.conversion import text

_AT_ONCE = 5_000


async def register_file(
    backend: Backend, sink: str, values: Values, tell: OnProgress
) -> ChangedSuppressions:
    """Register the values of a file at the sink.

    Raises:
        BadInput: the sink has no name, or the file cannot be read or has no such column.
        Unreachable: a service does not answer; some of the values may be done.
    """
    _require_name(sink)

    async def register(hashes: list[int]) -> int:
        return await backend.dead_addresses.register(sink, hashes, now_ms())

    return await change_hashes(backend, values, address_text, register, tell)


async def register_lines(
    backend: Backend, sink: str, lines: Iterable[bytes]
) -> ChangedSuppressions:
    """Register an address a line at the sink; empty lines are passed over.

    Raises:
        BadInput: the sink has no name.
        Unreachable: a service does not answer; some of the lines may be done.
    """
    _require_name(sink)
    hasher = await kept_hasher(backend.documents)
    given = changed = left_out = 0
    first = ""
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    filled = filter(itemgetter(1), numbered)
    while some := list(islice(filled, _AT_ONCE)):
        texts = [usable_text(line.decode(errors="surrogateescape")) for _, line in some]
        bad = [number for (number, _), text in zip(some, texts, strict=True) if not text]
        hashes = hasher.hashes(list(dict.fromkeys(filter(None, texts))))
        changed += await backend.dead_addresses.register(sink, hashes, now_ms())
        given += len(hashes)
        left_out += len(bad)
        first = first or (f"line {bad[0]}" if bad else "")
    return ChangedSuppressions(given, changed, left_out, first)


async def register_address(backend: Backend, sink: str, address: str) -> bool:
    """Register one address; return whether it was dead or suppressed at the sink.

    Raises:
        BadInput: the sink has no name, or no push can have such an address.
    """
    _require_name(sink)
    hasher = await kept_hasher(backend.documents)
    hashes = hasher.hashes([usable_value(address)])
    return bool(await backend.dead_addresses.register(sink, hashes, now_ms()))


def _require_name(sink: str) -> None:
    if not text("sink", sink):
        raise BadInput("say at which sink the addresses are registered, by its name")
    scope_of(sink=sink)
