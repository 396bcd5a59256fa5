"""The bounds of a producer: how much it may hold, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from pushlane.core.push import MAX_PUSH_BYTES
from pushlane.util.conversion import number, whole

_MIB = 1024 * 1024
MAX_SPOOL_BYTES = 1024 * _MIB


@dataclass(frozen=True)
class ProducerOptions:
    """The bounds of a producer, with their defaults.

    A batch is sent when it has `max_batch` pushes (the settings' `batch` unless given) or
    `max_batch_bytes`, or `linger_s` after its first push. `push` waits for room in the buffer for
    at most `max_block_s`; 0 is never. A spool is synced to its disk at least every `fsync_every_s`,
    and before anything of it is sent; its files take at most `max_spool_bytes`.

    Raises:
        BadInput: a bound that cannot be.
    """

    max_batch: int | None = None
    max_batch_bytes: int = _MIB // 2
    linger_s: float = 0.05
    max_block_s: float = 1.0
    max_buffer_bytes: int = 32 * _MIB
    max_spool_bytes: int = MAX_SPOOL_BYTES
    fsync_every_s: float = 1.0

    def __post_init__(self) -> None:
        most = {"max_batch": 10_000, "max_batch_bytes": 4 * _MIB, "linger_s": 60}
        least = {"max_batch": 1, "max_batch_bytes": 1, "max_buffer_bytes": MAX_PUSH_BYTES}
        for name, value in list(vars(self).items()):
            if value is None and name == "max_batch":
                continue
            if name == "max_spool_bytes":
                least[name] = 4 * (self.max_batch_bytes + MAX_PUSH_BYTES)
            convert = number if name.endswith("_s") else whole
            kept = convert(name, value, least.get(name, 0), most.get(name), of=" of a producer")
            object.__setattr__(self, name, kept)
