"""An OpenID Connect issuer on loopback, at which whoever comes is logged in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from pushlane.core.task import now_ms

CLIENT = "console"


class OwnIssuer:
    """One user, who is an operator of all apps."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._key = rsa.generate_private_key(65_537, 2_048)
        self._nonces: dict[str, str] = {}

    def shown(self, path: str) -> Any:
        """What is at a path; None for a login."""
        if path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "/login", "token_endpoint": "/tokens"}
            places |= {"jwks_uri": "/keys"}
            return {"issuer": self.url} | {name: self.url + at for name, at in places.items()}
        if path == "/keys":
            key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
            return {"keys": [{**key, "kid": "one", "alg": "RS256"}]}
        return None

    def led_back(self, query: dict[str, str]) -> str:
        """Where somebody goes who has logged in."""
        code = f"code-{len(self._nonces)}"
        self._nonces[code] = query["nonce"]
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def tokens(self, form: dict[str, str]) -> dict[str, str]:
        claims = {"iss": self.url, "aud": CLIENT, "sub": "dana", "roles": ["ops"]}
        claims |= {"exp": now_ms() // 1000 + 300, "nonce": self._nonces.pop(form["code"])}
        return {"id_token": jwt.encode(claims, self._key, "RS256", headers={"kid": "one"})}


class _Handler(BaseHTTPRequestHandler):
    issuer: OwnIssuer

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        shown = self.issuer.shown(asked.path)
        if shown is not None:
            self._answer(shown)
            return
        self.send_response(302)
        self.send_header("Location", self.issuer.led_back(_first(asked.query)))
        self.end_headers()

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self._answer(self.issuer.tokens(_first(self.rfile.read(length).decode())))

    def _answer(self, shown: Any) -> None:
        body = json.dumps(shown).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *told: Any) -> None:
        """Say nothing."""


def _first(query: str) -> dict[str, str]:
    return {name: one[0] for name, one in parse_qs(query).items()}


@contextmanager
def own_issuer() -> Iterator[OwnIssuer]:
    """An issuer of a test's own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    found = OwnIssuer(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"issuer": found})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
