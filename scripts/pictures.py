"""Writes the pictures of the concepts, docs/pictures/*.svg.

    python -m scripts.pictures

They are plain SVG in one style, light or dark as the reader's system is, with text as text and
nothing from elsewhere. The title of a picture says the same in words: pages give it as the
alternative text. A test compares what is in the folder with what this would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
WIDTH = 760

_LIGHT = {
    "card": "#fbfbfd",
    "edge": "#d5d8e0",
    "ink": "#1f2430",
    "soft": "#5b6373",
    "line": "#7a8294",
    "plain": "#eceef3",
    "high": "#f6cdc6",
    "medium": "#f8e2b0",
    "low": "#c9dcf7",
    "good": "#cdebd0",
    "bad": "#f0c3cf",
    "store": "#e2d7f5",
}
_DARK = {
    "card": "#1b1f28",
    "edge": "#3a4150",
    "ink": "#e8ebf2",
    "soft": "#a9b1c2",
    "line": "#8b94a7",
    "plain": "#2b313d",
    "high": "#6e332b",
    "medium": "#65501a",
    "low": "#27456f",
    "good": "#275231",
    "bad": "#662a3b",
    "store": "#453367",
}


def _colours(colours: dict[str, str]) -> str:
    rules = [f".{name}{{fill:{colour}}}" for name, colour in colours.items()]
    return (
        "".join(rules)
        + f".card{{stroke:{colours['edge']}}}"
        + f".box{{stroke:{colours['edge']}}}.way{{stroke:{colours['line']}}}"
        + f"text{{fill:{colours['ink']}}}text.soft{{fill:{colours['soft']}}}"
    )


_STYLE = (
    "text{font:14px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}"
    ".b{font-weight:600}.s{font-size:12px}"
    ".way{fill:none;stroke-width:1.5}.dash{stroke-dasharray:4 4}"
    f"{_colours(_LIGHT)}@media(prefers-color-scheme:dark){{{_colours(_DARK)}}}"
)


class Canvas:
    """A picture that is drawn from top to bottom; lengths are pixels."""

    def __init__(self, title: str, height: int) -> None:
        self._title, self._height = title, height
        self._parts: list[str] = []

    def box(self, x: int, y: int, w: int, h: int, *lines: str, kind: str = "plain") -> None:
        """A box with lines of text in its middle: the first is bold, the others are small."""
        self._parts.append(
            f'<rect class="box {kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="6"/>'
        )
        top = y + h / 2 + 5 - 8 * (len(lines) - 1)
        for place, line in enumerate(lines):
            self.text(
                x + w / 2, top + 16 * place, line, style="s" if place else "b", anchor="middle"
            )

    def bar(self, x: float, y: int, w: float, h: int, kind: str) -> None:
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y}" width="{w:g}" height="{h}" rx="2"/>'
        )

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{style}" {place}>{escape(text)}</text>')

    def way(self, *points: tuple[float, float], dashed: bool = False, head: bool = True) -> None:
        """A line through these points, with the head of an arrow at its end."""
        style = "way dash" if dashed else "way"
        line = " ".join(f"{x:g},{y:g}" for x, y in points)
        end = ' marker-end="url(#head)"' if head else ""
        self._parts.append(f'<polyline class="{style}" points="{line}"{end}/>')

    def svg(self) -> str:
        """Return the picture as the text of a file."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" '
            f'width="{WIDTH}" height="{self._height}" role="img">\n'
            f"<title>{escape(self._title)}</title>\n<style>{_STYLE}</style>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path class="line" d="M0 0 8 4 0 8z"/></marker>'
            "</defs>\n"
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self._height - 1}" '
            'rx="10"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


