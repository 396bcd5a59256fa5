"""Opens a file of text: unpacked if gzip has packed it, decoded, and read line by line.

What is no text, or not in the encoding that was said, is refused with what to do. Lines are of
bounded length, so that neither a file without line ends nor one that gzip has made small can fill
the memory.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from encodings.aliases import aliases
from pathlib import Path
from typing import IO, Any, AnyStr, cast

import msgspec

from pushlane.core.errors import BadInput
from pushlane.util.conversion import shown, text
from pushlane.util.texts import did_you_mean

MAX_LINE = 1 << 20
WORKBOOK = "is an Excel workbook; save it in Excel as 'CSV UTF-8', then submit that file"

_HEAD = 8_192
_BLOCK = 1 << 22
GZIP = b"\x1f\x8b"
_ZIP, _OLE, _PARQUET = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PAR1\x15"
_IN_WORKBOOKS = (b"[Content_Types].xml", b"xl/")
_BROKEN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)
_BYTE_ORDER_MARKS = (  # that of UTF-16 is the begin of that of UTF-32
    (codecs.BOM_UTF8, "utf-8", "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16"),
)
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}


class Dialect(msgspec.Struct, frozen=True):
    """How the text of a file is written: what stands between CSV's columns, and the encoding."""

    delimiter: str = ","
    encoding: str = "utf-8"

    @property
    def is_utf8(self) -> bool:
        """Whether the encoding is UTF-8, be it with a byte order mark."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")

    @property
    def misfit(self) -> str:
        """Why text cannot be read in this encoding, with what to do, to stand behind a verb."""
        if self.is_utf8:
            return "not UTF-8; say its encoding: --encoding cp1252 for most of Excel's, or latin-1"
        return f"not {self.encoding}; give another --encoding"


def delimiter_of(given: Any) -> str:
    """Return the character of a text like `;` or `tab`. Raises BadInput when it stands for none."""
    found = text("delimiter", given)
    found = {**_DELIMITERS, r"\t": "\t"}.get(found.lower(), found)
    if len(found) != 1 or found in '"\r\n\0':
        words = ", ".join(_DELIMITERS)
        hint = did_you_mean(found, _DELIMITERS)
        raise BadInput(f"delimiter {shown(given)} is not a character; use one, or {words}{hint}")
    return found


def encoding_of(given: Any) -> str:
    """Return the name of an encoding. Raises BadInput for one that Python cannot read text in."""
    name = text("encoding", given)
    try:
        sample = io.BytesIO("a,b\n".encode(name))
        is_usable = io.TextIOWrapper(sample, name, "surrogateescape").read() == "a,b\n"
    except (LookupError, ValueError):
        is_usable = False
    if not is_usable:
        known = sorted({name.replace("_", "-") for pair in aliases.items() for name in pair})
        raise BadInput(
            f"unknown encoding {shown(given)}; use utf-8, cp1252, latin-1, utf-16, or another that "
            f"Python knows{did_you_mean(name, known)}"
        )
    return name


def without_gz(path: Path) -> Path:
    """Return the path without the `.gz` at its end."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def bounded_lines(readline: Callable[[int], AnyStr], name: str) -> Iterator[AnyStr]:
    """Yield the lines of a file. Raises BadInput when a line is longer than 1 MiB."""
    number = 0
    while line := readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise BadInput(
                f"{name}:{number} is a line of over {MAX_LINE} characters; is the format right?"
            )
        yield line


