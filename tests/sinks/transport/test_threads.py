"""Which sinks bring a client with threads of its own into a process."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("where", ['"url": "http://127.0.0.1:9/"', '"to_address": True'])
@pytest.mark.parametrize(
    ("options", "has_threads"),
    [("", False), (', "client": "pyreqwest"', True), (', "only_http2": True', True)],
)
def test_a_webhook_has_a_client_with_threads_only_where_it_is_pyreqwest(
    options: str, has_threads: bool, where: str
) -> None:
    script = f"""
from pushlane.dispatcher.sinks import opened, sink_options
from pushlane.dispatcher.transport.threads import has_threads
given = {{{where}{options}}}
opened(sink_options("webhook", given, "the sink"), 5, 1.0, False)
print(has_threads())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(has_threads)
