"""How answers tell where the waits of pushes went, and the words in which it is shown."""

from __future__ import annotations

import msgspec

from pushlane.model.wait_words import WAITED as WAITED
from pushlane.model.wait_words import label as label
from pushlane.model.wait_words import parts_of as parts_of
from pushlane.model.wait_words import sentence as sentence
from pushlane.model.wait_words import told_if_sent as told_if_sent
from pushlane.model.wait_words import took_text as took_text
from pushlane.model.wait_words import untold_text as untold_text


class WaitPartView(msgspec.Struct, frozen=True):
    """The part that one cause has in the waits of delivered pushes: `n` of them had it.

    The cause `waited` is the whole wait, from submitted to dispatched, of the `n` pushes of which
    the parts are known. Quantiles are over the `n` pushes.
    """

    cause: str
    n: int
    total_ms: int
    p50_ms: int
    p95_ms: int


class LevelWaitView(WaitPartView, frozen=True):
    """The same of a level."""

    level: str
