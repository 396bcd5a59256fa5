"""The broker settings that pushlane needs, as lines for the end of a standalone.conf.

A later line wins over an earlier one of the same name. journalSyncData stays what standalone has
(false): a machine that loses power can lose the last messages, so measure no durability on it.
"""

from __future__ import annotations

from pushlane.cli.stack.values import HOST, Ports

MEMORY = "-Xms512m -Xmx1g -XX:MaxDirectMemorySize=1g"
GARBAGE_COLLECTOR = "-XX:+UseG1GC"
ENVIRONMENT = {
    "PULSAR_MEM": MEMORY,
    "PULSAR_GC": GARBAGE_COLLECTOR,
    "PULSAR_LOG_LEVEL": "warn",
    "PULSAR_LOG_ROOT_LEVEL": "warn",
}


def conf_lines(ports: Ports, *, bind: str, advertise: str = HOST) -> str:
    """Begins with an empty line, since the file that it is added to lacks a last newline."""
    settings = {
        "bindAddress": bind,
        "advertisedAddress": advertise,
        "brokerServicePort": ports.broker,
        "webServicePort": ports.admin,
        "allowAutoTopicCreation": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "delayedDeliveryTickTimeMillis": "100",
    }
    return "\n" + "".join(f"{name}={value}\n" for name, value in settings.items())


def container_command(ports: Ports, *, advertise: str = HOST) -> list[str]:
    """What the Pulsar image runs: its own settings with ours at the end."""
    lines = conf_lines(ports, bind="0.0.0.0", advertise=advertise)  # noqa: S104 - in the container
    script = (
        f"printf '%s' '{lines}' >> conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"
    )
    return ["bash", "-c", script]
