"""Makes an animated SVG of what a program drew on a terminal: no script, nothing from elsewhere.

All frames lie below each other in one strip, which CSS moves on in steps. A row that comes again is
there once. Who wants no motion sees the last frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.style import Style
from rich.text import Text

WIDTH, HEIGHT, TOP, EDGE = 8.0, 18, 34, 14
_CONTROL = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]")
_PART = re.compile(r"\x1b(?:\[[?\d;]*)?$")
_COLOURS = {1: "#ff8a80", 2: "#8bd49c", 3: "#ffd866", 4: "#8ab4f8", 5: "#d7a6ff", 6: "#7fd7e8"}
_STYLE = f"""
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}}
text,rect{{fill:#d8dee9;white-space:pre}}
.b{{font-weight:bold}}.i{{font-style:italic}}.d{{fill:#9aa5b5}}
{"".join(f".c{place}{{fill:{colour}}}" for place, colour in _COLOURS.items())}
"""


class Screen:
    """The lines that a program has drawn: whole ones, and upwards to draw them again."""

    def __init__(self) -> None:
        self.lines = [""]
        self._at = 0
        self._part = ""

    def feed(self, text: str) -> None:
        """Draw this. What a control sequence begins and does not end is kept for the next."""
        text = self._part + text
        rest = _PART.search(text)
        self._part = rest[0] if rest else ""
        text = text.removesuffix(self._part)
        place = 0
        for found in _CONTROL.finditer(text):
            self.lines[self._at] += text[place : found.start()]
            self._steer(found[0])
            place = found.end()
        self.lines[self._at] += text[place:]

    def _steer(self, control: str) -> None:
        if control == "\n":
            self._at += 1
            if self._at == len(self.lines):
                self.lines.append("")
        elif control.endswith("K"):
            self.lines[self._at] = ""
        elif control.endswith("A"):
            self._at = max(0, self._at - int(control[2:-1] or 1))
        elif control.endswith("m"):
            self.lines[self._at] += control


@dataclass(frozen=True)
class Frame:
    """What is seen for so many seconds: the lines of a terminal, and a heading above them."""

    heading: str
    lines: Sequence[str]
    seconds: float


def svg(frames: Sequence[Frame], title: str, columns: int, rows: int) -> str:
    """Return the picture. `title` says what is to be seen to who does not see it."""
    width, tall = columns * WIDTH + 2 * EDGE, TOP + rows * HEIGHT + EDGE
    known: dict[str, int] = {}
    strip = []
    for place, frame in enumerate(frames):
        drawn = [(TOP - HEIGHT, f"\x1b[2m{frame.heading}\x1b[0m")]
        drawn += [(TOP + y * HEIGHT, line) for y, line in enumerate(frame.lines[-rows:])]
        strip += [
            f'<use href="#r{known.setdefault(line, len(known))}" y="{place * tall + y}"/>'
            for y, line in drawn
            if line.strip()
        ]
    made = [f'<g id="r{number}">{"".join(_row(line))}</g>' for line, number in known.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {tall}" '
        f'width="{width:g}" height="{tall}" role="img">'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{_motion(frames, tall)}</style>\n"
        f'<rect width="{width:g}" height="{tall}" rx="8" style="fill:#161b22"/>\n'
        f"<defs>{chr(10).join(made)}</defs>\n"
        f'<g transform="translate({EDGE})"><g class="strip">{chr(10).join(strip)}</g></g>\n</svg>\n'
    )


def _motion(frames: Sequence[Frame], tall: int) -> str:
    """Return the steps by which the strip is moved, in percent of the whole."""
    whole_s = sum(frame.seconds for frame in frames)
    steps, passed_s = [], 0.0
    for place, frame in enumerate(frames):
        steps.append(f"{100 * passed_s / whole_s:.2f}%{{transform:translateY({-place * tall}px)}}")
        passed_s += frame.seconds
    last = f"translateY({-(len(frames) - 1) * tall}px)"
    return (
        f".strip{{animation:on {whole_s:.1f}s step-end infinite}}\n"
        f"@keyframes on{{{''.join(steps)}}}\n"
        f"@media(prefers-reduced-motion:reduce){{.strip{{animation:none;transform:{last}}}}}\n"
    )


def _row(line: str) -> Iterator[str]:
    """Yield the parts of a row, each as wide as its characters, whatever the font."""
    text, x = Text.from_ansi(line), 0
    for part, style in _runs(text):
        for run in re.findall("█+|[^█]+", part):
            at, long = f'x="{x * WIDTH:g}"', len(run) * WIDTH
            kind = f' class="{style}"' if style else ""
            if run[0] == "█":
                yield f'<rect {at} y="3" width="{long:g}" height="{HEIGHT - 5}"{kind}/>'
            elif run.strip():
                yield f'<text {at} y="14" textLength="{long:g}"{kind}>{escape(run)}</text>'
            x += len(run)


def _runs(text: Text) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text that are in one style, with the names of its classes."""
    names = [""] * len(text)
    for span in text.spans:
        style = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        for place in range(span.start, span.end):
            names[place] = " ".join(filter(None, (names[place], _classes(style))))
    start = 0
    for place in range(1, len(names) + 1):
        if place == len(names) or names[place] != names[start]:
            yield text.plain[start:place], names[start]
            start = place


def _classes(style: Style) -> str:
    number = style.color.number if style.color else None
    colour = "" if number is None else f"c{number % 8}"
    named = (("b", style.bold), ("i", style.italic), ("d", style.dim), (colour, True))
    return " ".join(name for name, is_so in named if name and is_so)
