"""Which URLs the environment has a proxy for: as we read it, and as pyreqwest does."""

import asyncio
import os

import pytest
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from pushlane.core.errors import BadInput
from pushlane.dispatcher.transport.proxies import proxy_applies

P = "PROXY"  # stands for the URL of one that is there

ROWS = [
    ({}, "http://a.test/", False),
    ({"HTTP_PROXY": P}, "http://a.test/", True),
    ({"http_proxy": P}, "http://a.test/", True),
    ({"HTTP_PROXY": P}, "https://a.test/", False),
    ({"HTTPS_PROXY": P}, "https://a.test/", True),
    ({"https_proxy": P}, "https://a.test/", True),
    ({"https_proxy": P}, "http://a.test/", False),
    ({"ALL_PROXY": P}, "http://a.test/", True),
    ({"all_proxy": P}, "https://a.test/", True),
    ({"HTTP_PROXY": "", "http_proxy": P}, "http://a.test/", False),
    ({"HTTP_PROXY": "", "ALL_PROXY": P}, "http://a.test/", True),
    ({"HTTP_PROXY": "ftp://b.test", "ALL_PROXY": P}, "http://a.test/", True),
    ({"HTTP_PROXY": "ftp://b.test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "a.test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "no_proxy": "a.test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "no_proxy": "a.test", "NO_PROXY": ""}, "http://a.test/", True),
    ({"HTTP_PROXY": P, "NO_PROXY": "A.Test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": ".a.test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "b.test , a.test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "test"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "a.test"}, "http://b.a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": ".a.test"}, "http://b.a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "a.test"}, "http://ba.test/", True),
    ({"HTTP_PROXY": P, "NO_PROXY": "*.a.test"}, "http://b.a.test/", True),
    ({"HTTP_PROXY": P, "NO_PROXY": "a.test:80"}, "http://a.test/", True),
    ({"HTTP_PROXY": P, "NO_PROXY": "*"}, "http://a.test/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "*"}, "http://127.0.0.1:9/", True),
    ({"HTTP_PROXY": P, "NO_PROXY": "127.0.0.1"}, "http://127.0.0.1:9/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "127.0.0.0/8"}, "http://127.0.0.1:9/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "127.9.9.9/8"}, "http://127.0.0.1:9/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "127.0.0.2"}, "http://127.0.0.1:9/", True),
    ({"HTTP_PROXY": P, "NO_PROXY": "::1"}, "http://[::1]:9/", False),
    ({"HTTP_PROXY": P, "NO_PROXY": "localhost"}, "http://127.0.0.1:9/", True),
]


@pytest.fixture
def environment(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(("given", "url", "applies"), ROWS)
async def test_a_proxy_applies_where_pyreqwest_uses_one(given, url, applies, environment):
    asked = []

    async def serve(reader, writer):
        asked.append((await reader.readline()).split(b" ")[1])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name, value in given.items():
        environment.setenv(name, place if value == P else value)

    client = ClientBuilder().build()
    with pytest.raises(PyreqwestError):
        await client.get(url).build().send()
    await client.close()
    server.close()

    assert bool(asked) is applies
    assert proxy_applies(url) is applies


def test_a_proxy_without_a_scheme_is_one_of_http():
    assert proxy_applies("http://a.test/", {"http_proxy": "proxy.test:3128"})
    assert not proxy_applies("http://a.test/", {"http_proxy": "/proxy"})


@pytest.mark.parametrize("url", ["http://[bad", "http://a b.test/", "http://a.test:99999/"])
def test_a_url_that_cannot_be_read_has_none(url):
    with pytest.raises(BadInput, match="a URL cannot be read"):
        proxy_applies(url)
