"""Reads the JSON file of a task's payload; what it may hold is checked in `producers.payloads`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pushlane.core.errors import BadInput


def read_payload_file(path: Path) -> dict[str, Any]:
    """Return the payload in a JSON file.

    Raises:
        BadInput: it cannot be read, or is no JSON object; says where.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"payload {path} is no JSON: {place}: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BadInput(f"payload {path} cannot be read: {reason}") from error
    except RecursionError as error:
        raise BadInput(f"payload {path} is nested too deeply") from error
    if not isinstance(found, dict):
        raise BadInput(f"payload {path} is no JSON object; give one with a block for each sink")
    return found


def _no_number(word: str) -> None:
    raise BadInput(f"a payload holds {word}, which JSON has not; leave it out")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these members, each of which must be there once."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise BadInput(
                f"a payload has {name[:40]!r} twice in one object; leave one of them out"
            )
        members[name] = value
    return members
