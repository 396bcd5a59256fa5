"""What the command line says of a topic, and what of it may not be said there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.core.errors import BadInput
from pushlane.ingest.kafka import KafkaSource
from pushlane.ingest.kafka_topic import Place, client_settings, consumer_settings, place_of

PLACE = Place("127.0.0.1:9092", "orders")


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("kafka://broker/orders", "broker:9092"),
        ("kafka://a:1,b:2/orders", "a:1,b:2"),
        ("kafka://a,b:9093/orders", "a:9092,b:9093"),
    ],
)
def test_a_url_names_brokers_and_a_topic(url: str, servers: str) -> None:
    assert place_of(url) == Place(servers, "orders")


@pytest.mark.parametrize(
    "url", ["kafka://broker", "kafka://broker/", "kafka:/x", "kafka://b/a/b", "kafka://u:p@b/x"]
)
def test_what_is_no_topic_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadInput, match="give kafka://HOST:PORT/TOPIC") as error:
        place_of(url)
    assert "u:p" not in str(error.value)


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2=@\n")

    assert client_settings([f"sasl.password=@{file}", "client.id=a=b"]) == {
        "sasl.password": "hunter2=@",
        "client.id": "a=b",
    }


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
)
def test_a_secret_on_the_command_line_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"give --kafka {name}=@FILE") as error:
        client_settings([f"{name}=hunter2"])
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("given", ["enable.auto.commit=true", "auto.offset.reset=latest"])
def test_what_once_rests_on_cannot_be_set(given: str) -> None:
    with pytest.raises(BadInput, match="cannot be set"):
        client_settings([given])


@pytest.mark.parametrize("given", ["sasl.password", "=x", ""])
def test_what_is_no_setting_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match="is not NAME=VALUE"):
        client_settings([given])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"sasl.password: .*gone cannot be read: No such file"):
        client_settings([f"sasl.password=@{tmp_path / 'gone'}"])


def test_a_setting_that_the_client_does_not_have_is_named() -> None:
    with pytest.raises(BadInput, match=r'No such configuration property: "sesion.timeout.ms"'):
        KafkaSource(PLACE, "group", {"sesion.timeout.ms": "1"})


def test_the_brokers_keep_the_session_of_the_newer_protocol() -> None:
    assert consumer_settings(PLACE, "g", {})["session.timeout.ms"] == 10_000
    newer = consumer_settings(PLACE, "g", {"group.protocol": "consumer"})
    assert "session.timeout.ms" not in newer
    assert "partition.assignment.strategy" not in newer
