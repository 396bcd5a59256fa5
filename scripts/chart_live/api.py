"""Speaks with the API server: JSON over TLS, with a client's certificate. It needs no kubectl."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from pushlane.core.errors import Unreachable, UserError
from scripts.chart_live.certificates import Pair

Object = dict[str, Any]

_PATIENCE_S = 30.0
_POLL_S = 0.2
_JSON = "application/json"
_YAML = "application/yaml"


@dataclass(frozen=True)
class Answer:
    """An answer of the API server; `warnings` are those that kubectl would print."""

    status: int
    body: Object
    warnings: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return self.status < 300

    def checked(self, asked: str) -> Object:
        """The body.

        Raises:
            UserError: the server refused what was asked.
        """
        if not self.accepted:
            raise UserError(f"{asked}: {self.status}: {self.body.get('message', self.body)}")
        return self.body


@dataclass(frozen=True)
class Resource:
    """A kind that the server knows, and where its objects are: `plural` under `base`."""

    base: str
    plural: str
    kind: str
    namespaced: bool
    listed: bool

    def path(self, namespace: str, name: str = "") -> str:
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.base}{inside}/{self.plural}" + (f"/{name}" if name else "")


class Api:
    """The API server on one port of this host, as the holder of the client's certificate."""

    def __init__(self, port: int, authority: Path, client: Pair) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(client.certificate, client.key)

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Answer:
        """One request; a `str` is sent as YAML, anything else as JSON.

        Raises:
            Unreachable: nobody answers.
        """
        connection = HTTPSConnection(
            "127.0.0.1", self._port, timeout=_PATIENCE_S, context=self._context
        )
        kind = _YAML if isinstance(body, str) else _JSON
        sent = body if isinstance(body, str) else json.dumps(body)
        try:
            connection.request(
                method,
                f"{path}?{urlencode(query)}" if query else path,
                body=None if body is None else sent.encode(),
                headers={"Accept": _JSON, "Content-Type": kind},
            )
            answer = connection.getresponse()
            text = answer.read().decode()
            warnings = tuple(answer.msg.get_all("Warning", []))
        except (OSError, HTTPException) as error:
            raise Unreachable(f"the API server on port {self._port}: {error}") from error
        finally:
            connection.close()
        return Answer(answer.status, _parsed(text), warnings)

    def get(self, path: str, **query: str) -> Object:
        return self.ask("GET", path, **query).checked(f"GET {path}")

    def post(self, path: str, body: object, **query: str) -> Object:
        return self.ask("POST", path, body, **query).checked(f"POST {path}")

    def items(self, path: str, **query: str) -> list[Object]:
        return cast(list[Object], self.get(path, **query)["items"] or [])

    def resource(self, api_version: str, kind: str) -> Resource:
        """Where objects of this kind are.

        Raises:
            UserError: the server has no such kind.
        """
        base = _base(api_version)
        for found in self._of(base):
            if found.kind == kind:
                return found
        raise UserError(f"the API server knows no {kind} of {api_version}")

    def find(self, manifest: Mapping[str, Any], namespace: str) -> Object | None:
        """The object that a manifest describes, None where there is none."""
        resource = self.resource(manifest["apiVersion"], manifest["kind"])
        path = resource.path(namespace, manifest["metadata"]["name"])
        answer = self.ask("GET", path)
        return None if answer.status == 404 else answer.checked(f"GET {path}")

    @cached_property
    def listed(self) -> list[Resource]:
        """Every kind whose objects can be listed, in its preferred version."""
        groups = (group["preferredVersion"] for group in self.get("/apis")["groups"])
        bases = ("/api/v1", *(f"/apis/{version['groupVersion']}" for version in groups))
        return [found for base in bases for found in self._of(base) if found.listed]

    def _of(self, base: str) -> Iterator[Resource]:
        for known in self.get(base)["resources"]:
            if "/" not in known["name"]:
                yield Resource(
                    base,
                    known["name"],
                    known["kind"],
                    known["namespaced"],
                    "list" in known["verbs"],
                )


def holds_within(bound_s: float, holds: Callable[[], bool]) -> bool:
    """Ask again until it holds or the time is up; what it said last."""
    until = time.monotonic() + bound_s
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return held


def _base(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _parsed(text: str) -> Object:
    try:
        return cast(Object, json.loads(text))
    except ValueError:
        return {"message": text}