PUSH = (
    "The life of a push: it is submitted, waits on its lane, gets a turn and a slot, and goes "
    "to the sink. Then it is delivered, or it waits on the later lane for another try, or it "
    "is dead and kept with its reason. A push that is cancelled, expired or suppressed is "
    "counted and not sent."
)
TASK = (
    "The states of a task: submitted, then running, then done. It can be paused and resumed "
    "while it is submitted or running. Cancelled and expired are the two other ends. What has "
    "ended is forgotten after 90 days."
)
SHARES = (
    "How a sink is shared: high gets 60 percent, medium 30, low 10. In high, two apps with "
    "quotas 2 and 1 get 40 and 20 percent. In the first app, two tasks with quotas 3 and 1 "
    "get 30 and 10 percent."
)
RETRIES = (
    "A push that fails is tried again after up to 1, 2, 4 and 8 seconds. After five attempts "
    "it is dead and kept with its reason, until you retry or purge it. An answer about the "
    "sink, such as 429, 503 or a refused connection, costs no attempt: the push waits until "
    "the sink is back."
)
QUIET = (
    "Quiet hours from 22:00 to 8:00 on one time line in UTC, for a task that starts at 20:00 "
    "UTC. In New York it is 15:00: pushes go at once. In Berlin it is 21:00: pushes go until "
    "22:00, those that are left go at 8:00. In Tokyo it is 5:00: pushes wait three hours, "
    "until 8:00."
)
DEPLOYMENT = (
    "Two ways to run pushlane. On one machine, your program and the command line write to a "
    "SQLite file, and a dispatcher delivers from it. On several machines, producers, the HTTP "
    "API and ingests write to Pulsar and Redis. Any number of dispatchers deliver from there "
    "to FCM, APNs, Web Push, webhooks and your functions."
)
PARTS = (
    "The parts of pushlane: submits, producers and Spark's fan-outs register tasks and "
    "publish pushes through the ports of a backend: broker, registry, receipts log and small "
    "ports. A dispatcher has a line for each sink, with loop, scheduler, gates, guards and "
    "settlement, and shared parts. It delivers to sinks; Spark reads the receipts into "
    "reports."
)


def push_life() -> str:
    draw = Canvas(PUSH, 296)
    for place, (name, said, kind) in enumerate(
        [
            ("submit", "a row, a call", "plain"),
            ("lane", "waits its turn", "plain"),
            ("turn", "level, app, task", "medium"),
            ("slot", "one in flight", "plain"),
            ("sink", "FCM, webhook, …", "low"),
        ]
    ):
        draw.box(20 + 148 * place, 30, 128, 56, name, said, kind=kind)
        if place:
            draw.way((148 * place, 58), (18 + 148 * place, 58))
    draw.way((676, 86), (676, 118))
    draw.box(612, 120, 128, 44, "delivered", kind="good")
    draw.way((378, 86), (378, 118))
    draw.box(296, 120, 164, 44, "not sent", "cancelled, capped, …", kind="bad")
    draw.way((640, 86), (640, 102), (556, 102), (556, 198), (462, 198))
    draw.text(550, 191, "tries left", "s soft", "end")
    draw.box(296, 176, 164, 44, "later lane", "until its time")
    draw.way((296, 198), (232, 198), (232, 88))
    draw.text(226, 202, "again", "s soft", "end")
    draw.way((580, 102), (580, 254), (462, 254))
    draw.text(574, 247, "failed for good", "s soft", "end")
    draw.box(296, 232, 164, 44, "dead letters", "with the reason", kind="bad")
    return draw.svg()


def task_life() -> str:
    draw = Canvas(TASK, 232)
    draw.box(24, 86, 130, 50, "submitted", "its pushes arrive")
    draw.way((154, 111), (226, 111))
    draw.box(228, 86, 130, 50, "running", "its pushes go", kind="low")
    draw.way((358, 111), (470, 111))
    draw.text(414, 104, "all have ended", "s soft", "middle")
    draw.box(472, 86, 116, 50, "done", "all counted", kind="good")
    draw.box(228, 24, 130, 36, "paused", kind="medium")
    draw.way((268, 86), (268, 62))
    draw.text(259, 78, "pause", "s soft", "end")
    draw.way((318, 60), (318, 84))
    draw.text(327, 78, "resume", "s soft")
    draw.way((310, 136), (310, 160), (470, 160))
    draw.text(414, 154, "cancel", "s soft", "middle")
    draw.box(472, 143, 116, 34, "cancelled", kind="bad")
    draw.way((276, 136), (276, 203), (470, 203))
    draw.text(414, 197, "its expiry", "s soft", "middle")
    draw.box(472, 186, 116, 34, "expired", kind="bad")
    draw.way((588, 111), (624, 111), head=False)
    draw.way((588, 160), (624, 160), head=False)
    draw.way((588, 203), (624, 203), (624, 111), head=False)
    draw.way((624, 140), (648, 140))
    draw.text(654, 138, "forgotten", "b")
    draw.text(654, 154, "after 90 days", "s soft")
    return draw.svg()


