"""Reads URLs as the guard does, and writes requests of HTTP/1.1 of checked bytes only.

What is the same in each request is put together once for each set of names of headers. No name,
value or path can end a line, and none says where a body ends but the writer itself.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

import msgspec
from pyreqwest.http import Url

from pushlane.core.errors import BadInput

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token (RFC 9110, 5.6.2)
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PATH = re.compile(r"/[!\"$-~]*")
_OURS = {"content-length", "transfer-encoding", "connection", "upgrade", "expect", "te", "trailer"}
MOST_FORMS = 64


class Origin(msgspec.Struct, frozen=True):
    """Whom a URL asks. `host` has no brackets; `authority` is what the header Host says.

    `authorization` is made of the user and the password of the URL, if it has them.
    """

    scheme: str
    host: str
    port: int
    authority: str
    is_name: bool
    authorization: str = ""

    def __repr__(self) -> str:
        return f"Origin({self.scheme}, port {self.port})"


def read_url(url: str) -> tuple[Origin, str]:
    """Return whom a URL asks and the rest of it, without its fragment.

    Raises BadInput when it is none of http or https; never tells the URL.
    """
    try:
        read = Url(url)
    except ValueError:  # the error may hold the URL
        raise BadInput("a URL cannot be read; give one like https://example.com/push") from None
    host = read.host_str
    if read.scheme not in ("http", "https") or not host:
        raise BadInput(f"a URL of the scheme {read.scheme} is not supported; give http or https")
    authority = host if read.port is None else f"{host}:{read.port}"
    path = read.path if read.query_string is None else f"{read.path}?{read.query_string}"
    origin = Origin(
        read.scheme,
        host.strip("[]"),
        read.port_or_known_default or 0,
        authority,
        read.domain is not None,
        _basic(read.username, read.password or ""),
    )
    return origin, path


def _basic(user: str, password: str) -> str:
    if not user and not password:
        return ""
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return f"Basic {b64encode(pair).decode()}"


class RequestWriter:
    """Writes POST requests to one origin, each with the same `headers` and some of its own.

    One of its own goes in place of one of the same name. Raises BadInput when a header cannot be
    sent, or is one that the client itself sets; names it, never its value.
    """

    def __init__(self, origin: Origin, headers: Mapping[str, str]) -> None:
        require_names(headers)
        require_values(headers)
        hosts = [name for name in headers if name.lower() == "host"]
        if len(hosts) > 1:
            raise BadInput("headers name Host twice; leave one of them out")
        ours = {"Host": origin.authority, "User-Agent": "pushlane", "Accept": "*/*"}
        if origin.authorization:
            ours["Authorization"] = origin.authorization
        given = {name.lower() for name in headers}
        self._headers = {name: ours[name] for name in ours if name.lower() not in given}
        self._headers.update(headers)
        self._forms: dict[tuple[str, ...], str] = {}
        self._path = "/"

    def write(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the bytes of a request. Raises BadInput when it cannot be sent as it is."""
        names = tuple(headers)
        form = self._forms.get(names) or self._new_form(names)
        self._check(path, headers)
        return (form % (path, *headers.values(), len(body))).encode("ascii") + body

    def _new_form(self, names: tuple[str, ...]) -> str:
        """Return the head of requests with these headers, which has places for what differs."""
        lines = ["POST %s HTTP/1.1"]
        lines += [f"{name}: {value}".replace("%", "%%") for name, value in self._common(names)]
        lines += [f"{name}: ".replace("%", "%%") + "%s" for name in names]
        form = "\r\n".join([*lines, "Content-Length: %d", "", ""])
        if len(self._forms) >= MOST_FORMS:
            self._forms.clear()
        self._forms[names] = form
        return form

    def _common(self, names: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return the headers of each request that these of its own do not replace."""
        require_names(names)
        own = {name.lower() for name in names}
        if len(own) < len(names) or "host" in own:
            raise BadInput("the headers of a request have a name twice, or Host; leave it out")
        return [(name, self._headers[name]) for name in self._headers if name.lower() not in own]

    def _check(self, path: str, headers: Mapping[str, str]) -> None:
        text = "".join(headers.values())
        if not (text.isascii() and text.isprintable()):
            require_values(headers)
        if path != self._path:
            require_path(path)
            self._path = path


def require_names(names: Iterable[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"the header {name!a} cannot be sent: a name has letters, digits and dashes"
            )
        if name.lower() in _OURS:
            raise BadInput(f"the header {name} is the client's own; leave it out")


def require_values(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _VALUE.fullmatch(value):
            raise BadInput(
                f"the header {name} cannot be sent: its value has a line break, another control "
                "character or one that is not ASCII"
            )


def require_path(path: str) -> None:
    if not _PATH.fullmatch(path):
        raise BadInput(
            "a path cannot be sent: it has to begin with / and to have nothing but ASCII without "
            "spaces, control characters and #; give these percent-encoded"
        )
