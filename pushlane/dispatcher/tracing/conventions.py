"""The names in our spans, by the semantic conventions of OpenTelemetry for messaging.

They are of version 1.43.0, in which those of messaging are in development: when they change, they
change here. What the conventions have no name for begins with `pushlane.`.
"""

from __future__ import annotations

from enum import StrEnum

SCHEMA_URL = "https://opentelemetry.io/schemas/1.43.0"

SYSTEM_NAME = "pushlane"
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION_TEMPLATE = "messaging.destination.template"
MESSAGE_ID = "messaging.message.id"
ERROR_TYPE = "error.type"

TASK = "pushlane.task"
APP = "pushlane.app"
LEVEL = "pushlane.level"
SINK = "pushlane.sink"
ATTEMPT = "pushlane.attempt"
OUTCOME = "pushlane.outcome"
WAIT = "pushlane.wait."
"""Milliseconds of a wait, with its cause behind the dot (docs/why.md)."""


class SpanOperation(StrEnum):
    """What a span is of; the types of operations have the same names."""

    CREATE = "create"
    """A push was submitted: a moment, the parent of all that became of it."""

    RECEIVE = "receive"
    """It waited, from its submit until it went to its sink or ended without."""

    SEND = "send"
    """It was with its sink, until the answer; what the sink was sent continues from here."""


def destination_template(level: str) -> str:
    """Return where pushes of a level go, without the name of a task, as these are many."""
    return f"{level}/{{task}}"