class TextFile:
    """A file of text, of which `first_line` is known.

    Raises BadInput for a workbook, an archive or Parquet, for another encoding than its first bytes
    tell, and for a gzip file that is broken.
    """

    def __init__(self, path: Path, name: str, dialect: Dialect) -> None:
        self._path = path
        self.name = name
        self.dialect = dialect
        head = self._head()
        self._refuse_no_text(head)
        self._encoding = self._seen_encoding(head)
        self.first_line = _first_line(head, self._encoding)

    @contextmanager
    def lines(self, newline: str = "") -> Iterator[Iterator[str]]:
        """Give the lines, each with its end; `newline` is as that of `open`.

        Bytes that are not of the encoding are kept as surrogates, so that only rows that use them
        are bad. Where that cannot be, and where gzip's data are broken, reading on raises BadInput.
        """
        with self._text(newline) as file:
            yield self._told(file.readline)

    def content(self) -> Iterator[bytes]:
        """Yield all of it, unpacked and in UTF-8; what is in UTF-8 is as it is."""
        if self.dialect.is_utf8:
            with self._bytes() as packed:
                while block := packed.read(_BLOCK):
                    yield block
        else:
            with self._text("") as file:
                while part := file.read(_BLOCK):
                    yield part.encode(errors="surrogateescape")

    def _told(self, readline: Callable[[int], str]) -> Iterator[str]:
        number = 0
        try:
            for line in bounded_lines(readline, self.name):
                number += 1
                yield line
        except _BROKEN_GZIP as error:
            raise self._broken(f" after line {number}") from error
        except UnicodeDecodeError as error:
            is_wide = error.encoding.startswith("utf")  # which names the order of bytes, too
            encoding = error.encoding if is_wide else self._encoding
            good = error.object[: error.start].decode(encoding, "ignore")
            line_number = number + 1 + good.count("\n")
            raise BadInput(f"{self.name}:{line_number} is {self.dialect.misfit}") from error

    def _broken(self, place: str = "") -> BadInput:
        return BadInput(
            f"{self.name} is packed with gzip, and damaged or cut off{place}; make or copy it again"
        )

    @contextmanager
    def _bytes(self) -> Iterator[IO[bytes]]:
        try:
            with self._path.open("rb") as file:
                is_packed = file.peek(len(GZIP)).startswith(GZIP)
                yield cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if is_packed else file
        except _BROKEN_GZIP as error:
            raise self._broken() from error

    @contextmanager
    def _text(self, newline: str) -> Iterator[io.TextIOWrapper]:
        with self._bytes() as file:
            yield io.TextIOWrapper(file, self._encoding, "surrogateescape", newline)

    def _head(self) -> bytes:
        with self._bytes() as file:
            return file.read(_HEAD)

    def _refuse_no_text(self, head: bytes) -> None:
        if head.startswith(_PARQUET):
            raise BadInput(f"{self.name} is a Parquet file: give --format parquet")
        if head.startswith(_OLE) or (
            head.startswith(_ZIP) and any(part in head for part in _IN_WORKBOOKS)
        ):
            raise BadInput(f"{self.name} {WORKBOOK}")
        if head.startswith(_ZIP):
            raise BadInput(f"{self.name} is a ZIP archive; unpack it, and submit the file in it")

    def _seen_encoding(self, head: bytes) -> str:
        """Return the encoding that was said, or its form that takes a byte order mark away."""
        said = codecs.lookup(self.dialect.encoding).name
        for mark, family, codec in _BYTE_ORDER_MARKS:
            if head.startswith(mark):
                if not said.startswith(family):
                    self._refuse_encoding(family, _first_line(head, codec))
                return codec
        if self.dialect.is_utf8 and (wide := _utf_16_without_mark(head)):
            self._refuse_encoding(wide, _first_line(head, wide))
        if said in ("utf-16", "utf-32"):  # that Python does not read without the mark
            raise BadInput(
                f"{self.name} has no byte order mark of {said.upper()}: give --encoding {said}-le, "
                f"{said}-be, or another"
            )
        return said

    def _refuse_encoding(self, right: str, first_line: str) -> None:
        seen = delimiter_in(first_line)
        is_other = seen and seen != self.dialect.delimiter and not first_line.startswith("{")
        more = f" --delimiter {delimiter_word(seen)}" if is_other else ""
        add = "add" if self.dialect.is_utf8 else "give"
        raise BadInput(f"{self.name} is in {right.upper()}: {add} --encoding {right}{more}")


def delimiter_in(header: str) -> str:
    """Return what seems to stand between the columns of a header; empty if it has one column."""
    bare = re.sub('"[^"]*"', "", header)
    most = max(_DELIMITERS.values(), key=bare.count)
    return most if most in bare else ""


def delimiter_word(delimiter: str) -> str:
    """Return a delimiter as it is given on a command line."""
    return "tab" if delimiter == "\t" else shlex.quote(delimiter)


def _first_line(head: bytes, encoding: str) -> str:
    return next(iter(head.decode(encoding, "replace").splitlines()), "")


def _utf_16_without_mark(head: bytes) -> str:
    """Return the encoding where every other byte is 0, as of Latin letters; else nothing."""
    for zeros, encoding in ((head[1::2], "utf-16-le"), (head[::2], "utf-16-be")):
        if zeros.count(0) > len(head) / 4:
            return encoding
    return ""
