"""How this side tells the receiving end what to do."""

from __future__ import annotations

import msgspec


class Command(msgspec.Struct, frozen=True):
    """One of:

    - `behave`: answer a `share` of requests this way (`how`): `ok`, `404`, `429`, `500`, `503`,
      `reset`, `hang`, `hold` (keep it, and answer nothing until `free`), `cut` (keep it, then cut
      the connection within the answer).
    - `tell`: say `told` on stdout once so many more have come (`after`).
    - `deaf`: read nothing more; `hear`: cut off what came meanwhile, and go on.
    - `free`: cut off whoever is left without an answer.
    - `refuse`: cut off everybody and refuse connections; `accept`: accept them again.
    """

    do: str
    how: str = "ok"
    share: float = 1.0
    after: int = 1
