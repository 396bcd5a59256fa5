"""The server of a process's health, on real sockets: what it answers, and whom it cuts off."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

from pushlane.cli import health_server
from pushlane.cli.health_server import HealthReply, served
from pushlane.core.errors import BadInput

LOOPBACK = ("127.0.0.1", 0)
DEADLINE_S = 60


def told(path: str, query: Mapping[str, str]) -> HealthReply:
    return HealthReply.of_lines(200 if path == "/livez" else 404, path, *query.values())


def registry() -> CollectorRegistry:
    own = CollectorRegistry()
    Counter("orders", "Orders", ["kind"], registry=own).labels("new").inc(3)
    return own


def got(
    address: tuple[str, int], path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply, reply.read().decode()
    finally:
        connection.close()


def test_a_path_and_its_query_are_answered() -> None:
    with served(told, registry(), LOOPBACK) as address:
        reply, text = got(address, "/livez?name=a%20b")

    assert (reply.status, text) == (200, "/livez\na b\n")


def test_an_unknown_path_is_not_found() -> None:
    with served(told, registry(), LOOPBACK) as address:
        reply, text = got(address, "/nosuch")

    assert (reply.status, text) == (404, "/nosuch\n")


@pytest.mark.parametrize("path", ["/livez", "/metrics"])
def test_a_head_has_no_body(path: str) -> None:
    with served(told, registry(), LOOPBACK) as address:
        reply, text = got(address, path, "HEAD")

    assert (reply.status, text) == (200, "")


def test_metrics_are_plain_unless_open_metrics_are_asked_for() -> None:
    with served(told, registry(), LOOPBACK) as address:
        plain, text = got(address, "/metrics")
        _, other = got(address, "/metrics", Accept="application/openmetrics-text")

    assert plain.headers["Content-Type"].startswith("text/plain")
    assert [one.name for one in plain_metrics(text)] == ["orders", "orders_created"]
    assert [one.name for one in open_metrics(other)] == ["orders"]


def test_a_unix_socket_serves_as_well(tmp_path: Path) -> None:
    path = tmp_path / "0"
    with served(told, registry(), path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        text = client.makefile().read()

    assert text.startswith("HTTP/1.0 200 OK\n")


def test_those_who_say_nothing_hold_nobody_up() -> None:
    with served(told, registry(), LOOPBACK) as address:
        silent = [socket.create_connection(address) for _ in range(40)]
        reply, _ = got(address, "/livez")
        first = silent[0].recv(1)
        for one in silent:
            one.close()

    assert reply.status == 200
    assert first == b""  # the oldest was cut off


def test_who_takes_too_long_is_cut_off() -> None:
    with (
        mock.patch.object(health_server, "_LONGEST_S", 0.0),
        served(told, registry(), LOOPBACK) as address,
        socket.create_connection(address, timeout=DEADLINE_S) as slow,
    ):
        slow.sendall(b"GET /livez")
        assert slow.recv(1) == b""


def test_a_scrape_that_hangs_leaves_the_other_paths_alone() -> None:
    with served(told, registry(), LOOPBACK) as address:
        hanging = [socket.create_connection(address) for _ in range(3)]
        for one in hanging:
            one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")  # nobody reads what comes
        reply, _ = got(address, "/livez")
        for one in hanging:
            one.close()

    assert reply.status == 200


def test_an_answer_that_fails_costs_only_that_request(caplog: pytest.LogCaptureFixture) -> None:
    def failing(path: str, query: Mapping[str, str]) -> HealthReply:
        if path == "/bad":
            raise ValueError("user-1")
        return told(path, query)

    with served(failing, registry(), LOOPBACK) as address:
        with pytest.raises(http.client.HTTPException):
            got(address, "/bad")
        reply, _ = got(address, "/livez")

    assert reply.status == 200
    assert "ValueError" in caplog.text
    assert "user-1" not in caplog.text


def test_a_port_that_is_taken_is_said() -> None:
    with (
        served(told, registry(), LOOPBACK) as (host, port),
        pytest.raises(BadInput, match=rf"on {host}:{port}: Address already in use; give another"),
        served(told, registry(), (host, port)),
    ):
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "not-a-host.invalid", "a" * 70])
def test_a_host_that_is_none_of_ours_is_said(host: str) -> None:
    with (
        pytest.raises(BadInput, match=f"metrics cannot be served on {host}:1024: "),
        served(told, registry(), (host, 1024)),
    ):
        pass
