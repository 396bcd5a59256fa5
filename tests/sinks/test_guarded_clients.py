"""Clients for URLs of others: they connect where the guard has looked, and nowhere else."""

import asyncio
import ssl
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from pushlane.core.errors import BadInput
from pushlane.core.push import DELIVERED, EXPIRED, Arrival, Kind, Outcome
from pushlane.dispatcher.failures import Sign, sign_of
from pushlane.dispatcher.sinks.address_posting import GuardedClients, of_host, refusal
from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.transport import choice
from pushlane.dispatcher.transport.answer import Answer as Heard
from pushlane.dispatcher.transport.answer import Fate
from pushlane.dispatcher.transport.choice import guarded_opener
from pushlane.util.errors import RefusedUrl, UnknownHost
from pushlane.util.url_guard import UrlGuard
from tests.emulators.http2_server import Answer, Http2Server
from tests.provider_answers import TRANSPORTS
from tests.web_server import Server

TIMEOUTS = Timeouts(5.0)
ALLOWED = ["127.0.0.1"]


def port_of(server):
    return int(server.url.rpartition(":")[2].partition("/")[0])


class Names:
    """A resolver with one answer for all hosts, which a test changes."""

    def __init__(self, *ips):
        self.ips = list(ips)

    async def __call__(self, host):
        return self.ips


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return TRANSPORTS[request.param]


@asynccontextmanager
async def clients_of(names, transport, allow=ALLOWED, max_age_s=0.0, slots=100, **options):
    clients = GuardedClients(guarded_opener(slots, TIMEOUTS, {}, **transport), **options)
    clients.guard = UrlGuard(allow, resolve=names, max_age_s=max_age_s)
    try:
        yield clients
    finally:
        await clients.close()


@asynccontextmanager
async def serving_clients(transport, **options):
    """A server, clients that may ask it, and what its URLs end in after a name."""
    async with (
        Server(keep=True).running() as server,
        clients_of(Names("127.0.0.1"), transport, **options) as its,
    ):
        yield server, its, f".example:{port_of(server)}/push"


async def post(clients, url):
    """The status of the answer, or why there was none."""
    heard = await clients.send(await clients.guard.check(url), {}, b"x")
    return heard.status if isinstance(heard, Heard) else heard.fate


async def test_what_is_allowed_is_reached_by_its_name_at_the_port_of_the_url(transport):
    async with serving_clients(transport) as (server, clients, base):
        assert [await post(clients, f"http://hooks{base}") for _ in range(3)] == [200] * 3
        assert server.connections == 1
        assert f"host: hooks.example:{port_of(server)}\r\n" in server.heads[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "hooks.example", "[::ffff:7f00:1]"])
async def test_what_is_not_allowed_sees_no_connection(host, transport):
    async with (
        Server().running() as server,
        clients_of(Names("127.0.0.1"), transport, allow=["10.0.0.0/8"]) as clients,
    ):
        with pytest.raises(RefusedUrl):
            await post(clients, f"http://{host}:{port_of(server)}/push")
        assert server.connections == clients.size == 0


async def test_an_answer_that_changes_after_the_check_is_not_followed(transport):
    """The name leads to 127.0.0.1 when it is checked, then to 127.0.0.2, which is not allowed."""
    async with Server().running() as server:
        port = port_of(server)
        caught = Server()
        inside = await asyncio.start_server(caught._serve, "127.0.0.2", port)
        names = Names("127.0.0.1")
        async with inside, clients_of(names, transport) as clients:
            url = f"http://rebound.example:{port}/push"
            checked = await clients.guard.check(url)
            names.ips = ["127.0.0.2"]
            assert (await clients.send(checked, {}, b"x")).status == 200
            with pytest.raises(RefusedUrl):
                await post(clients, url)
        assert (server.connections, caught.connections) == (1, 0)


