"""Deliveries through the sink of APNs to its emulator, at one instant."""

from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.apns import ApnsOptions, ApnsSink
from pushlane.dispatcher.sinks.http_client import Timeouts
from tests.emulators.apns import KEY_ID, TEAM_ID, TOPIC

NOW_S = 735_000 * 2_400 + 1_800.0
DEVICE = "0D" * 32


def push(seq=1, **fields):
    return Push("task", seq, "somebody@example.com", "Title", "Body é", **fields)


def delivery(of=None, level=Level.HIGH, address=DEVICE, payload=None):
    return Delivery(of or push(), level, address, payload)


def sink_to(apns, slots=1, **options):
    given = {"key": apns.pem(), "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC}
    options = ApnsOptions(**{**given, "endpoint": apns.server.url, **options})
    return ApnsSink(options, slots, Timeouts(60.0), now=lambda: NOW_S)


async def send(apns, *deliveries, **options):
    """What became of these deliveries, one after the other."""
    async with apns.server.running():
        sink = sink_to(apns, **options)
        try:
            return [(await sink.deliver([each]))[0] for each in deliveries]
        finally:
            await sink.close()
