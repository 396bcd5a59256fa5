"""What tests of traces share: an exporter that keeps spans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pushlane.dispatcher.tracing import traces

URL = "http://127.0.0.1:9/v1/traces"


class Kept:
    """An exporter that keeps spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def export(self, spans: Any) -> SimpleNamespace:
        self.spans += spans
        return SimpleNamespace(name="SUCCESS")

    def shutdown(self) -> None:
        """Nothing is under way."""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    exporter = Kept()
    monkeypatch.setattr(traces, "_otlp_exporter", lambda _: exporter)
    return exporter
