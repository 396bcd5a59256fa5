"""What is looked at on the built site; the site itself is built by `make site`."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.built_site import faults_of

ROOT = Path(__file__).parents[2]

GOOD = (
    '<h1 id="top">Good</h1> <a href="#top">1</a> <a href="../other/#part">2</a> <img src="a.png">'
)


def site_of(folder: Path, page: str, style: str = "") -> Path:
    for name in ("page", "other"):
        (folder / name).mkdir()
    (folder / "page" / "index.html").write_text(page)
    (folder / "page" / "a.png").write_text("")
    (folder / "other" / "index.html").write_text('<h2 id="part">Part</h2>')
    (folder / "style.css").write_text(style)
    return folder


def test_a_good_page_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(site_of(tmp_path, GOOD, "a { background: url(a.png) }")) == []


def test_links_to_nowhere_are_found(tmp_path: Path) -> None:
    page = '<a href="#none">1</a> <a href="../other/#none">2</a> <a href="../none/">3</a>'

    assert faults_of(site_of(tmp_path, page)) == [
        "page/index.html: #none leads nowhere",
        "page/index.html: ../other/#none leads nowhere",
        "page/index.html: ../none/ leads nowhere",
    ]


def test_whatever_is_loaded_from_another_host_is_found(tmp_path: Path) -> None:
    page = (
        '<script src="https://one.example/a.js"></script>'
        '<link rel="stylesheet" href="//two.example/a.css">'
        '<link rel="canonical" href="https://ours.example/">'
        '<a href="https://linked.example/">read</a> <pre class="mermaid"></pre>'
    )

    faults = faults_of(site_of(tmp_path, page, '@import "https://three.example/font.css"'))

    assert faults == [
        "style.css: loads https://three.example/font.css",
        "page/index.html: loads https://one.example/a.js",
        "page/index.html: loads //two.example/a.css",
        "page/index.html: loads https://unpkg.com/ (Mermaid, for a diagram)",
    ]


def test_a_list_that_is_shown_as_text_is_found(tmp_path: Path) -> None:
    page = "<p>Two:\n- one</p> <p>a <code>b</code>\n| c | d |</p> <p>a - b</p> <pre>- c</pre>"

    assert faults_of(site_of(tmp_path, page)) == [
        "page/index.html: shows as text: - one",
        "page/index.html: shows as text: | c | d |",
    ]


def test_the_navigation_has_each_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]

    listed = re.findall(r"^ {6}- .*: (\S+\.md)$", navigation, re.M)

    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
