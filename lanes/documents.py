"""What a shelf takes: bounds of a document's kind, name and body. Checked by every adapter."""

from __future__ import annotations

import re

from pushlane.lanes.errors import BadInput

MOST_BYTES = 64 * 1024
LONGEST_NAME = 200
_KIND = re.compile(r"[a-z][a-z-]{0,39}")


def check_place(kind: str, name: str) -> None:
    """Raises BadInput for a kind or a name that cannot be."""
    if not _KIND.fullmatch(kind):
        raise BadInput(f"{kind[:40]!r} is no kind of document; use small letters and dashes")
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadInput(
            f"the name {name[:40]!r} of a {kind} cannot be used; take 1 to {LONGEST_NAME} "
            "printable characters"
        )


def check_body(kind: str, name: str, body: bytes) -> None:
    """Raises BadInput for a body that is empty or too large."""
    if not 0 < len(body) <= MOST_BYTES:
        raise BadInput(
            f"the {kind} {name!r} has {len(body):,} bytes, and may have from 1 to {MOST_BYTES:,}; "
            "make it smaller"
        )
