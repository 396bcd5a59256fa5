"""Options of all kinds of sinks that have secrets."""

import pytest

from pushlane.dispatcher.sinks import sink_options

SECRET = "s3cretS3CRETs3cret"
POSTED = {"url": f"https://a.example/{SECRET}?k={SECRET}", "authorization": SECRET}
SIGNED = {**POSTED, "secrets": [SECRET], "headers": {"X-Key": SECRET}}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("webhook", SIGNED),
        ("http", SIGNED),
        ("gorush", {**POSTED, "platform": "ios"}),
        ("fcm", {"credentials": SECRET}),
        ("apns", {"key": SECRET, "key_id": SECRET, "team_id": SECRET, "topic": "a.b"}),
        ("webpush", {"vapid_key": SECRET, "subject": "mailto:a@example.com"}),
    ],
)
def test_a_repr_has_no_secret(kind, options):
    assert SECRET not in repr(sink_options(kind, options, "the sink"))
