"""The tables of docs/sinks-*.md on what a provider's answers mean, for a test of each row."""

from pathlib import Path

from pushlane.core.push import Kind, Outcome, Scope

TRANSPORTS: dict[str, dict[str, str]] = {"loop": {}, "pyreqwest": {"client": "pyreqwest"}}
"""The transports that each row holds for, and the options that have a sink post through them."""

HTTP2_TRANSPORTS: dict[str, dict[str, str]] = {"pyreqwest": {}, "ngh2": {"http2": "ngh2"}}
"""Those of providers that speak HTTP/2."""

_DOCS = Path(__file__).parents[1] / "docs"
_PAGES = (_DOCS / "sinks-http.md", _DOCS / "sinks-providers.md")


def documented(kind):
    """Return what becomes of a push by answer, from the table under `### KIND: answers`."""
    text = "".join(page.read_text() for page in _PAGES)
    _, _, rest = text.partition(f"\n### {kind}: answers\n")
    assert rest, f"docs/sinks-*.md have no heading '### {kind}: answers'"
    table = rest.partition("\n#")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {row[0].strip(): row[1].strip() for row in rows[1:]}


def in_words(outcome: Outcome):
    """Say what becomes of a push, in the words of the tables."""
    if outcome.kind is Kind.DELIVERED:
        return "delivered"
    if outcome.kind is Kind.RETRY:
        if outcome.scope in (None, Scope.PUSH):
            return "retried (counts as an attempt)"
        if outcome.refuses_us:
            return "retried (not counted); the sink is held"
        who = {Scope.SINK: "the sink", Scope.HOST: "the host", Scope.RECIPIENT: "its address"}
        return f"retried (not counted); {who[outcome.scope]} rests"
    assert outcome.kind is Kind.DEAD
    return {
        Scope.PUSH: "dead",
        Scope.HOST: "dead",
        Scope.RECIPIENT: "dead, and so is its address",
        None: "dead; nearly all so, and the sink rests",
    }[outcome.scope]
