"""The console's own files: each by a name with its hash, kept by a browser for as long as it likes.

Two versions of pushlane may be behind one balancer: a name with another hash gets the file of this
version, which a browser then does not keep.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

_FOLDER = Path(__file__).parent / "static"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HASH_DIGITS = 16
_IMMUTABLE = "public, max-age=31536000, immutable"
_UNKEPT = "no-cache"


class _Asset(NamedTuple):
    kind: str
    hash: str
    body: bytes
    packed: bytes


class Assets:
    """All files, read once."""

    def __init__(self) -> None:
        self._by_name = {
            path.name: _read(path) for path in sorted(_FOLDER.rglob("*")) if path.suffix in _KINDS
        }

    def url(self, name: str) -> str:
        """Return the address of a file, seen from the root of the console."""
        return f"static/{self._by_name[name].hash}/{name}"

    def packed_bytes(self, name: str) -> int:
        """Return how many bytes of a file cross the network."""
        return len(self._by_name[name].packed)

    async def answer(self, request: Request) -> Response:
        """Send a file."""
        found = self._by_name.get(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        is_present = request.path_params["hash"] == found.hash
        tag = f'"{found.hash}"'
        headers = {
            "Cache-Control": _IMMUTABLE if is_present else _UNKEPT,
            "ETag": tag,
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(found.packed, headers=headers, media_type=found.kind)
        return Response(found.body, headers=headers, media_type=found.kind)


def _read(path: Path) -> _Asset:
    body = path.read_bytes()
    digest = sha256(body).hexdigest()[:_HASH_DIGITS]
    return _Asset(_KINDS[path.suffix], digest, body, gzip.compress(body, mtime=0))
