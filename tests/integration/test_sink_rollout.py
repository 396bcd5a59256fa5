"""A webhook's URL is rolled as the chart does it: new processes come before the old ones go."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from scripts.chart import CHART
from tests.processes import Pushlane, Received, Running, each_once, until

COUNT = 300
_SHIPPED = yaml.safe_load((CHART / "values.yaml").read_text())["settings"]


def test_a_new_url_is_rolled_out_without_a_loss_or_a_repeat(
    pushlane: Pushlane, webhook: Callable[..., Received]
) -> None:
    old_url, new_url = webhook(20), webhook(20)
    old = pod(pushlane, old_url)
    old.until("started")
    before = pushlane.submit("high", COUNT)
    old_url.until_of(before, 10, old)

    new = pod(pushlane, new_url)
    new.until("sink_split")
    meanwhile = pushlane.submit("high", COUNT)
    new_url.until_of(meanwhile, 10, new)
    [row] = pushlane.json("sinks", "list")
    assert (row["served_by"], row["state"]) == (2, "2 different targets")
    assert {target["kind"] for target in row["targets"]} == {"webhook"}

    assert old.stop() == 0, old.text
    after = pushlane.submit("high", COUNT)
    totals = dict.fromkeys((before, meanwhile, after), COUNT)
    until(lambda: all(pushlane.task(task)["state"] == "done" for task in totals))

    assert old_url.pushes + new_url.pushes == each_once(totals)
    assert old_url.of(after) == 0
    [row] = pushlane.json("sinks", "list")
    assert (row["served_by"], row["state"]) == (1, "delivers")
    assert new.stop() == 0


def pod(pushlane: Pushlane, to: Received) -> Running:
    """A dispatcher with the settings that the chart gives unless told otherwise."""
    replaces = str(_SHIPPED["replace_sink"]).lower()
    settings = f'sink = "{to.sink}"\nreplace_sink = {replaces}\n'
    (pushlane.folder / "pushlane.toml").write_text(settings)
    return pushlane.dispatch("--slots", "2")