def shares() -> str:
    draw = Canvas(SHARES, 240)
    left, whole = 110, 620
    rows = (
        ("the sink", [(100, "all of its slots", "plain")]),
        ("levels", [(60, "high 6", "high"), (30, "medium 3", "medium"), (10, "low 1", "low")]),
        ("apps", [(40, "shop, quota 2", "high"), (20, "bank, quota 1", "high")]),
        ("tasks", [(30, "sale, quota 3", "high"), (10, "alert 1", "high")]),
    )
    for place, (name, parts) in enumerate(rows):
        x, y = float(left), 24 + 52 * place
        draw.text(20, y + 24, name, "b")
        for percent, text, kind in parts:
            w = whole * percent / 100
            draw.bar(x + 1, y, w - 2, 38, kind)
            draw.text(x + w / 2, y + 17, text, "s" if percent == 10 else "", "middle")
            draw.text(x + w / 2, y + 32, f"{percent} %", "s soft", "middle")
            x += w
    return draw.svg()


def retries() -> str:
    draw = Canvas(RETRIES, 250)
    draw.text(20, 34, "The answer is about the push: each failure costs an attempt", "b")
    draw.way((20, 96), (596, 96), head=False)
    for place, (x, wait) in enumerate(
        [(40, "1 s"), (120, "2 s"), (230, "4 s"), (370, "8 s"), (560, "")]
    ):
        draw.box(x - 15, 81, 30, 30, str(place + 1), kind="medium" if place < 4 else "bad")
        if wait:
            following = [120, 230, 370, 560][place]
            draw.text((x + following) / 2, 74, f"up to {wait}", "s soft", "middle")
    draw.text(20, 134, "no answer in time: dead at once, unless --retry-timeouts", "s soft")
    draw.way((576, 96), (608, 96))
    draw.box(610, 70, 130, 52, "dead letters", "list, retry, purge", kind="bad")
    draw.text(20, 174, "The answer is about the sink: no attempt is lost", "b")
    draw.way((20, 216), (608, 216), head=False)
    draw.box(25, 201, 30, 30, "1", kind="medium")
    draw.bar(70, 206, 400, 20, "plain")
    draw.text(270, 221, "429, 503, refused: the sink rests, one probe at a time", "s", "middle")
    draw.box(485, 201, 30, 30, "1", kind="medium")
    draw.way((515, 216), (608, 216))
    draw.box(610, 194, 130, 44, "delivered", kind="good")
    return draw.svg()


def quiet_hours() -> str:
    draw = Canvas(QUIET, 236)
    left, hour, first = 146, 34.0, 18

    def at(utc: float) -> float:
        return left + (utc - first) * hour

    for utc in range(first, first + 18, 2):
        draw.text(at(utc), 32, f"{utc % 24}:00", "s soft", "middle")
    draw.text(20, 32, "UTC", "b")
    cities: Iterable[tuple[str, int, str, list[tuple[float, float]]]] = (
        ("New York", -5, "15:00", [(20, 24)]),
        ("Berlin", 1, "21:00", [(20, 21), (31, 33)]),
        ("Tokyo", 9, "5:00", [(23, 27)]),
    )
    for place, (city, offset, local, sends) in enumerate(cities):
        y = 50 + 52 * place
        draw.text(20, y + 16, city, "b")
        draw.text(20, y + 32, f"{local} at the start", "s soft")
        draw.bar(at(first), y, 17 * hour, 36, "plain")
        for day in (0, 24, 48):
            start, end = 22 - offset + day - 24, 32 - offset + day - 24
            start, end = max(start, first), min(end, first + 17)
            if start < end:
                draw.bar(at(start), y, (end - start) * hour, 36, "low")
                draw.text(at((max(start, 20) + end) / 2), y + 22, "quiet", "s", "middle")
        for begins, ends in sends:
            draw.bar(at(begins), y + 8, (ends - begins) * hour, 20, "good")
            draw.text(at((begins + ends) / 2), y + 22, "send", "s", "middle")
    draw.way((at(20), 40), (at(20), 202), dashed=True, head=False)
    draw.text(at(20), 220, "the task starts", "s soft", "middle")
    return draw.svg()


