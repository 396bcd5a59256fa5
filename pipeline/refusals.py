"""Why a fan-out puts nothing on a lane although nothing is wrong with it: its audience's size."""

from __future__ import annotations

from pushlane.lanes.errors import BadInput


class AudienceTooLarge(BadInput):
    """There are more pushes than are allowed; none was published."""


class EmptyAudience(BadInput):
    """No recipient is left of the audience; nothing was published."""
