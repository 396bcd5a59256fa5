"""`python -m scripts.demo_picture` makes docs/demo.svg: a real run of the demo on a terminal.

What is told in words or waits is shown faster than it was, and says so. It needs the extra `demo`
and takes two minutes; the figures are those of this machine.
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from pathlib import Path

from scripts.moving_picture import Frame, Screen, svg

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
COLUMNS, ROWS = 88, 25
TITLE = (
    "A run of pushlane demo: three levels share a sink 6 to 3 to 1, a late urgent task starts at "
    "once before a backlog of 240,000 pushes, and one queue a level lets it wait for as long as "
    "the backlog takes."
)
_FRAME_S, _LAST_S = 0.5, 8.0
_FAST = (("sending the rest", 10), ("one queue a level", 10), ("the webhooks receive", 1))
_AT_FIRST = 4

Said = tuple[float, str]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pushlane-picture-") as folder:
        given = sys.argv[1:]
        said = json.loads(Path(given[0]).read_text()) if given else list(_recorded(folder))
    PICTURE.write_text(svg(list(frames(said)), TITLE, COLUMNS, ROWS))
    sys.stdout.write(f"{PICTURE}: {PICTURE.stat().st_size / 1024:.0f} KiB\n")
    return 0


def _recorded(folder: str) -> Iterator[Said]:
    """Play the demo on a terminal of its own; yield what it draws, and when, in seconds."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "pushlane", "demo"],
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(PICTURE.parent.parent)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    began_s, decoder = time.monotonic(), codecs.getincrementaldecoder("utf-8")()
    while True:
        try:
            some = os.read(ours, 65_536)
        except OSError:  # Linux's word for the end of a terminal
            break
        yield time.monotonic() - began_s, decoder.decode(some)
    os.close(ours)
    if process.wait():
        raise SystemExit(f"the demo ended with exit code {process.returncode}")


def frames(said: Sequence[Said]) -> Iterator[Frame]:
    """Yield what is seen, at most twice a second of the picture's own time; the end stays."""
    screen, shown, seen_s, last_s = Screen(), 0.0, 0.0, 0.0
    for at_s, text in said:
        speed = _speed(screen.lines)
        seen_s += (at_s - last_s) / speed
        last_s = at_s
        if seen_s - shown >= _FRAME_S:
            yield Frame(_heading(speed), [*screen.lines], seen_s - shown)
            shown = seen_s
        screen.feed(text)
    yield Frame(_heading(1), [line for line in screen.lines if ".png" not in line], _LAST_S)


def _speed(lines: Sequence[str]) -> int:
    text = "\n".join(lines)
    return next((speed for word, speed in _FAST if word in text), _AT_FIRST)


def _heading(speed: int) -> str:
    return "$ make demo" + (f"  ({speed} times as fast)" if speed > 1 else "")


if __name__ == "__main__":
    sys.exit(main())
