"""`pushlane alerts`: rules saved, shown, measured and removed from the command line."""

from __future__ import annotations

import pytest

from pushlane.core.task import now_ms
from tests.receipt_stores import store_of

URL = "http://127.0.0.1:9/hook?token=s3cret"


@pytest.fixture
def add(command):
    def run(name="failing", *more, metric="failure_rate", when="> 5%"):
        return command(
            "alerts", "add", name, "--metric", metric, "--when", when, "--to", URL, *more
        )

    return run


@pytest.fixture
def store(command):
    """A hundred receipts of a minute ago; a tenth of them dead."""
    at_ms = now_ms() - 120_000
    dead = [{"outcome": "dead", "responded_at_ms": at_ms}] * 10
    return store_of(command.folder / "data" / "reports", [*dead, *_delivered(at_ms)])


def _delivered(at_ms):
    return [{"responded_at_ms": at_ms, "sink": "fcm"}] * 90


def test_an_alert_is_saved_listed_and_removed(command, add):
    assert add("failing", "--by", "sink", "--for", "10m").exit_code == 0
    [saved] = command("alerts", "list", "--json").json
    assert (saved["name"], saved["by"], saved["for_s"]) == ("failing", "sink", 600)
    assert command("alerts", "remove", "failing").exit_code == 0
    assert command("alerts", "list", "--json").json == []


def test_a_webhook_is_shown_by_its_host_alone(command, add):
    add()
    for words in (
        ("list",),
        ("list", "--json"),
        ("show", "failing"),
        ("show", "failing", "--json"),
    ):
        ran = command("alerts", *words)
        assert "127.0.0.1:9" in ran.stdout
        assert "s3cret" not in ran.stdout + ran.stderr


def test_a_test_measures_and_tells_nobody(command, add, store):
    add("failing", "--by", "sink")
    found = {row["group"]: row for row in command("alerts", "test", "failing", "--json").json}
    assert (found["webhook"]["value"], found["webhook"]["alarming"]) == (1.0, True)
    assert (found["fcm"]["value"], found["fcm"]["alarming"]) == (0.0, False)
    assert command("alerts", "show", "failing", "--json").json["groups"] == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metric": "failure-rate"}, "did you mean 'failure_rate'"),
        ({"when": "much"}, "not of a form"),
    ],
)
def test_an_alert_that_cannot_be_is_refused(add, given, words):
    ran = add(**given)
    assert ran.exit_code == 1
    assert words in ran.stderr


def test_a_second_alert_of_a_name_is_refused(add):
    add()
    assert "--replace" in add().stderr
    assert add("failing", "--replace").exit_code == 0


def test_an_unknown_alert_is_refused_with_the_nearest(command, add):
    add()
    assert "did you mean 'failing'" in command("alerts", "show", "failin").stderr


def test_one_look_without_a_store_fails_and_says_how_to_make_one(command, add):
    add()
    ran = command("alerts", "run", "--once")
    assert ran.exit_code == 1
    assert "pushlane pipeline run" in ran.stderr


def test_hosts_that_are_allowed_have_to_be_hosts(command):
    ran = command("alerts", "run", "--once", "--allow", "https://hooks.example.com")
    assert ran.exit_code == 1
    assert "is not a host: give names" in ran.stderr


def test_a_webhook_inside_the_network_is_told_only_where_that_is_allowed(command, add, store):
    add("failing", "--at-least", "1")
    ran = command("alerts", "run", "--once")
    assert ran.exit_code == 1
    assert (
        "the URL of host 127.0.0.1 is not https; if that is intended, allow it with `allow`"
        in ran.stderr
    )
    ran = command("alerts", "run", "--once", "--allow", "127.0.0.1")
    assert "no answer (ConnectError)" in ran.stderr
    assert "s3cret" not in ran.stdout + ran.stderr
