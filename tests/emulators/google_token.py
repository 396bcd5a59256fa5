"""Google's token server on this machine: signs service accounts in by their RS256 assertions.

It speaks HTTP/1.1, as a client without TLS expects. The rules are those of
https://developers.google.com/identity/protocols/oauth2/service-account#jwt-auth.
"""

import asyncio
import itertools
import json
import time
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import cache
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

AUDIENCE = "https://oauth2.googleapis.com/token"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
EMAIL = "sender@{project}.iam.gserviceaccount.com"
_TOLERANCE_S = 300
_LONGEST_S = 3600


@cache
def rsa_key(number=0):
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class GoogleTokenServer:
    """Gives out access tokens, of which it knows the good ones.

    `answers` are given first, as (status, JSON). Its clock is `ahead_s` ahead of ours.
    """

    def __init__(self, project="demo-project", lifetime_s=3600):
        self.project = project
        self.email = EMAIL.format(project=project)
        self.lifetime_s = lifetime_s
        self.accounts = {self.email: rsa_key().public_key()}
        self.answers = []
        self.ahead_s = 0.0
        self.good = set()
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._numbers = itertools.count(1)

    def service_account(self, key=None, **changes):
        """Return the content of the file of a service account of this project."""
        return {
            "type": "service_account",
            "project_id": self.project,
            "private_key_id": "1",
            "private_key": pem(key or rsa_key()),
            "client_email": self.email,
            "token_uri": f"{self.url}/token",
            **changes,
        }

    @asynccontextmanager
    async def running(self, port=0):
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    def now_s(self):
        return time.time() + self.ahead_s

    async def _serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            body = await reader.readexactly(length)
            self.asked += 1
            await self.gate.wait()
            status, content = self.answers.pop(0) if self.answers else self._answer(body)
            data = json.dumps(content).encode()
            lines = [f"HTTP/1.1 {status} X", f"Date: {formatdate(self.now_s(), usegmt=True)}"]
            lines += ["Connection: close", f"Content-Length: {len(data)}", "", ""]
            writer.write("\r\n".join(lines).encode() + data)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _answer(self, body):
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if form.get("grant_type") != GRANT:
            return 400, {"error": "unsupported_grant_type"}
        if refusal := self._refusal(form.get("assertion", "")):
            return 400, {"error": "invalid_grant", "error_description": refusal}
        token = f"ya29.emulated-{next(self._numbers)}"
        self.good.add(token)
        return 200, {
            "access_token": token,
            "expires_in": self.lifetime_s,
            "token_type": "Bearer",
        }

    def _refusal(self, assertion):
        """Why an assertion is not good, in Google's words; empty if it is."""
        try:
            claims = jwt.decode(assertion, options={"verify_signature": False})
        except jwt.InvalidTokenError:
            return "Invalid JWT"
        if claims.get("iss") not in self.accounts:
            return "Invalid grant: account not found"
        try:
            # PyJWT has no clock of its own to be told of: times are looked at below.
            jwt.decode(
                assertion,
                self.accounts[claims["iss"]],
                algorithms=["RS256"],
                audience=AUDIENCE,
                options={"verify_exp": False, "verify_iat": False},
            )
        except jwt.InvalidSignatureError:
            return "Invalid JWT Signature."
        except jwt.InvalidTokenError:
            return "Invalid JWT: Failed audience check."
        return self._claims_refusal(claims)

    def _claims_refusal(self, claims):
        iat, exp, now = claims.get("iat", 0), claims.get("exp", 0), self.now_s()
        if not (iat - _TOLERANCE_S <= now < exp + _TOLERANCE_S and exp - iat <= _LONGEST_S):
            return (
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
                "timeframe. Check your iat and exp values in the JWT claim."
            )
        if claims.get("scope") != SCOPE:
            return "Invalid OAuth scope or ID token audience provided."
        return ""
