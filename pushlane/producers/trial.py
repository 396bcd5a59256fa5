"""Makes a small task of a submit's first rows, which goes to addresses of testers alone.

The rows are as they are, but for their recipient and their addresses: a tester's in place of each.
So nothing of the file's own recipients is sent to, and what comes is what they would get.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

from pushlane.producers.columns import address_columns
from pushlane.producers.request import LONGEST_LABEL, SubmitRequest
from pushlane.producers.rows import BadRow, Row, RowSource, Wanted


def trial_of(request: SubmitRequest) -> SubmitRequest:
    """Return the request of a test: without key, limits, pause, start, expiry and quiet hours."""
    name = f"test of {request.name}" if request.name else "test"
    return replace(
        request,
        name=name[:LONGEST_LABEL].rstrip(),
        key="",
        rate_per_s=None,
        in_flight=None,
        paused=False,
        not_before_ms=0,
        expires_at_ms=0,
        not_before_column="",
        expires_column="",
        quiet="",
        zone="",
        zone_column="",
    )


class TrialRows:
    """The first rows of a source, one for each address to test with, and to that.

    Where the source has fewer, they come again for the addresses that are left.
    """

    def __init__(self, source: RowSource, request: SubmitRequest) -> None:
        self._source = source
        self._addresses = request.test_to
        self._replaced = {request.recipient, *address_columns(request).values()}
        self.name = source.name
        self.unit = source.unit
        self.misfit = source.misfit
        self.columns = source.columns
        self.fixed = source.fixed

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        places = [place for place, name in enumerate(wanted.names) if name in self._replaced]
        good = []
        for number, values in self._source.rows(wanted):
            if isinstance(values, BadRow):
                yield number, values
                continue
            good.append((number, list(values)))
            if len(good) == len(self._addresses):
                break
        for address, (number, row) in zip(self._addresses, cycle(good), strict=False):
            values = list(row)
            for place in places:
                values[place] = address
            yield number, values
