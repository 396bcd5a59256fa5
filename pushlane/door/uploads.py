"""Reads a form with a file in it, which goes to disk as it comes and is never in memory whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from pushlane.core.errors import BadInput
from pushlane.door.single import BODY_S, SlowBody
from pushlane.util.errors import NotAllowed, NotNow, OversizedPush

FORM_TOKEN = "_form"  # noqa: S105 - the name of a field
BESIDE_BYTES = 64 * 1024
"""The most bytes of a form beside its file: its fields, and the heads of its parts."""

_PART_BYTES = 64
_WRITE_BYTES = 1024 * 1024
_DRAINED_BYTES = 16 * 1024 * 1024
_DRAINED_S = 5.0
_LONGEST_NAME = 120


class FileTooLarge(OversizedPush):
    """A file is larger than what is taken."""


class Uploaded(NamedTuple):
    """A file that came: what it was called, and its size in bytes."""

    called: str
    size: int


def length_of(request: Request) -> int:
    """Return how long a body is, in bytes. Raises BadInput where it does not say."""
    given = request.headers.get("content-length", "")
    if not given.isdecimal():
        raise BadInput("the form does not give its length: send it with Content-Length")
    return int(given)


def size_text(size: int) -> str:
    """Return a size for people: `512 bytes`, `3.4 MiB`."""
    if size < 1024:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return f"{value:,.1f} {unit}".replace(".0 ", " ")


def refuse_longer(size: int, most: int) -> None:
    """Raise FileTooLarge for a file of more than `most` bytes; says what takes it."""
    if size > most:
        raise FileTooLarge(
            f"the file is larger than the {size_text(most)} that the console takes (upload_max). "
            "Submit it where it lies: pushlane submit FILE --level high|medium|low, with the "
            "address of this server as PUSHLANE_URL"
        )


async def receive_file(
    request: Request,
    parts: AsyncIterator[bytes],
    path: Path,
    most: int,
    is_ours: Callable[[str], bool],
) -> Uploaded:
    """Write the file of a form, whose body comes in parts, to a new one that nobody else can read.

    The form shows its token before the file.

    Raises:
        BadInput: it is no form with one file.
        NotAllowed: the form has not shown a token that `is_ours`.
        FileTooLarge: the file has more than `most` bytes.
        SlowBody: nothing came for a minute.
        NotNow: the disk takes no more.
    """
    form = _Form(most, is_ours)
    parser = _parser(request, form)
    file = await asyncio.to_thread(new_file, path)
    try:
        async for part in _timely(parts):
            _feed(parser, part)
            if len(form.waiting) >= _WRITE_BYTES:
                await _write(file, form)
        await _write(file, form)
    finally:
        os.close(file)
    return form.uploaded()


class _Form:
    """The parts of a form: fields in memory, and what of the file waits to be written."""

    def __init__(self, most: int, is_ours: Callable[[str], bool]) -> None:
        self._most = most
        self._is_ours = is_ours
        self._head: dict[str, bytes] = {}
        self._name = self._value = b""
        self._field = ""
        self._is_file = False
        self._fields: dict[str, bytearray] = {}
        self._beside = 0
        self._called: str | None = None
        self._size = 0
        self._is_whole = False
        self.waiting = bytearray()

    def begin(self) -> None:
        self._count(_PART_BYTES)
        self._head, self._name, self._value = {}, b"", b""
        self._is_file = False

    def name(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._name += data[start:end]

    def value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def header(self) -> None:
        self._head[self._name.decode("latin-1").lower()] = self._value
        self._name = self._value = b""

    def headed(self) -> None:
        """Know a part by its head. A file is taken behind a token of ours alone."""
        _, options = parse_options_header(self._head.get("content-disposition", b""))
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" not in options:
            self._fields[self._field] = bytearray()
            return
        token = bytes(self._fields.get(FORM_TOKEN, b"")).decode("utf-8", "replace")
        if not self._is_ours(token):
            raise NotAllowed("this form does not belong to your session: load its page again")
        if self._called is not None:
            raise BadInput("one file at a time; each makes a task of its own")
        self._is_file = True
        self._called = _plain(options[b"filename"].decode("utf-8", "replace"))

    def data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._size += end - start
            refuse_longer(self._size, self._most)
            self.waiting += data[start:end]
            return
        self._count(end - start)
        self._fields[self._field] += data[start:end]

    def end(self) -> None:
        self._is_whole = True

    def _count(self, size: int) -> None:
        """Count what is in memory. Raises BadInput for too much of it."""
        self._beside += size
        if self._beside > BESIDE_BYTES:
            raise BadInput("the form has too much beside its file")

    def uploaded(self) -> Uploaded:
        """Return what came. Raises BadInput without a file, and for a form that was cut off."""
        if not self._is_whole:
            raise BadInput("the form was cut off before its end: send the file again")
        if not self._called:
            raise BadInput("no file was chosen")
        return Uploaded(self._called, self._size)


def _parser(request: Request, form: _Form) -> MultipartParser:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise BadInput("a file is sent as multipart/form-data")
    try:
        return MultipartParser(
            options[b"boundary"],
            {
                "on_part_begin": form.begin,
                "on_header_field": form.name,
                "on_header_value": form.value,
                "on_header_end": form.header,
                "on_headers_finished": form.headed,
                "on_part_data": form.data,
                "on_end": form.end,
            },
        )
    except FormParserError as error:
        raise BadInput("the form cannot be read") from error


def _feed(parser: MultipartParser, part: bytes) -> None:
    try:
        parser.write(part)
    except FormParserError as error:
        raise BadInput("the form cannot be read") from error


def _plain(name: str) -> str:
    """Return the name of a file without folders, and without what cannot be printed."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(one if one.isprintable() else "_" for one in last)[-_LONGEST_NAME:].strip()


def new_file(path: Path) -> int:
    """Open a new file that nobody else can read. Raises NotNow where none can be made."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise unkept(error) from error


async def _write(file: int, form: _Form) -> None:
    """Write what waits. Raises NotNow when the disk takes no more."""
    block, form.waiting = bytes(form.waiting), bytearray()
    try:
        await asyncio.to_thread(_write_all, file, block)
    except OSError as error:
        raise unkept(error) from error


def unkept(error: OSError) -> NotNow:
    """Return what says that a file cannot be kept now."""
    return NotNow(
        f"the file cannot be kept: {error.strerror or error}; the server needs space in its folder "
        "for temporary files (TMPDIR). Until then submit it where it lies: pushlane submit"
    )


def _write_all(file: int, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(file, left) :]


async def _timely(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a body. Raises SlowBody when none comes for a minute."""
    while True:
        try:
            async with asyncio.timeout(BODY_S):
                part = await anext(parts, None)
        except TimeoutError:
            raise SlowBody(f"no more of the file came for {BODY_S:g} s") from None
        if part is None:
            return
        yield part


async def drain(parts: AsyncIterator[bytes]) -> None:
    """Read on for a moment, and forget it."""
    left = _DRAINED_BYTES
    try:
        async with asyncio.timeout(_DRAINED_S):
            async for part in parts:
                left -= len(part)
                if left <= 0:
                    return
    except TimeoutError:
        return