async def test_an_address_that_is_the_hosts_no_more_is_not_used_again(transport):
    async with Server(keep=True).running() as server:
        port = port_of(server)
        moved = Server(keep=True)
        names = Names("127.0.0.1")
        second = await asyncio.start_server(moved._serve, "127.0.0.2", port)
        async with second, clients_of(names, transport, allow=["127.0.0.0/8"]) as clients:
            url = f"http://moved.example:{port}/push"
            await post(clients, url)
            names.ips = ["127.0.0.2", "127.0.0.1"]
            await post(clients, url)  # still one of them: its connection is kept
            names.ips = ["127.0.0.2"]
            await post(clients, url)
            assert clients.size == 1
        assert (len(server.bodies), server.connections) == (2, 1)
        assert (len(moved.bodies), moved.connections) == (1, 1)


async def test_after_no_connection_the_next_address_is_tried_at_once_by_our_own_client(transport):
    first = Fate.UNCONNECTED if transport else 200
    async with Server().running() as server:
        names = Names("127.0.0.3", "127.0.0.1")
        async with clients_of(names, transport, allow=["127.0.0.0/8"]) as clients:
            url = f"http://two.example:{port_of(server)}/push"
            assert [await post(clients, url) for _ in range(3)] == [first, 200, 200]


async def test_proxies_of_the_environment_are_not_used(transport, monkeypatch):
    async with Server().running() as proxy, Server().running() as server:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with clients_of(Names("127.0.0.1"), transport) as clients:
            assert await post(clients, f"http://hooks.example:{port_of(server)}/push") == 200
            assert await post(clients, server.url) == 200
        assert (proxy.connections, len(server.bodies)) == (0, 2)


async def test_a_redirect_is_not_followed(transport):
    async with Server().running() as inside:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {inside.url}\r\nContent-Length: 0\r\n\r\n"
        async with Server(moved.encode()).running() as server:
            async with clients_of(Names(), transport) as clients:
                assert await post(clients, server.url) == 307
            assert inside.connections == 0


async def test_http2_at_once_where_it_is_known():
    async with Http2Server(lambda request: Answer(after_s=0.002)).running() as server:
        async with clients_of(Names("127.0.0.1"), {"only_http2": True}, slots=200) as clients:
            url = f"http://push.example:{port_of(server)}/x"
            assert await asyncio.gather(*(post(clients, url) for _ in range(200))) == [200] * 200
        assert server.peak_streams <= 100
        assert len(server.connections) <= 2


async def test_http1_opens_no_more_connections_than_requests_are_in_flight(transport):
    async with serving_clients(transport, slots=8) as (server, clients, base):
        for _ in range(25):
            await asyncio.gather(*(post(clients, f"http://hooks{base}") for _ in range(8)))
        assert server.connections <= 8
        assert len(server.bodies) == 200


async def test_the_hosts_asked_longest_ago_are_closed_but_for_busy_ones(transport):
    async with serving_clients(transport, most_hosts=3) as (server, clients, base):
        busy = clients.take(await clients.guard.check(f"http://busy{base}"))
        for number in range(6):
            await post(clients, f"http://h{number}{base}")
        assert clients.size == 3
        heard = await busy.transport.send("/push", {}, b"x")
        assert heard.status == 200
        clients.give_back(busy)
        await post(clients, f"http://h5{base}")
        assert server.connections == 7
        await post(clients, f"http://h0{base}")
        assert server.connections == 8


async def test_hosts_that_were_not_asked_for_long_are_closed(transport):
    at_s = [0.0]
    async with serving_clients(transport, now=lambda: at_s[0]) as (_, clients, base):
        for number in range(5):
            await post(clients, f"http://h{number}{base}")
        assert clients.size == 5
        at_s[0] = 300.0
        await post(clients, f"http://new{base}")
        assert clients.size == 1


async def test_all_are_busy_and_one_more_is_asked(transport):
    async with serving_clients(transport, most_hosts=1) as (_, clients, base):
        urls = (f"http://one{base}", f"http://two{base}")
        taken = [clients.take(await clients.guard.check(url)) for url in urls]
        assert clients.size == 2
        for host in taken:
            clients.give_back(host)
        await post(clients, f"http://three{base}")
        assert clients.size == 1


def test_a_header_that_cannot_be_is_refused_at_once(transport):
    with pytest.raises(BadInput, match=r"header .*cannot be sent") as refused:
        guarded_opener(1, TIMEOUTS, {"X": "a\nsecret"}, **transport)
    assert "secret" not in str(refused.value)


