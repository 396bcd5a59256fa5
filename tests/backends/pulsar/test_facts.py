"""What is asked of a broker, of at most how many topics, and what becomes of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.backends.pulsar import facts as facts_module
from pushlane.backends.pulsar.examiner import _OF_BROKER, CHECKS, _said
from pushlane.backends.pulsar.facts import PulsarFacts, Web, collect
from pushlane.backends.redis.checks import RedisFacts
from pushlane.settings import Settings
from pushlane.util.checks import Fact, examined
from tests.backends.pulsar.recorded import JOURNAL, LANES, RECEIPTS, answer
from tests.backends.pulsar.test_admin import Admin, Response, Server, Table, serving

_ADMIN = "/admin/v2"
_NONE: Fact[Any] = Fact(why_not="not asked")
_NO_REDIS = RedisFacts(Settings(), _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, [])
_LOOK = "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true"


@pytest.fixture(autouse=True)
def a_broker_that_only_the_rest_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    async def web(_: Admin) -> Web:
        return Web("4.0.8", 0.0)

    monkeypatch.setattr(facts_module, "_web", web)
    monkeypatch.setattr(facts_module, "CLIENT_S", 0.1)


def _table(lanes: list[str]) -> Table:
    policies = answer("policies")
    table: Table = {
        ("GET", f"{_ADMIN}/brokers/configuration/runtime"): Response(200, answer("configuration")),
        ("GET", f"{_ADMIN}/bookies/all"): Response(200, {"bookies": [{"bookieId": "b1"}]}),
        ("GET", f"{_ADMIN}/brokers"): Response(200, ["broker-1:8080"]),
        ("GET", f"{_ADMIN}/namespaces/{LANES}"): Response(200, policies["lanes"]),
        ("GET", f"{_ADMIN}/namespaces/{JOURNAL}"): Response(200, policies["lanes-registry"]),
        ("GET", f"{_ADMIN}/persistent/{LANES}"): Response(200, [_topic(lane) for lane in lanes]),
    }
    for lane in lanes:
        path = f"{_ADMIN}/persistent/{LANES}/{lane}"
        table["GET", f"{path}/stats{_LOOK}"] = Response(200, answer("stats"))
        table["GET", f"{path}/internalStats"] = Response(200, answer("internal-stats"))
    return table


def _topic(lane: str) -> str:
    return f"persistent://{LANES}/{lane}"


async def _collect(table: Table, most: int = 50, bookie: str = "") -> tuple[PulsarFacts, Server]:
    async with serving(table) as server, Admin(server.url, None) as admin:
        settings = Settings(broker="pulsar://127.0.0.1:1", admin_url=server.url)
        return await collect(settings, admin, most, server.url if bookie else ""), server


def _looked_at(facts: PulsarFacts) -> set[str]:
    return {one.topic for one in facts.looked_at}


async def test_all_is_asked_and_nothing_is_changed() -> None:
    facts, server = await _collect(_table(["task-a", "__change_events"]))

    assert server.changes() == []
    assert facts.bookies.get() == ["b1"]
    assert facts.policies[RECEIPTS].get() is None
    assert facts.topics[LANES].get() == ["task-a", "__change_events"]
    assert _looked_at(facts) == {"task-a"}
    assert facts.looked_at[0].internals == answer("internal-stats")
    assert facts.refusals == []


async def test_a_refusal_names_the_right_and_the_namespace() -> None:
    table = _table(["task-a"])
    table["GET", f"{_ADMIN}/namespaces/{LANES}"] = Response(403)
    table["GET", f"{_ADMIN}/brokers/configuration/runtime"] = Response(401)

    facts, _ = await _collect(table)

    assert {(one.right, one.namespace, one.status) for one in facts.refusals} == {
        ("tenant admin", LANES, 403),
        ("superuser", "", 401),
    }
    assert "status 403" in facts.policies[LANES].why_not
    assert "status 401" in facts.configuration.why_not


async def test_of_many_topics_those_that_store_most_are_looked_at() -> None:
    table = _table([f"task-{number}" for number in range(6)])
    lines = [f'pulsar_storage_size{{topic="{_topic(f"task-{n}")}"}} {n}' for n in range(6)]
    table["GET", "/metrics/"] = Response(200, raw="\n".join(lines).encode())

    facts, _ = await _collect(table, most=2)

    assert _looked_at(facts) == {"task-4", "task-5"}


async def test_without_metrics_some_that_are_spread_over_all_are_looked_at() -> None:
    facts, _ = await _collect(_table([f"task-{number}" for number in range(6)]), most=2)

    assert _looked_at(facts) == {"task-0", "task-3"}


async def test_metrics_that_would_be_too_large_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts_module, "MOST_MEASURED", 3)

    facts, server = await _collect(_table([f"task-{number}" for number in range(6)]), most=2)

    assert len(_looked_at(facts)) == 2
    assert "/metrics/" not in {one.path for one in server.requests}


async def test_a_bookie_is_asked_at_its_web_server() -> None:
    table = _table([])
    table["GET", "/api/v1/config/server_config"] = Response(200, answer("bookie"))

    facts, _ = await _collect(table, bookie="here")

    assert facts.bookie.get()["journalSyncData"] == "false"


async def test_what_is_no_bookie_is_a_reason() -> None:
    facts, server = await _collect(_table([]), bookie="here")

    assert facts.bookie.why_not == f"no bookie answers at {server.url}"


async def test_a_broker_without_its_rest_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def web(_: Admin) -> Web:
        raise facts_module.Unreachable("away")

    monkeypatch.setattr(facts_module, "_web", web)

    facts, server = await _collect(_table(["task-a"]))

    assert server.requests == []
    assert facts.admin.why_not == "away"
    assert facts.looked_at == []


@pytest.mark.parametrize("value", [[], "text", 7, {"bookies": ["b1"]}, {"a": None}, None])
async def test_a_broker_that_answers_in_other_forms_is_looked_at_as_far_as_it_goes(
    value: Any,
) -> None:
    table = {place: Response(200, value) for place in _table(["task-a"])}

    facts, _ = await _collect(table)
    examined(CHECKS[: len(_OF_BROKER)], facts)

    assert isinstance(facts.configuration.get_or({}), dict)
    assert _said(facts, _NO_REDIS)["broker"]["version"] == "4.0.8"


async def test_a_broker_that_does_not_tell_its_configuration_skips_what_needs_it() -> None:
    table = _table(["task-a"])
    del table["GET", f"{_ADMIN}/brokers/configuration/runtime"]

    facts, _ = await _collect(table)

    skipped = examined(CHECKS[: len(_OF_BROKER)], facts).skipped
    assert skipped["message-size"] == "the broker does not show it"
