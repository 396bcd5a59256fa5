"""`serve` offers the list of operations over HTTP, to who has a token."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pushlane.backends.backend import connect
from pushlane.backends.contact import BROKER, REGISTRY, Contact, in_contact
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, LogFormat, option, switch
from pushlane.cli.health import Health, HealthFlags, loop_patience_s
from pushlane.cli.logs import set_up_logs
from pushlane.cli.signals import ended_if_hung, stop_on_signals
from pushlane.core.errors import BadInput
from pushlane.model.access import LEAST_PER_S, MOST_PER_S
from pushlane.settings import Settings
from pushlane.settings.transport import is_loopback
from pushlane.util.conversion import number
from pushlane.util.extras import needs_extra

if TYPE_CHECKING:
    from pushlane.door.server import Place

_PORT = 8400
_NO_LOOPBACK = (
    "--bind {bind} can be reached from other machines, and tokens would cross the network in the "
    "clear: give --tls-cert and --tls-key, or --behind-proxy with the addresses of the proxy that "
    "ends TLS"
)


def serve(
    flags: Flags,
    bind: Annotated[str, option("HOST:PORT", "Where it listens.")] = f"127.0.0.1:{_PORT}",
    tls_cert: Annotated[
        Path | None, option("FILE", "Its certificate with the chain, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, option("FILE", "The key of the certificate.")] = None,
    behind_proxy: Annotated[
        str,
        option(
            "IP,...",
            "Proxies that end TLS and are trusted to name the client: addresses or networks.",
        ),
    ] = "",
    most_requests: Annotated[
        float | None, option("N", "Requests a second of all together; no bound unless given.")
    ] = None,
    mcp: Annotated[
        bool, switch("--mcp", "Offer agents their tools, too, at /mcp (streamable HTTP).")
    ] = False,
    log_format: LogFormat = None,
    *,
    metrics: HealthFlags,
) -> None:
    """Serve the HTTP API and the console to holders of a token (`pushlane access create`).

    It keeps nothing of its own but files uploaded at its console: run as many as you like behind a
    balancer. SIGTERM or Ctrl-C ends it once what is under way is answered. The description is at
    /v1/openapi.json.
    """
    with needs_extra("serve"):
        import pushlane.console.app
        from pushlane.door.server import Place
    if mcp:
        with needs_extra("mcp", "serve --mcp"):
            import pushlane.agents.server  # noqa: F401 - asked for before anything listens
    settings = flags.also(log_format=log_format).settings()
    set_up_logs(settings.log_format)
    host, port = _parts(bind)
    proxies = tuple(_address(one) for one in behind_proxy.split(",") if one.strip())
    if (tls_cert is None) != (tls_key is None):
        raise BadInput("--tls-cert and --tls-key go together; give both, or neither")
    if most_requests is not None:
        number("--most-requests", most_requests, LEAST_PER_S, MOST_PER_S)
    if not (is_loopback(host) or tls_cert or proxies):
        raise BadInput(_NO_LOOPBACK.format(bind=bind))
    place = Place(host, port, tls_cert, tls_key, proxies)
    with metrics.serving() as health, ended_if_hung(health, loop_patience_s(settings)):
        asyncio.run(_serve(settings, place, health, most_requests, mcp=mcp))


async def _serve(
    settings: Settings, place: Place, health: Health, most_per_s: float | None, *, mcp: bool
) -> None:
    from pushlane.console.app import Console
    from pushlane.console.issued import CodeFlow
    from pushlane.console.sessions import sessions
    from pushlane.door.app import Door, build
    from pushlane.door.server import listening

    of_sessions = sessions(settings.session_key_file)

    contact = Contact(BROKER, REGISTRY)
    health.missing = contact.missing
    async with connect(settings) as backend, in_contact(contact, backend):
        door = Door(backend, settings, most_per_s)
        flow = CodeFlow(door.issuer, settings) if door.issuer and settings.oidc_client_id else None
        console = Console(door, of_sessions, flow)
        server = listening(build(door, console.routes(), for_agents=mcp), place)

        def stop() -> None:
            door.stopping.set()
            server.stop()

        stop_on_signals(
            stop,
            stopping="stopping after what is under way is answered",
            left="what was under way was cut off",
        )
        gc.freeze()  # what there is now stays: nobody is to look through it for garbage
        async with health.beating():
            contact.started()
            agents = f"; for agents: {server.url}/mcp" if mcp else ""
            note(
                f"serving at {server.url}; what there is: {server.url}/v1/openapi.json; console: "
                f"{server.url}/console/{agents}"
            )
            await server.run()
            contact.stopping()
            await console.close()
            await door.close()


def _parts(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if not (colon and port.isdecimal() and int(port) <= 65_535):
        raise BadInput(f"--bind {bind[:60]!r} is not HOST:PORT; give one like 127.0.0.1:{_PORT}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _address(given: str) -> str:
    """Return an address, or a network of some, as it is usually written."""
    try:
        read = ipaddress.ip_network if "/" in given else ipaddress.ip_address
        return str(read(given.strip()))
    except ValueError:
        raise BadInput(
            f"--behind-proxy {given.strip()[:60]!r} is neither an IP address nor a network like "
            "10.0.0.0/8; give those of the proxies"
        ) from None
