"""Whom a connection over TLS trusts, what it says of others, and that it waits for nobody."""

import asyncio
import ssl

import certifi
import pytest

from pushlane.core.errors import BadInput
from pushlane.dispatcher.transport.answer import Answer, Fate, Lost
from pushlane.dispatcher.transport.dial import tls_context
from pushlane.dispatcher.transport.loop_client import LoopClient, Seconds
from pushlane.dispatcher.transport.request import read_url
from tests.certificates import Authority
from tests.sinks.transport.peers import WAYS, Peer, saying, way_of, within_deadline

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
ANSWER = Answer(204, {})


def unconnected(why):
    return Lost(Fate.UNCONNECTED, why)


@pytest.fixture(params=[name for name, way in WAYS.items() if way.is_tls])
def way(request):
    return way_of(request.param)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


async def heard_from(way, certificates, context, host="127.0.0.1", **given):
    peer = Peer(saying(OK))
    async with peer.running(context):
        url = f"https://{host}:{peer.port}/push"
        client = way.client(url, certificates, **given)
        try:
            return await client.send("/push", {}, b"{}"), peer
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("hosts", "days", "why"),
    [
        (["other.example.com"], 30, "its certificate is for another host"),
        (["127.0.0.2", "localhost"], 30, "its certificate is for another host"),
        (["127.0.0.1"], -1, "its certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_good(hosts, days, why, way, certificates):
    shown = certificates.serving(certificates.authority.sign("bad", hosts, days=days))
    heard, peer = way.run(within_deadline(heard_from(way, certificates, shown)))
    assert heard == unconnected(why)
    assert peer.heads == []


def test_a_certificate_of_an_authority_that_is_not_trusted(way, certificates, stranger):
    shown = certificates.serving(stranger.sign("bad", ["127.0.0.1"]))
    heard, _ = way.run(within_deadline(heard_from(way, certificates, shown)))
    assert heard == unconnected("its certificate is not trusted")


def test_a_self_signed_certificate(way, certificates, stranger, tmp_path):
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own = tmp_path / "own.pem"
    key = stranger._key.private_bytes(*_pem())
    own.write_bytes(stranger.ca.read_bytes() + key)
    shown.load_cert_chain(own)
    heard, _ = way.run(within_deadline(heard_from(way, certificates, shown)))
    assert heard == unconnected("its certificate is not trusted")


def _pem():
    from cryptography.hazmat.primitives import serialization as form

    return form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()


def test_a_server_that_speaks_no_tls(way, certificates):
    async def run():
        async def serve(reader, writer):
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = way.client(f"https://127.0.0.1:{port}/", certificates)
        heard = await client.send("/", {}, b"")
        await client.close()
        server.close()
        return heard

    assert way.run(within_deadline(run())) == unconnected("it speaks no TLS at that port")


def test_a_server_that_hangs_in_the_handshake(way, certificates):
    async def run():
        async def serve(reader, writer):
            await asyncio.Event().wait()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = way.client(f"https://127.0.0.1:{port}/", certificates, connect_s=0.2)
        heard = await client.send("/", {}, b"")
        await client.close()
        server.close()
        return heard

    assert way.run(within_deadline(run())) == Lost(Fate.UNCONNECTED, in_time=False)


@pytest.fixture
def complaints():
    """What a loop is told that nobody handled."""
    return []


async def heard_at(serve, context, way, certificates, complaints):
    """What is heard of ten requests, and of what the loop complained meanwhile."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: complaints.append(told))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    client = way.client(url, certificates)
    heard = [await client.send("/", {}, b"") for _ in range(10)]
    await client.close()
    server.close()
    return heard


def test_a_server_that_hangs_up_at_once_is_none_that_took_it(way, certificates, complaints):
    async def serve(reader, writer):
        writer.transport.abort()

    heard = way.run(within_deadline(heard_at(serve, None, way, certificates, complaints)))
    assert {one.fate for one in heard} == {Fate.UNCONNECTED}
    if not way.tls:  # aiofastnet tells the loop of each handshake that fails
        assert complaints == []


def test_a_server_that_speaks_before_it_is_asked_ends_its_connection(way, certificates, complaints):
    """In TLS 1.2 that may come with the end of the handshake, before the connection is made."""

    async def serve(reader, writer):
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    shown = certificates.serving(certificates.authority.sign("loud", ["127.0.0.1"]))
    shown.maximum_version = ssl.TLSVersion.TLSv1_2
    heard = way.run(within_deadline(heard_at(serve, shown, way, certificates, complaints)))
    assert complaints == []
    if way.run is asyncio.run and not way.tls:  # its loop reads it before the request is written
        assert heard == [Lost(Fate.UNCONNECTED)] * 10


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_server_below_tls_1_2(way, certificates):
    shown = certificates.serving(certificates.authority.sign("old", ["127.0.0.1"]))
    shown.minimum_version = ssl.TLSVersion.TLSv1
    shown.maximum_version = ssl.TLSVersion.TLSv1_1
    shown.set_ciphers("ALL:@SECLEVEL=0")
    heard, _ = way.run(within_deadline(heard_from(way, certificates, shown)))
    assert heard.fate is Fate.UNCONNECTED


@pytest.mark.parametrize(("host", "sni"), [("127.0.0.1", None), ("localhost", "localhost")])
def test_the_name_of_the_url_is_asked_for_and_no_address_is(host, sni, way, certificates):
    asked = []
    shown = certificates.serving(certificates.authority.sign("sni", ["localhost", "127.0.0.1"]))
    shown.sni_callback = lambda _, name, __: asked.append(name)
    shown.set_alpn_protocols(["h2", "http/1.1"])
    heard, _ = way.run(within_deadline(heard_from(way, certificates, shown, host)))
    assert heard == ANSWER
    assert asked == [sni]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("hooks.example.com", ANSWER),
        ("HOOKS.example.com", ANSWER),
        ("other.example.com", unconnected("its certificate is for another host")),
    ],
)
def test_where_the_guard_gives_the_address_the_name_is_that_of_the_url(
    host, expected, way, certificates
):
    shown = certificates.serving(certificates.authority.sign("hooks", ["hooks.example.com"]))
    addresses = {"addresses": lambda: ("127.0.0.1",)}
    heard, _ = way.run(within_deadline(heard_from(way, certificates, shown, host, **addresses)))
    assert heard == expected


def test_who_is_trusted_is_what_the_environment_says(tmp_path, monkeypatch, certificates, stranger):
    monkeypatch.setenv("SSL_CERT_FILE", str(stranger.ca))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    trusted = tls_context().get_ca_certs()
    assert [dict(*one["subject"])["commonName"] for one in trusted] == ["stranger"]

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(BadInput, match=r"SSL_CERT_FILE .*none.pem cannot be used \(FileNotFound"):
        tls_context()


def test_where_this_system_trusts_nobody_certifis_authorities_are(tmp_path, monkeypatch):
    monkeypatch.setattr(
        ssl,
        "get_default_verify_paths",
        lambda: ssl.DefaultVerifyPaths(None, None, "NOT_SET", "", "NOT_SET", ""),
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    expected = ssl.create_default_context(cafile=certifi.where()).get_ca_certs()
    assert len(tls_context().get_ca_certs()) == len(expected) > 0


def test_without_the_extra_its_tls_is_refused(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "aiofastnet", None)
    origin, _ = read_url("https://example.com/")
    with pytest.raises(BadInput, match=r"pip install 'pushlane\[aiofastnet\]'"):
        LoopClient(origin, Seconds(1.0), 1, {}, tls="aiofastnet")
