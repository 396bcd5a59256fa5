"""The pages of tasks in a real browser: a quota that is moved by hand, and what becomes of it."""

from __future__ import annotations

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import dead_lane, own_lane
from pushlane.core.push import DeadPush, Kind, Push, encode, encode_dead
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.presence import Process, ServedSink
from pushlane.operations.tasks import GetTask, PauseTask, SetQuota
from tests.browser.conftest import Served, Visitor
from tests.browser.test_console import SCRIPT, WIDTHS, Come, found_by_axe, shown
from tests.receipt_bodies import body

pytestmark = pytest.mark.xdist_group("browser")

SERVING = Process(
    id="d1",
    kind="dispatcher",
    pid=7,
    version="1",
    started_at_ms=10_000,
    serves=("default",),
    served=(
        ServedSink(
            name="default",
            slots=10,
            in_flight=10,
            delivery_s=0.1,
            delivered_per_s={"medium": 100.0},
        ),
    ),
)


async def _fill(backend: Backend) -> None:
    await backend.presence.announce(SERVING, 600.0)
    for name, total in (("sale", 90_000), ("bills", 60_000), (SCRIPT, 30_000)):
        task_id = "x" if name == SCRIPT else name
        made = Task(
            id=task_id,
            name=name,
            app=SCRIPT if name == SCRIPT else "shop",
            level=Level.MEDIUM,
            lane=own_lane(task_id),
            state=State.RUNNING,
            total=total,
            created_at_ms=now_ms(),
        )
        await backend.registry.add(made)
    await backend.registry.record([Finished("sale", Kind.DELIVERED, [*range(1, 900)])])
    await backend.registry.record([Finished("sale", Kind.DEAD, [*range(900, 950)], SCRIPT)])
    await backend.broker.open_lane(dead_lane("sale"))
    dead = DeadPush("sale", 900, 5, SCRIPT, now_ms(), encode(Push("sale", 900, "ada")))
    await backend.broker.publish(dead_lane("sale"), [encode_dead(dead)])


@pytest.fixture
def filled(served: Served) -> Served:
    served.work(_fill)
    return served


def slide(me: Visitor, times: int) -> None:
    """Move the slider by keyboard, once the page hears of it."""
    me.page.locator("#quota-slider").wait_for()
    me.page.wait_for_load_state()
    me.page.locator("#quota-slider").focus()
    for _ in range(times):
        me.page.keyboard.press("ArrowRight")


