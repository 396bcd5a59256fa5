"""Fan-out: a rule over a table of recipients becomes the pushes of one task, each exactly once.

The audience is frozen first, as numbered Parquet, and only that is published. Repeating any part of
the work sends the same batches, of which the broker keeps one copy.
"""

from pushlane.core.errors import BadInput


class AudienceTooLarge(BadInput):
    """There are more pushes than are allowed; none was published."""


class EmptyAudience(BadInput):
    """No recipient is left of the audience; nothing was published."""
