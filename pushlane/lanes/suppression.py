"""Suppression: recipients that must not be sent to, by an app, at a sink or at all."""

from __future__ import annotations

from typing import NamedTuple

from pushlane.core.errors import BadInput

_LONGEST = 200


class SuppressionScope(NamedTuple):
    """Where a value is suppressed: in all apps, as a recipient of one, or as a sink's address."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else self.kind

    @staticmethod
    def parse(text: str) -> SuppressionScope:
        """Return the scope in a text that `str` gave."""
        kind, _, name = text.partition("/")
        return SuppressionScope(kind, name)


EVERYWHERE = SuppressionScope("all")


def scope_of(app: str = "", sink: str = "") -> SuppressionScope:
    """Return the scope of an app or a sink; everywhere without a name.

    Raises:
        BadInput: both are given, or a name cannot be used.
    """
    if app and sink:
        raise BadInput("--app and --sink exclude each other; give one of them, or none for all")
    name = app or sink
    if len(name) > _LONGEST or not name.isprintable():
        raise BadInput(
            f"{name[:40]!r} is no name of an app or a sink; take at most {_LONGEST} printable "
            "characters"
        )
    if not name:
        return EVERYWHERE
    return SuppressionScope("app" if app else "sink", name)
