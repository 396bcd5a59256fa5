"""Finds settings of secure transport that contradict each other, or files that cannot be used.

They are looked at once, when settings are loaded; no service is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pushlane.core.errors import BadInput
from pushlane.util.files import WatchedFile

if TYPE_CHECKING:
    from pushlane.settings import Settings
    from pushlane.util.tls import TlsFiles

Problem = tuple[str, str]
"""The setting that cannot stay, and the reason."""

_PARTS = ("ca_file", "cert_file", "key_file")
SENTINEL, CLUSTER = "sentinel", "cluster"
_SENTINELS = ("redis+sentinel", "rediss+sentinel")
_SECRET_FILES = (
    *("pulsar_token_file", "pulsar_oauth2_key_file", "redis_password_file"),
    "token_file",
)
_INSTEAD = "set one of the two"


def transport_problems(settings: Settings) -> Iterator[Problem]:
    """Yield what keeps these settings from being used."""
    yield from _of_pulsar_logins(settings)
    yield from _of_oauth2(settings)
    yield from _of_redis_logins(settings)
    for service in ("pulsar", "redis"):
        yield from _of_certificates(settings, service)
    if not settings.capabilities.is_local:
        yield from _of_encryption(settings)
    yield from _of_secret_files(settings)
    yield from _of_server(settings)
    yield from _of_issuer(settings)


def _of_pulsar_logins(settings: Settings) -> Iterator[Problem]:
    if settings.pulsar_token and settings.pulsar_token_file:
        yield "pulsar_token_file", f"a token is in pulsar_token already: {_INSTEAD}"
    if settings.pulsar_oauth2_issuer_url:
        for name in ("pulsar_token", "pulsar_token_file"):
            if getattr(settings, name):
                yield name, f"tokens come from pulsar_oauth2_issuer_url already: {_INSTEAD}"


def _of_oauth2(settings: Settings) -> Iterator[Problem]:
    issuer = settings.pulsar_oauth2_issuer_url
    if issuer and urlsplit(issuer).scheme not in ("http", "https"):
        yield "pulsar_oauth2_issuer_url", "give a URL like https://accounts.example.com"
    if issuer and not settings.pulsar_oauth2_key_file:
        yield (
            "pulsar_oauth2_issuer_url",
            "it needs pulsar_oauth2_key_file, a JSON file with client_id and client_secret",
        )
    if not issuer:
        for part in ("key_file", "audience", "scope"):
            if getattr(settings, f"pulsar_oauth2_{part}"):
                yield f"pulsar_oauth2_{part}", "it does nothing without pulsar_oauth2_issuer_url"


def _of_redis_logins(settings: Settings) -> Iterator[Problem]:
    url = urlsplit(settings.redis_url)
    given = [name for name in ("redis_password", "redis_password_file") if getattr(settings, name)]
    if len(given) == 2:
        yield given[1], f"a password is in redis_password already: {_INSTEAD}"
    in_url = url.scheme not in _SENTINELS  # there it is that of the sentinels
    if in_url and "@" in url.netloc:
        for name in ("redis_user", *given):
            if getattr(settings, name):
                yield name, f"redis_url names a user or a password: {_INSTEAD}"
    if settings.redis_user and not given:
        yield "redis_user", "it needs redis_password or redis_password_file"


def _of_certificates(settings: Settings, service: str) -> Iterator[Problem]:
    """Find halves of pairs, and files that hold no certificate or no key of it."""
    if not any(getattr(settings, f"{service}_{part}") for part in _PARTS):
        return
    files = tls_files(settings, service)
    halves = {f"{service}_cert_file": files.cert_file, f"{service}_key_file": files.key_file}
    given = [name for name, path in halves.items() if path]
    if len(given) == 1:
        [other] = set(halves) - set(given)
        yield given[0], f"it needs {other}: set both, or none"
    checks: dict[str, tuple[Path | None, Callable[[], object]]] = {
        f"{service}_ca_file": (files.ca_file, files.check_ca),
        f"{service}_cert_file": (files.cert_file, files.check_pair),
    }
    for name, (path, check) in checks.items():
        if path is not None and (text := _refusal(check)):
            yield name, text


def _of_encryption(settings: Settings) -> Iterator[Problem]:
    """Find certificates that are given for a connection without TLS."""
    pulsar_is_open = not settings.broker.startswith("pulsar+ssl://")
    admin_is_open = not settings.admin_url.startswith("https://")
    redis_is_open = not urlsplit(settings.redis_url).scheme.startswith("rediss")
    for part in ("ca_file", "cert_file"):
        if getattr(settings, f"pulsar_{part}") and pulsar_is_open and admin_is_open:
            yield (
                f"pulsar_{part}",
                "neither broker nor admin_url uses TLS: give them as pulsar+ssl:// and https://",
            )
        if getattr(settings, f"redis_{part}") and redis_is_open:
            yield (
                f"redis_{part}",
                "redis_url uses no TLS: give it as rediss://, or rediss+sentinel://",
            )


def _of_secret_files(settings: Settings) -> Iterator[Problem]:
    for name in _SECRET_FILES:
        path: Path | None = getattr(settings, name)
        if path is not None and (text := _refusal(WatchedFile(name, path).text)):
            yield name, text


def _of_server(settings: Settings) -> Iterator[Problem]:
    if not settings.url:
        for name in ("token_file", "url_ca_file"):
            if getattr(settings, name):
                yield name, "it does nothing without url, the server that it is for"
        return
    try:
        url = urlsplit(settings.url)
        is_whole = bool(url.hostname) and url.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or url.scheme not in ("http", "https") or url.query or url.fragment:
        yield "url", "give the server's URL, like https://push.example.com"
    elif "@" in url.netloc:
        yield "url", "it has a user or a password: give the token in token_file"
    elif url.scheme == "http" and not is_loopback(url.hostname or ""):
        yield "url", "the token would cross the network in the clear: give an https:// URL"


def _of_issuer(settings: Settings) -> Iterator[Problem]:
    """Find an issuer whose tokens would be taken for anything, or for nothing."""
    if not settings.oidc_issuer:
        for name in (
            "oidc_audience",
            "oidc_roles",
            "oidc_requests_per_s",
            "oidc_requests_claim",
            "oidc_client_id",
        ):
            if getattr(settings, name):
                yield name, "it does nothing without oidc_issuer"
        return
    url = urlsplit(settings.oidc_issuer)
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname or "")):
        yield "oidc_issuer", "give its https:// URL"
    if settings.console_url and not settings.console_url.startswith(("https://", "http://")):
        yield (
            "console_url",
            "give its URL as browsers see it, like https://ops.example.com/console/",
        )
    if settings.oidc_client_id and "openid" not in settings.oidc_scope.split():
        yield "oidc_scope", "it needs openid: without it the issuer does not name the user"
    for name in ("oidc_audience", "oidc_roles"):
        if not getattr(settings, name):
            yield "oidc_issuer", f"it needs {name}: without it no token can be accepted"


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine alone."""
    import ipaddress  # most settings name no server

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tls_files(settings: Settings, service: str) -> TlsFiles:
    """Return the files of certificates that the settings name for `pulsar` or `redis`."""
    from pushlane.util.tls import TlsFiles  # ssl takes its time: most commands need none

    return TlsFiles(service, *(getattr(settings, f"{service}_{part}") for part in _PARTS))


def _refusal(check: Callable[[], object]) -> str:
    try:
        check()
    except BadInput as error:
        return str(error)
    return ""
