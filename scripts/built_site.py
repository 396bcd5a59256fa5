"""`python -m scripts.built_site` looks at each page of the built site, in `site/`.

A page must load nothing from another host, and each link to another page, a file or a heading has
to lead there. No list or table is shown as text: Python-Markdown wants a blank line before it, and
four spaces inside of a list, where a forge takes less. `zensical build --strict` finds pages that
are missing, and none of this.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_LOADED_BY_LINK = {"stylesheet", "preload", "icon", "preconnect", "modulepreload"}
_IN_STYLES = re.compile(r"""(?:@import\s+|url\()["']?((?:https?:)?//[^"')\s]+)""")
_MARK = re.compile(r"\s*(?:[-*] |\d+\. |\||```)")


class Page(HTMLParser):
    """Collects the links, the loads and the headings of a page, and the text that it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.marks: list[str] = []
        self._paragraph: str | None = None
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "p":
            self._paragraph = ""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        address = given.get(_LOADS.get(tag, ""), "")
        if tag == "a":
            self.leads += [given["href"]] if "href" in given else []
        elif tag != "link" or _LOADED_BY_LINK & set(given.get("rel", "").split()):
            self.loads += [address] if address else []
        if "mermaid" in given.get("class", "").split():
            self.loads.append("https://unpkg.com/ (Mermaid, for a diagram)")

    def handle_endtag(self, tag: str) -> None:
        if tag == "p" and self._paragraph is not None:
            self.marks += [line[:60] for line in self._paragraph.splitlines() if _MARK.match(line)]
            self._paragraph = None

    def handle_data(self, data: str) -> None:
        if self._paragraph is not None:
            self._paragraph += data


def faults_of(site: Path) -> list[str]:
    """Return the faults of a site, a line each: like `PAGE: loads …`."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    faults = [
        f"{style.relative_to(site)}: loads {address}"
        for style in sorted(site.rglob("*.css"))
        for address in _IN_STYLES.findall(style.read_text())
    ]
    for path, page in pages.items():
        name = path.relative_to(site)
        faults += [f"{name}: loads {one}" for one in page.loads if urlsplit(one).netloc]
        faults += [f"{name}: shows as text: {mark}" for mark in page.marks]
        if name.name != "404.html":  # it may be shown at any address, so it has no relative links
            wrong = [one for one in page.leads + page.loads if not _is_there(one, path, pages)]
            faults += [f"{name}: {one} leads nowhere" for one in wrong]
    return faults


def _is_there(address: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Tell whether a link on a page leads somewhere; one to another host is not looked at."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    heading = unquote(parts.fragment)
    return not heading or target not in pages or heading in pages[target].ids


def main() -> None:
    site = Path("site").resolve()
    faults = faults_of(site)
    if not (site / "index.html").is_file():
        faults.append("there is no index.html")
    if faults:
        sys.exit("\n".join(f"error: {fault}" for fault in faults))


if __name__ == "__main__":
    main()
