"""`stats-dump` collects what is known of a deployment into one file, without secrets.

The file is whole or not there at all, and only its owner can read it.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import platform
import sys
import tarfile
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from pushlane.backends.operations import Bounds
from pushlane.cli.config import shown_settings
from pushlane.cli.doctor import as_document
from pushlane.cli.errors import note
from pushlane.cli.examine import examine
from pushlane.cli.flags import Flags, with_flags
from pushlane.core.errors import BadInput
from pushlane.lanes.durable import create_durably
from pushlane.settings import Settings
from pushlane.version import VERSION

_TAR, _JSON = ".tar.gz", ".json.gz"
_OWNER_ONLY = 0o600
_MOST_TOPICS = 200


def register(app: typer.Typer) -> None:
    app.command("stats-dump")(with_flags(stats_dump))


def stats_dump(
    flags: Flags,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new .tar.gz or .json.gz.")],
    topics: Annotated[
        int, typer.Option("--topics", min=1, max=1_000, help="Topics at most, largest first.")
    ] = _MOST_TOPICS,
    bookie_url: Annotated[
        str, typer.Option("--bookie-url", metavar="URL", help="Web server of a bookie.")
    ] = "",
) -> None:
    """Collect stats, policies, settings and findings into one file, without secrets.

    Secrets, tokens, recipients and payloads are not in it; ids of tasks and names of hosts are.
    """
    _require_new(file)
    settings = flags.settings()
    documents = {"settings": shown_settings(flags), "versions": _versions()}
    note(f"looking at {settings.location}, at most {topics} topics")
    documents |= asyncio.run(_collected(settings, Bounds(topics, bookie=bookie_url)))
    content = _packed(file.name, documents)
    try:
        create_durably(file, content, _OWNER_ONLY)
    except FileExistsError as error:
        raise _is_there(file) from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    note(f"{file}: {len(content):,} bytes, {', '.join(documents)}")


async def _collected(settings: Settings, bounds: Bounds) -> dict[str, Any]:
    found, inspection = await examine(settings, bounds)
    return {
        "doctor": as_document(found),
        "processes": msgspec.to_builtins(inspection.live.processes.get_or([])),
        **inspection.said,
    }


def _require_new(file: Path) -> None:
    if not file.name.endswith((_TAR, _JSON)):
        raise BadInput(f"{file} ends in neither {_TAR} nor {_JSON}; name it like dump{_TAR}")
    if file.exists() or file.is_symlink():
        raise _is_there(file)
    if not file.parent.is_dir():
        raise BadInput(f"there is no folder {file.parent}")


def _is_there(file: Path) -> BadInput:
    return BadInput(f"{file} is there already and is left as it is; give another name")


def _packed(name: str, documents: dict[str, Any]) -> bytes:
    if name.endswith(_JSON):
        return gzip.compress(_encoded(documents))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for title, document in documents.items():
            body = _encoded(document)
            entry = tarfile.TarInfo(f"pushlane-stats/{title}.json")
            entry.size, entry.mode, entry.mtime = len(body), _OWNER_ONLY, int(time.time())
            tar.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def _encoded(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)


def _versions() -> dict[str, Any]:
    installed = {one.metadata["Name"]: one.version for one in distributions()}
    return {
        "pushlane": VERSION,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "packages": dict(sorted(installed.items())),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