def test_ends_move_with_the_slider_and_nothing_counts_until_it_is_pressed(
    filled: Served, visitor: Come
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks")
    me.page.get_by_role("link", name="Quota of sale: 1").click()

    slide(me, 3)
    me.sees("Set the quota of sale to 4:")
    table = me.page.get_by_role("region", name="Ends before and after")
    assert "later" in table.inner_text()
    assert "sooner" in table.inner_text()
    slide(me, 1)
    me.sees("Set the quota of sale to 5:")
    assert filled.do(GetTask(task="sale")).quota == 1
    me.page.get_by_role("button", name="Set the quota of sale to 5").click()

    me.sees("set-quota is done.")
    assert filled.do(GetTask(task="sale")).quota == 5
    me.page.get_by_role("link", name="Undo set-quota of sale").click()
    me.page.get_by_role("button", name="Set the quota of sale to 1").click()
    me.sees("set-quota is done.")
    assert filled.do(GetTask(task="sale")).quota == 1


def test_what_cannot_be_is_told_and_cannot_be_pressed(filled: Served, visitor: Come) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks")
    me.goes_to("tasks/sale?quota=1#quota")
    number = me.page.get_by_label("Pushes a turn")

    number.fill("7")
    me.sees("Set the quota of sale to 7:")
    number.fill("70000")
    me.page.locator("#preview [role=alert]").wait_for()
    assert me.page.locator("#preview button").count() == 0
    number.fill("8")
    me.sees("Set the quota of sale to 8:")


def test_a_quota_that_somebody_else_has_changed_is_looked_at_again(
    filled: Served, visitor: Come
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks")
    me.goes_to("tasks?quota=sale")
    slide(me, 2)
    me.sees("Set the quota of sale to 3:")
    filled.do(SetQuota(task="sale", quota=9))

    me.page.get_by_role("button", name="Set the quota of sale to 3").click()
    me.sees("somebody has changed the same")
    assert any("409" in one for one in me.wrong)
    me.wrong.clear()  # which is how a browser tells of the answer
    me.page.get_by_role("link", name="Preview the change again").click()
    me.page.get_by_role("button", name="Set the quota of sale to 3").click()

    me.sees("set-quota is done.")
    assert filled.do(GetTask(task="sale")).quota == 3


def test_two_operators_see_what_each_does_and_what_is_typed_stays(
    filled: Served, visitor: Come
) -> None:
    me, other = visitor(filled), visitor(filled)
    me.logs_in(filled.token(), "tasks")
    other.logs_in(filled.token(name="other"), "tasks")
    me.page.get_by_label("Id, key or name has").fill("bil")

    other.page.get_by_role("button", name="Pause sale").click()
    other.sees("pause-task is done.")

    me.page.locator("#task-sale [data-state=paused]").wait_for()
    assert me.page.get_by_label("Id, key or name has").input_value() == "bil"
    me.page.keyboard.press("Enter")
    me.page.wait_for_url("**/tasks?find=bil&*")
    assert me.page.locator("tbody tr").count() == 1


def test_the_parts_of_a_task_come_by_themselves(filled: Served, visitor: Come, axe: str) -> None:
    said = body("sale", [1], at_ms=now_ms() - 60_000, waits={"quiet": 300, "slot": 100})
    filled.work(lambda backend: backend.receipts.append([said]))
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks/sale")

    me.page.locator("#life li").first.wait_for()
    me.page.locator("#dead tbody tr").wait_for()
    me.page.locator("#why li").first.wait_for()
    assert me.page.locator("#results dl").count() == 0
    me.page.get_by_role("button", name="Read its receipts").click()
    me.sees("From its dispatch to the answer")
    me.page.get_by_role("button", name="Make its report").click()
    me.sees("How far its pushes came")
    me.page.get_by_role("link", name="Read in its receipts when its first push").click()
    me.page.locator("#life").get_by_text("first push sent", exact=False).last.wait_for()
    me.page.locator("#life .tracks rect").first.wait_for()
    assert me.page.get_by_role("region", name="Where the wait went").count() == 2
    assert found_by_axe(me, axe) == []
    filled.do(PauseTask(task="sale", reason="look here"))
    me.page.get_by_role("button", name="Look again: Why it waits").click()
    me.page.locator("#why").get_by_text("it is paused: look here").wait_for()


@pytest.mark.parametrize(("colours", "width"), [("light", "wide"), ("dark", "small")])
def test_everybody_sees_where_the_wait_of_a_push_went(
    filled: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    said = body("sale", [1], at_ms=now_ms() - 60_000, waits={"quiet": 300, "slot": 100})
    filled.work(lambda backend: backend.receipts.append([said]))
    me = visitor(filled, colours, WIDTHS[width])
    me.logs_in(filled.token(), "tasks")
    me.goes_to("push?push=sale-1")

    me.sees("Its recipient had quiet hours.")
    assert found_by_axe(me, axe) == []
    assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    shown(me, f"push-waits-{colours}-{width}")


@pytest.mark.parametrize(("colours", "width"), [("light", "wide"), ("dark", "small")])
def test_what_is_held_is_on_the_line_of_time(
    filled: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    me = visitor(filled, colours, WIDTHS[width])
    me.logs_in(filled.token(), "now")
    me.sees_state("live")
    filled.do(PauseTask(task="sale"))

    me.page.locator(".tracks rect[data-kind=paused]").wait_for()
    me.sees("pause-task of task/sale: state running → state paused by root")
    bar, chart = (
        me.page.locator(one).first.bounding_box() for one in (".tracks rect", ".hour svg")
    )
    assert bar is not None
    assert chart is not None
    assert abs(bar["x"] + bar["width"] - chart["x"] - chart["width"]) < 2
    assert found_by_axe(me, axe) == []
    assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    shown(me, f"now-held-{colours}-{width}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_steer(
    filled: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    filled.do(SetQuota(task="bills", quota=3))
    me = visitor(filled, colours, WIDTHS[width])
    me.logs_in(filled.token(name=SCRIPT), "tasks")
    me.goes_to("tasks?quota=sale")
    me.sees_state("live")
    slide(me, 3)
    me.sees("Set the quota of sale to 4:")
    for path, ready in (
        ("tasks", "#preview table"),
        ("tasks/sale", "#dead tbody tr"),
        ("preview?operation=cancel-task&task=sale", ".apply"),
    ):
        if path != "tasks":
            me.goes_to(path)
        me.page.locator(ready).wait_for()
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"{path.partition('?')[0].replace('/', '-')}-steered-{colours}-{width}")


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_how_tasks_stand_is_seen_without_scrolling_sideways(
    filled: Served, visitor: Come, width: int
) -> None:
    me = visitor(filled, "light", width)
    me.logs_in(filled.token(), "tasks")
    for path in ("tasks", "now"):
        me.goes_to(path)
        table = me.page.get_by_role("region", name="Tasks", exact=True)
        table.wait_for()
        assert table.evaluate("one => one.scrollWidth - one.clientWidth") == 0
        assert table.get_by_role("row").count() >= 2
        assert table.get_by_role("cell", name="running").first.is_visible()


def test_all_of_a_view_are_changed_in_the_background(
    filled: Served, visitor: Come, axe: str
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks")
    me.goes_to("tasks?app=shop")
    me.page.get_by_role("link", name="Pause all of them").click()
    me.sees("Pause 2 tasks. Tasks that match only later stay as they are.")
    assert found_by_axe(me, axe) == []
    me.page.get_by_role("button", name="Pause 2 tasks").click()

    me.sees("It is through: 2 done.")
    assert found_by_axe(me, axe) == []
    assert filled.do(GetTask(task="bills")).state == "paused"
    assert filled.do(GetTask(task="x")).state == "running"
