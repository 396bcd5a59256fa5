"""Fan-out: a rule over a table of recipients becomes the pushes of one task, each exactly once.

The audience is frozen first, as numbered Parquet; what is published comes from there alone, so a
repeat of any part of it sends the same batches, which the broker then keeps once.
"""

from __future__ import annotations

from pushlane.lanes.errors import BadInput


class AudienceTooLarge(BadInput):
    """There are more pushes than are allowed; none was published."""


class EmptyAudience(BadInput):
    """No recipient is left of the audience; nothing was published."""
