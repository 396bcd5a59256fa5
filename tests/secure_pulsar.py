"""A Pulsar of a run's own with TLS, authentication and authorization on."""

from __future__ import annotations

import os
import secrets
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from dev.stack import Ports, default_cache_dir
from dev.stack.local import LocalWay
from dev.stack.services import free_port, settle, wait_until
from pushlane.core.errors import UserError
from pushlane.settings import Settings
from pushlane.util.texts import Secret
from tests.certificates import Authority

ADMINISTRATOR = "administrator"
_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_CLIENT = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_START_S = 300.0


class SecurePulsar:
    """The broker; `token` makes tokens that it knows, `authority` certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self._key = secrets.token_bytes(48)
        key_file = folder / "tokens.key"
        key_file.write_bytes(self._key)
        self._broker_port, self._admin_port = free_port(), free_port()
        own = self.authority.sign("broker", ["localhost", "127.0.0.1"])
        conf = {
            "brokerServicePortTls": self._broker_port,
            "webServicePortTls": self._admin_port,
            "tlsCertificateFilePath": own.cert,
            "tlsKeyFilePath": own.key,
            "tlsTrustCertsFilePath": self.authority.ca,
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "superUserRoles": ADMINISTRATOR,
            "authenticationProviders": f"{_PROVIDERS}Token,{_PROVIDERS}Tls",
            "tokenSecretKey": f"file://{key_file}",
            "authenticationRefreshCheckSeconds": 1,
            "brokerClientAuthenticationPlugin": _CLIENT,
            "brokerClientAuthenticationParameters": f"token:{self.token(ADMINISTRATOR)}",
        }
        lines = {name: str(value) for name, value in conf.items()}
        run_dir = folder / "run"
        run_dir.mkdir()
        self._way = LocalWay(run_dir, default_cache_dir(), broker_settings=lines)

    def token(self, role: str, for_s: float | None = None, key: bytes | None = None) -> str:
        """Make a token of this role, which expires after so many seconds or never."""
        ends = {} if for_s is None else {"exp": time.time() + for_s}
        return jwt.encode({"sub": role, **ends}, key or self._key, "HS256")

    def settings(self, namespace: str = "", **changes: object) -> Settings:
        """Return settings for this broker, with a namespace of its own unless one is given."""
        values: dict[str, object] = {
            "broker": f"pulsar+ssl://localhost:{self._broker_port}",
            "admin_url": f"https://localhost:{self._admin_port}",
            "pulsar_ca_file": self.authority.ca,
            "namespace": namespace or f"t-{uuid.uuid4().hex[:12]}/lanes",
        }
        return Settings(**{**values, **changes})

    def of_role(self, role: str, namespace: str = "", **changes: object) -> Settings:
        """Return settings of somebody with a token of this role."""
        return self.settings(namespace, pulsar_token=Secret(self.token(role)), **changes)

    def start(self) -> None:
        self._way.start_pulsar(settle(Ports(broker=0, admin=0, redis=0)), lambda _: None)
        wait_until(
            self._answers,
            what="pulsar",
            deadline_s=_START_S,
            is_running=lambda: self._way.is_running("pulsar"),
            log_tail=lambda: self._way.log_tail("pulsar"),
        )

    def stop(self) -> None:
        self._way.stop(delete_data=True)

    def _answers(self) -> bool:
        url = f"https://localhost:{self._admin_port}/admin/v2/brokers/health"
        bearer = {"Authorization": f"Bearer {self.token(ADMINISTRATOR)}"}
        context = ssl.create_default_context(cafile=self.authority.ca)
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        direct = urllib.request.build_opener(*handlers)
        try:
            with direct.open(urllib.request.Request(url, headers=bearer), timeout=5) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError):
            return False


@pytest.fixture(scope="module")
def secure_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePulsar]:
    default_cache_dir().mkdir(parents=True, exist_ok=True)
    pulsar = SecurePulsar(tmp_path_factory.mktemp("secure"))
    try:
        pulsar.start()
    except UserError as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    yield pulsar
    pulsar.stop()