def deployment() -> str:
    draw = Canvas(DEPLOYMENT, 400)
    draw.text(20, 32, "One machine", "b")
    draw.box(20, 48, 170, 52, "your program, CLI", "submit, push")
    draw.way((190, 74), (258, 74))
    draw.box(260, 48, 170, 52, "SQLite file", "tasks, pushes, results", kind="store")
    draw.way((430, 74), (498, 74))
    draw.box(500, 48, 110, 52, "dispatcher", kind="medium")
    draw.way((610, 74), (638, 74))
    draw.box(640, 48, 100, 52, "sinks", kind="low")
    draw.way((20, 122), (740, 122), dashed=True, head=False)
    draw.text(20, 152, "Several machines", "b")
    for place, (name, said) in enumerate(
        [
            ("producers", "Python, Spark, CLI"),
            ("pushlane serve", "HTTP API, console"),
            ("pushlane ingest", "Kafka, files"),
        ]
    ):
        draw.box(20, 168 + 70 * place, 170, 52, name, said)
        draw.way((190, 194 + 70 * place), (246, 194 + 70 * place))
    draw.box(248, 168, 194, 192)
    draw.box(
        260, 180, 170, 78, "Pulsar", "pushes, receipts,", "a record of all tasks", kind="store"
    )
    draw.box(260, 270, 170, 78, "Redis", "tasks, counts, limits,", "what was claimed", kind="store")
    for place in range(3):
        draw.box(500, 168 + 70 * place, 110, 52, "dispatcher", kind="medium")
        draw.way((442, 194 + 70 * place), (498, 194 + 70 * place))
        draw.way((610, 194 + 70 * place), (638, 194 + 70 * place))
    for place, (name, said) in enumerate(
        [("FCM, APNs", ""), ("Web Push", "webhooks"), ("your own", "function")]
    ):
        lines = [name, said] if said else [name]
        draw.box(640, 168 + 70 * place, 100, 52, *lines, kind="low")
    draw.text(555, 382, "start more at any time", "s soft", "middle")
    return draw.svg()


def parts() -> str:
    draw = Canvas(PARTS, 330)
    for place, (name, said) in enumerate(
        [
            ("submit, Client", "files, one call"),
            ("Producer", "one by one"),
            ("fan-out, rules", "Spark"),
        ]
    ):
        draw.box(20, 24 + 70 * place, 150, 52, name, said)
        draw.way((170, 50 + 70 * place), (216, 50 + 70 * place))
    draw.box(218, 24, 190, 262)
    draw.text(313, 46, "a backend", "b", "middle")
    for place, (name, said) in enumerate(
        [
            ("Broker", "lanes"),
            ("Registry", "tasks, weights, counts"),
            ("small ports", "claims, limits, lease, …"),
            ("ReceiptLog", "outcomes"),
        ]
    ):
        draw.box(230, 58 + 56 * place, 166, 48, name, said, kind="store")
    draw.box(454, 24, 176, 262)
    draw.text(542, 46, "a dispatcher", "b", "middle")
    draw.box(
        466,
        58,
        152,
        76,
        "Line of a sink",
        "loop, scheduler, slots,",
        "guards, settlement",
        kind="medium",
    )
    draw.box(466, 142, 152, 36, "Line of another", kind="medium")
    draw.box(466, 186, 152, 42, "Shared", "tasks, completion")
    draw.box(466, 236, 152, 42, "leader's work", "housekeeping")
    draw.way((408, 96), (452, 96))
    draw.text(430, 88, "read", "s soft", "middle")
    draw.way((452, 216), (410, 216))
    draw.text(431, 208, "record", "s soft", "middle")
    draw.way((618, 96), (664, 96))
    draw.box(666, 70, 74, 52, "sink", kind="low")
    draw.way((618, 160), (664, 160))
    draw.box(666, 134, 74, 52, "sink", kind="low")
    draw.way((313, 274), (313, 308), (172, 308))
    draw.box(20, 288, 150, 34, "reports, alerts")
    draw.text(304, 300, "Spark reads receipts", "s soft", "end")
    return draw.svg()


PICTURES: dict[str, tuple[str, Callable[[], str]]] = {
    "push-life.svg": (PUSH, push_life),
    "task-life.svg": (TASK, task_life),
    "shares.svg": (SHARES, shares),
    "retries.svg": (RETRIES, retries),
    "quiet-hours.svg": (QUIET, quiet_hours),
    "deployment.svg": (DEPLOYMENT, deployment),
    "parts.svg": (PARTS, parts),
}
"""Each picture by the name of its file: what it shows, in words, and what draws it."""


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (_, draw) in PICTURES.items():
        (FOLDER / name).write_text(draw())


if __name__ == "__main__":
    main()
