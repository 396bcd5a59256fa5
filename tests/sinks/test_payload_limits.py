"""The sizes that providers allow, where they can be known before anything is sent."""

import pytest

from pushlane.core.push import Push, encode
from pushlane.settings import Settings
from pushlane.settings.payload_limits import payload_limits
from pushlane.settings.sinks import SinkSettings

SETTINGS = Settings(
    sinks={
        "android": SinkSettings(kind="fcm"),
        "news": SinkSettings(kind="fcm", options={"address": "topic"}),
        "ios": SinkSettings(kind="apns"),
        "calls": SinkSettings(kind="apns", options={"push_type": "voip"}),
        "quiet": SinkSettings(kind="apns", options={"push_type": "background"}),
        "web": SinkSettings(kind="webpush"),
        "own": SinkSettings(kind="webhook"),
    }
)


def excess(sink, **fields):
    push = Push("t", 1, "device", **fields)
    return payload_limits(SETTINGS, (sink,)).excess(push, len(encode(push)))


@pytest.mark.parametrize(
    ("sink", "most"),
    [("android", 4096), ("news", 2048), ("ios", 4096), ("calls", 5120), ("web", 3993)],
)
def test_texts_are_refused_from_the_first_byte_too_many_on(sink, most):
    assert excess(sink, title="é", body="x" * (most - 2)) == ""
    kind = SETTINGS.sinks[sink].kind
    over = f"{most + 1:,} bytes for the sink {sink}, over the {most:,} that {kind} allows"
    assert excess(sink, title="é", body="x" * (most - 1)) == over


def test_of_data_names_and_values_count():
    assert excess("ios", data={"a": "x" * 4093, "é": None}) == ""
    assert excess("ios", data={"a": "x" * 4094, "é": None})
    assert excess("android", data={"a": {"b": [1, 2]}, "c": "x" * 4089})


def test_a_background_push_has_no_texts():
    assert excess("quiet", body="x" * 5000) == ""
    assert excess("quiet", data={"a": "x" * 4096})


def test_of_a_payload_all_counts_and_with_fcm_its_notification_and_data():
    payloads = {"": {"android": {"notes": "x" * 5000}, "data": {"a": "b"}}}
    assert excess("ios", payloads=payloads)
    assert excess("android", payloads=payloads) == ""
    assert excess("android", payloads={"": {"data": {"a": "x" * 5000}}})


def test_a_sink_that_it_does_not_go_to_does_not_count():
    push = Push("t", 1, "device", body="x" * 4500, addresses={"web": "", "own": "u"})
    limits = payload_limits(SETTINGS, ("web", "own"))
    assert limits.sinks == {"web": ("webpush", 3993)}
    assert limits.excess(push, len(encode(push))) == ""


def test_without_such_a_sink_there_is_no_limit():
    assert payload_limits(SETTINGS, ("own", "unknown", "default")).sinks == {}
