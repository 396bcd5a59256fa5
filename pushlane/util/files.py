"""Files that others replace while we run, such as rotated tokens, passwords and certificates."""

from __future__ import annotations

from pathlib import Path

from pushlane.core.errors import BadInput

_MOST_BYTES = 1024 * 1024

Stamp = tuple[int, int, int]


def stamp_of(path: Path | None) -> Stamp | None:
    """Return what changes whenever the file does; None when there is no file to be seen."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None


class WatchedFile:
    """The text of a file without the white space around it, read again once the file has changed.

    `setting` is the setting that names the file. Safe to use from several threads.
    """

    def __init__(self, setting: str, path: Path) -> None:
        self.setting = setting
        self.path = path
        self._read: tuple[Stamp | None, str] | None = None

    def __repr__(self) -> str:
        return f"WatchedFile({self.path})"

    def text(self) -> str:
        """Return the present text.

        Raises:
            BadInput: the file cannot be read, or is empty; never shows what is in it.
        """
        stamp = stamp_of(self.path)
        known = self._read
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        text = self._fresh()
        self._read = (stamp, text)
        return text

    def last_text(self) -> str:
        """Return the present text, or the last one that could be read: '' when there was none."""
        try:
            return self.text()
        except BadInput:
            return self._read[1] if self._read is not None else ""

    def _fresh(self) -> str:
        try:
            with self.path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode().strip()
        except (OSError, ValueError) as error:
            raise BadInput(
                f"{self.setting} {self.path} cannot be read ({type(error).__name__}): give a file "
                "of text that this user may read"
            ) from error
        if not text:
            raise BadInput(f"{self.setting} {self.path} is empty: write the secret into it")
        return text
