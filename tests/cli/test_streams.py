"""`streams`: what single pushes are sent as, made and steered."""

from __future__ import annotations

from tests.command import Command


def test_a_stream_is_made_changed_listed_and_ended(command: Command) -> None:
    none = command("streams", "list")
    made = command(
        *("streams", "put", "orders", "--level", "high", "--app", "shop"),
        *("--expires-after", "2h", "--rate", "50", "--json"),
    )
    quota = command("streams", "quota", "orders", "3")
    paused = command("streams", "pause", "orders", "--reason", "wrong text")
    listed = command("streams", "list")
    shown = command("streams", "show", "orders")
    resumed = command("streams", "resume", "orders")
    ended = command("streams", "end", "orders")
    gone = command("streams", "show", "orders")

    assert "no streams" in none.stderr
    assert "make one: pushlane streams put NAME --level LEVEL" in none.stderr
    assert (made.json["expires_after_s"], made.json["rate_per_s"]) == (7200.0, 50.0)
    assert quota.stderr == "stream orders of app shop: high, 3 in its turn, open\n"
    told = "stream orders of app shop: high, 3 in its turn, paused: wrong text\n"
    assert paused.stderr == told
    assert listed.stdout.split()[:6] == ["NAME", "APP", "LEVEL", "QUOTA", "SINKS", "STATE"]
    assert listed.stdout.splitlines()[1].split()[:5] == ["orders", "shop", "high", "3", "default"]
    assert "tasks            -\n" in shown.stdout
    assert resumed.stderr == quota.stderr
    assert ended.stderr == "stream orders of app shop takes no more; what it has is sent\n"
    assert (gone.exit_code, gone.stderr) == (
        1,
        "error: there is no stream 'orders' of an app that you may see\n",
    )


def test_a_stream_that_cannot_be_is_refused(command: Command) -> None:
    level = command("streams", "put", "orders", "--level", "urgent")
    name = command("streams", "put", "my orders", "--level", "low")
    expiry = command("streams", "put", "orders", "--level", "low", "--expires-after", "soon")

    assert (level.exit_code, name.exit_code, expiry.exit_code) == (1, 1, 1)
    assert "unknown level 'urgent'" in level.stderr
    assert "'my orders' is not a name for a stream" in name.stderr
    assert "expires_after_s" in expiry.stderr


def test_of_several_apps_one_is_named(command: Command) -> None:
    for app in ("news", "shop"):
        command("streams", "put", "orders", "--level", "low", "--app", app)
    unclear = command("streams", "pause", "orders")
    named = command("streams", "pause", "orders", "--app", "news")

    assert "several apps have a stream 'orders': news, shop; give one of them" in unclear.stderr
    assert named.stderr == "stream orders of app news: low, 1 in its turn, paused\n"