def test_without_the_extra_its_tls_is_refused_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiofastnet", None)
    with pytest.raises(BadInput, match=r"pip install 'pushlane\[aiofastnet\]'"):
        guarded_opener(1, TIMEOUTS, {}, tls="aiofastnet")


def test_what_becomes_of_pushes_that_are_not_sent():
    assert refusal(RefusedUrl("its URL is not https", "shown")) == Outcome.dead(
        "its URL is not https"
    )
    for may_pass, sign in ((True, Sign.ELSEWHERE), (False, Sign.OWN)):
        outcome = refusal(UnknownHost("not found", "shown", may_pass=may_pass))
        assert (outcome.reason, outcome.arrival) == ("not found", Arrival.REFUSED)
        assert sign_of(outcome) is sign


@pytest.mark.parametrize(
    ("outcome", "sign", "kind"),
    [
        (DELIVERED, Sign.SUCCESS, Kind.DELIVERED),
        (Outcome.throttled("busy"), Sign.ELSEWHERE, Kind.RETRY),
        (Outcome.refused("no"), Sign.OWN, Kind.RETRY),
        (Outcome.retry("HTTP 500"), Sign.OWN, Kind.RETRY),
        (Outcome.dead("HTTP 404", scope=None), Sign.OWN, Kind.DEAD),
        (Outcome.dead("late", arrival=Arrival.UNKNOWN, scope=None), Sign.OWN, Kind.DEAD),
        (Outcome.gone("HTTP 410"), Sign.OWN, Kind.DEAD),
    ],
)
def test_what_one_host_answers_says_nothing_of_the_sink(outcome, sign, kind):
    narrowed = of_host(outcome)
    assert (sign_of(narrowed), narrowed.kind, narrowed.refuses_us) == (sign, kind, False)
    assert (narrowed.reason, narrowed.arrival) == (outcome.reason, outcome.arrival)


@pytest.mark.parametrize(
    "outcome", [DELIVERED, EXPIRED, Outcome.dropped("capped"), Outcome.dead("about it alone")]
)
def test_what_is_not_about_a_sink_stays_as_it_is(outcome):
    assert of_host(outcome) is outcome


def certificate(folder, name):
    """A certificate of this name that only who is told of it trusts, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(who, who, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=9))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """What a server shows for hooks.example, trusted by who is told nothing else."""
    trusted, key = certificate(tmp_path, "hooks.example")
    monkeypatch.setenv("SSL_CERT_FILE", trusted)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(trusted, key)
    return shown


async def test_the_certificate_has_to_be_of_the_name_that_was_resolved(tls, transport):
    asked = []
    tls.sni_callback = lambda socket, name, context: asked.append(name)
    served = Server(keep=True)
    server = await asyncio.start_server(served._serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    async with server, clients_of(Names("127.0.0.1"), transport) as clients:
        assert await post(clients, f"https://hooks.example:{port}/") == 200
        assert await post(clients, f"https://other.example:{port}/") is Fate.UNCONNECTED
    assert asked == ["hooks.example", "other.example"]
    assert len(served.bodies) == 1


async def test_after_an_address_that_fails_at_tls_comes_the_next_one(tls, transport):
    async def hangs_up(reader, writer):
        writer.close()

    names = Names("127.0.0.2", "127.0.0.3", "127.0.0.1")
    server = await asyncio.start_server(Server(keep=True)._serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    broken = await asyncio.start_server(hangs_up, ["127.0.0.2", "127.0.0.3"], port)
    async with server, broken, clients_of(names, transport, allow=["127.0.0.0/8"]) as clients:
        heard = [await post(clients, f"https://hooks.example:{port}/") for _ in range(4)]
    assert heard == [Fate.UNCONNECTED, Fate.UNCONNECTED, 200, 200]


async def test_one_context_of_tls_serves_all_hosts(tls, monkeypatch):
    made = []
    make = choice.tls_context
    monkeypatch.setattr(choice, "tls_context", lambda: made.append(make()) or made[-1])
    server = await asyncio.start_server(Server(keep=True)._serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    async with server, clients_of(Names("127.0.0.1"), {}) as clients:
        assert await post(clients, f"https://hooks.example:{port}/") == 200
        assert await post(clients, f"https://other.example:{port}/") is Fate.UNCONNECTED
    assert len(made) == 1
