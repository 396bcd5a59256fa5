"""Rules and times for tests of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from pipeline.rules.rule import Rule, make_rule

TASK = {"level": "low", "body": "Hello"}


def ms(text: str, zone: str = "UTC") -> int:
    """An ISO time, of the zone's clock when it names no offset."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def a_rule(name: str = "weekly", since: str = "2026-01-01T00:00", **fields: Any) -> Rule:
    given = {"audience": "users", "task": TASK, "cron": "0 9 * * *", **fields}
    return make_rule(name, given, ms(since))
