"""Measures how the documents read: words a sentence, and words that users should not meet.

    python -m scripts.words                 # each page: words, words a sentence, the longest
    python -m scripts.words docs/limits.md  # its long sentences and what is forbidden in it

Blocks of code, inline code, tables (but for forbidden words), headings and pictures are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

STILL_TO_COME = frozenset(
    {
        "cli-reference",
        "howto-fastapi",
        "howto-fcm-sms",
        "howto-flash-sale",
        "howto-local-time",
        "howto-login-codes",
        "python-reference",
        "tracing",
    }
)
"""Pages that are not held to this yet, by their names. Take one out when it has been rewritten."""

MOST_WORDS_A_SENTENCE = 18.0
"""The most that a page may have on average."""
LONGEST_SENTENCE = 40

FORBIDDEN = {
    r"\bjournal(?:s|led)?\b": "say: the task topic, or the durable record",
    r"\bledger\b": "say: the record of claims, or of sent keys",
    r"\bentitled\b": "say: its fair share",
    r"\bhalf[- ]made\b": "say: not submitted completely",
    r"\bfed\b": "say: sent, filled",
    r"\bseal(?:s|ed|ing)?\b": "say: close, closed: no more pushes come",
    r"\bparked\b": "say: waiting in memory",
    r"\b(?:is|are|was|were|be|been) told\b": "say what is shown, and where",
    r"\b(?:is|are) of\b(?! (?:the|a|this|that) (?:form|kind|version|size))": "say: belongs to, has",
    r"\bmend(?:s|ed|ing)?\b": "say: fix",
    r"\b(?:for|of|to|by|from|but|since|that|than) who\b": "say who: operators, you, a process",
    r"(?:^|[.:;] )Who(?: \w+)* (?!\?)[^?.]*\.": "begin with the one who acts",
    r"(?:^|[.:;] )What [^?.:]*[.]": "begin with the thing",
    r"\bSince when\b": "say: the time since",
    r"\bits end cannot be\b": "say: ETA unknown",
}
"""What no page says, as a pattern, with what to say instead. Inline code keeps its names."""

_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HTML = re.compile(r"<!--.*?-->|<[a-z/][^>]*>", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)", re.DOTALL)
_CODE = re.compile(r"`[^`]+`")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[^a-z]|pushlane)")
_WORD = re.compile(r"[^\W_][\w'’:,./-]*")
_NO_END = re.compile(r"\b(e\.g|i\.e|etc|vs)\.")


class Reading(NamedTuple):
    """How a page reads."""

    words: int
    sentences: list[str]
    forbidden: list[str]

    @property
    def words_a_sentence(self) -> float:
        counts = [count_words(one) for one in self.sentences]
        return sum(counts) / len(counts) if counts else 0.0


def main() -> None:
    if given := [Path(one) for one in sys.argv[1:]]:
        for page in given:
            _show_page(page)
        return
    for page in PAGES:
        read = reading(page.read_text())
        longest = max(map(count_words, read.sentences), default=0)
        covered = "" if is_covered(page) else "  not held yet"
        sys.stdout.write(
            f"{page.stem:28} {read.words:6,} words  {read.words_a_sentence:4.1f} a sentence  "
            f"longest {longest:3}  {len(read.forbidden):3} forbidden{covered}\n"
        )


def is_covered(page: Path) -> bool:
    """Tell whether a test holds this page to what stands here."""
    return page.stem not in STILL_TO_COME


def reading(text: str) -> Reading:
    """Return the sentences of a page, as plain text, and each forbidden phrase with its advice."""
    paragraphs = list(_paragraphs(text))
    sentences = [
        sentence
        for paragraph in paragraphs
        if not paragraph.startswith("|")
        for sentence in _END.split(paragraph)
        if count_words(sentence) > 1
    ]
    forbidden = [
        f"{found[0].strip()!r}: {advice}"
        for paragraph in paragraphs
        for pattern, advice in FORBIDDEN.items()
        for found in re.finditer(pattern, paragraph)
    ]
    return Reading(sum(map(count_words, paragraphs)), sentences, forbidden)


def count_words(text: str) -> int:
    """Count the words of a plain text; a piece of code is one."""
    return len(_WORD.findall(text))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield each paragraph, item of a list, and row of a table of a page, on one line."""
    plain = _NO_END.sub(r"\1", _HTML.sub("", _PICTURE.sub("", _BLOCK.sub("\n", text))))
    plain = _LINK.sub(r"\1", _CODE.sub("CODE", plain)).replace("**", "")
    lines: list[str] = []
    for line in [*plain.splitlines(), ""]:
        begins = bool(_ITEM.match(line)) or line.startswith(("|", "#")) or not line.strip()
        if begins and lines:
            yield " ".join(lines)
            lines = []
        if line.strip() and not line.startswith("#"):
            lines.append(_ITEM.sub("", line).strip())


def _show_page(page: Path) -> None:
    read = reading(page.read_text())
    for sentence in read.sentences:
        if (words := count_words(sentence)) > LONGEST_SENTENCE - 10:
            sys.stdout.write(f"{words} words: {sentence}\n")
    for one in read.forbidden:
        sys.stdout.write(f"{one}\n")
    sys.stdout.write(f"{page.name}: {read.words_a_sentence:.1f} words a sentence\n")


if __name__ == "__main__":
    main()
