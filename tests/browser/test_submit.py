"""A submit in a real browser: a file is dropped, checked and submitted, and its rows arrive."""

from __future__ import annotations

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.model.presence import Process, ServedSink
from pushlane.settings import Settings
from pushlane.testing import Receiver
from tests.browser.conftest import Served, Visitor
from tests.browser.test_console import SCRIPT, WIDTHS, Come, found_by_axe, shown
from tests.core.support import drain

pytestmark = pytest.mark.xdist_group("browser")

ROWS = "recipient,city\ndevice-1111,Berlin\ndevice-2222,Lagos\ndevice-3333,Tokyo\n"
DROP = """([name, text, size]) => {
  const file = new File([text], name);
  if (size) Object.defineProperty(file, "size", {value: size});
  const dropped = new DataTransfer();
  dropped.items.add(file);
  const on = document.getElementById("drop");
  on.dispatchEvent(new DragEvent("dragover", {dataTransfer: dropped, cancelable: true}));
  on.dispatchEvent(new DragEvent("drop", {dataTransfer: dropped, cancelable: true}));
}"""


def drops(me: Visitor, name: str, text: str) -> None:
    """Drop a file on the page, and wait for its own."""
    me.goes_to("submit")
    me.page.evaluate(DROP, [name, text, 0])
    me.page.wait_for_url("**/submit/*.*")
    me.sees_state("live")


def checks(me: Visitor, **typed: str) -> None:
    """Type into the fields of these labels, and check."""
    me.page.get_by_label("Level").select_option("high")
    for label, text in typed.items():
        me.page.get_by_label(label, exact=True).fill(text)
    me.page.get_by_role("button", name="Check").click()


async def _fill(backend: Backend) -> None:
    """A sink that delivers, and a task at it."""
    stands = ServedSink(
        name="default", slots=10, in_flight=10, delivery_s=0.1, delivered_per_s={"high": 100.0}
    )
    serving = Process(
        id="d", kind="dispatcher", pid=7, version="1", serves=("default",), served=(stands,)
    )
    await backend.presence.announce(serving, 600.0)
    made = Task(
        id="news",
        name=SCRIPT,
        level=Level.HIGH,
        lane=own_lane("news"),
        state=State.RUNNING,
        total=90_000,
        created_at_ms=now_ms(),
    )
    await backend.registry.add(made)


async def _deliver(backend: Backend) -> list[str]:
    receiver = Receiver()
    await drain(backend, receiver, Settings())
    return sorted(f"{push.recipient} {push.title}" for push in receiver.pushes)


def test_a_file_is_dropped_checked_and_submitted_and_its_rows_arrive(
    served: Served, visitor: Come
) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "tasks")
    drops(me, "sale.csv", ROWS)
    checks(me, Title="Hi {city}")

    me.sees("3 pushes of level high")
    me.sees("Hi Berlin")
    title = me.page.get_by_label("Title", exact=True)
    title.fill("Hello {city}")
    submit = me.page.get_by_role("button", name="Submit 3 pushes")
    assert submit.is_disabled()
    me.page.get_by_role("button", name="Check").click()
    me.sees("Hello Berlin")
    submit.click()
    me.sees("It is submitted: 3 pushes.")
    me.page.get_by_role("button", name="Check").wait_for(state="hidden")
    me.page.get_by_role("link", name="To the task").click()
    me.sees_state("live")
    assert served.work(_deliver) == [
        "device-1111 Hello Berlin",
        "device-2222 Hello Lagos",
        "device-3333 Hello Tokyo",
    ]


def test_a_file_that_is_too_large_is_not_sent(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "tasks")
    me.goes_to("submit")
    sent: list[str] = []
    me.page.on("request", lambda request: sent.append(f"{request.method} {request.url}"))

    me.page.evaluate(
        """() => {
          const file = document.getElementById("file");
          Object.defineProperty(file, "files", {value: [{name: "all.csv", size: 2 ** 31}]});
          file.dispatchEvent(new Event("change"));
        }"""
    )
    me.sees("larger than what is taken here")
    me.page.get_by_role("button", name="Upload").click()

    assert [one for one in sent if one.startswith("POST")] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_the_page_of_a_file(
    served: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    served.work(_fill)
    me = visitor(served, colours, WIDTHS[width])
    me.logs_in(served.token(), "tasks")
    drops(me, "sale.csv", f'{ROWS},"{SCRIPT}"\n')
    for state in ("fresh", "checked", "submitted"):
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"submit-{state}-{colours}-{width}")
        if state == "fresh":
            checks(me, Title=f"Hi {{city}} {SCRIPT}")
            me.sees("1 row cannot be used")
            me.page.get_by_text("More options").click()
            me.page.get_by_label("Bad rows").select_option("skip")
            me.page.get_by_role("button", name="Check").click()
            me.sees("1 row left out")
            me.sees("Who ends when")
        if state == "checked":
            me.page.get_by_role("button", name="Submit 3 pushes").click()
            me.sees("It is submitted: 3 pushes.")
