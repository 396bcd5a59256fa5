"""Settings for a benchmark's own, empty backend: embedded in a temporary folder, or a real Pulsar.

Pulsar and Redis are those that the environment names, left as they were; without them a local pair
is started on free ports and stopped again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cleanup import remove_namespaces
from bench.figures import say
from dev import stack
from pushlane.settings import Settings, load


@contextmanager
def backend_settings(broker: str, **given: Any) -> Iterator[Settings]:
    """Settings for `broker` (`embedded` or `pulsar`) with what is `given` on top."""
    with tempfile.TemporaryDirectory(prefix="pushlane-bench-") as folder:
        if broker == "embedded":
            yield load({"broker": "embedded", "data_dir": Path(folder), **given})
            return
        namespace = f"pushlane/bench-{secrets.token_hex(4)}"
        if os.environ.get("PUSHLANE_BROKER"):
            settings = load({"namespace": namespace, **given})
            try:
                yield settings
            finally:
                asyncio.run(remove_namespaces(settings))
            return
        with _own_stack(Path(folder)) as urls:
            yield load({**urls, "namespace": namespace, **given})


@contextmanager
def _own_stack(folder: Path) -> Iterator[dict[str, str]]:
    with stack.temporary(folder, say) as urls:
        yield {"broker": urls.broker, "admin_url": urls.admin, "redis_url": urls.redis}


def anew(settings: Settings) -> Settings:
    """The same backend with a store or namespace that nothing has used before."""
    name = secrets.token_hex(4)
    return settings.but(
        **{
            "data_dir": settings.data_dir / name,
            "namespace": f"{settings.namespace}-{name}",
        }
    )


def environment(settings: Settings) -> dict[str, str]:
    """What a child process needs to use the same backend."""
    return {**os.environ, **settings.as_environment()}
