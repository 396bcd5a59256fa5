"""Canaries: values that can be recognised wherever they come out, in whatever form.

Each begins with one mark, which no other text has, and goes on with what escaping changes. So a cut
value is recognised as well as a whole one.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_TAIL = '@ "é/+&\\'


class Canaries:
    """Makes marked values, and finds them again."""

    def __init__(self) -> None:
        self.mark = f"kAnArY{secrets.token_hex(6)}"

    def value(self, field: str) -> str:
        """A value for this field; what its mark stands in front of says which one leaked."""
        return f"{self.mark}-{field}{_TAIL}"

    def word(self, field: str) -> str:
        """A value that fits where only letters, digits and dashes do."""
        return f"{self.mark}-{field}"

    def found_in(self, text: str | bytes) -> list[str]:
        """Return the text around each canary, in any form; empty if there is none."""
        content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        lower = content.lower()
        return [
            content[max(0, place - 60) : place + 60].decode("utf-8", "replace")
            for form, keeps_case in self._forms()
            for place in _places(content if keeps_case else lower, form)
        ]

    def _forms(self) -> Iterator[tuple[bytes, bool]]:
        """The forms of the mark, and whether case counts in them.

        What is URL-encoded or JSON-escaped has it as it is: it is all letters and digits.
        """
        mark = self.mark.encode()
        yield mark.lower(), False
        yield mark.hex().encode(), False
        yield b"".join(b"%%%02x" % byte for byte in mark), False
        yield b"".join(b"\\u00%02x" % byte for byte in mark), False
        for before in range(3):  # base64 has three forms of a text, by its place in what is encoded
            encoded = base64.b64encode(b"\0" * before + mark)
            yield encoded[(0, 2, 3)[before] : len(encoded) // 4 * 4 - 4], True
        yield self.mark[::-1].encode().lower(), False


def leaks(canaries: Canaries, said: Mapping[str, str | bytes]) -> dict[str, list[str]]:
    """Return the leaks, by who said them."""
    found = {who: canaries.found_in(text) for who, text in said.items()}
    return {who: places for who, places in found.items() if places}


def contents(folder: Path, leaving_out: Iterable[str] = ()) -> dict[str, bytes]:
    """The files below a folder but those that match one of these patterns, by path."""
    left_out = {path for pattern in leaving_out for path in folder.glob(pattern)}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in left_out
    }


def _places(content: bytes, form: bytes) -> Iterator[int]:
    place = content.find(form)
    while place >= 0:
        yield place
        place = content.find(form, place + 1)
