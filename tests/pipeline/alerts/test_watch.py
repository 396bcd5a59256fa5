"""Alerts on a store of receipts and a document store, sent to a webhook; kills and restarts."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric, Threshold
from pushlane.pipeline.alerts.alert_store import AlertLook, AlertStore
from pushlane.pipeline.alerts.measure import lag_of, measure
from pushlane.pipeline.alerts.watch import Webhook, check_all, serve
from pushlane.pipeline.store import CorruptStore, open_store
from pushlane.settings import Settings
from pushlane.util.errors import NotFound
from pushlane.util.url_guard import UrlGuard
from tests.receipt_stores import MINUTE_MS, NOON_MS, store_of
from tests.web_server import Server

NOW_MS = NOON_MS + 10 * MINUTE_MS
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
AWAY = b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n"


def rule(metric=Metric.FAILURE_RATE, when="> 5%", url="http://127.0.0.1:9/x", **given):
    return AlertRule(name="a", metric=metric, when=Threshold.parse(when), url=url, **given)


def receipts(count, at_ms=NOW_MS - MINUTE_MS, **given):
    return [{"responded_at_ms": at_ms, **given}] * count


def found(root, of, now_ms=NOW_MS, lag=0):
    return measure(root, of, now_ms, lag)


async def no_wait(_s):
    return None


WEBHOOK = Webhook(UrlGuard(["127.0.0.1"]), no_wait)


def test_a_rate_is_measured_by_each_value(tmp_path):
    root = store_of(
        tmp_path,
        [
            *receipts(30, outcome="dead", sink="fcm"),
            *receipts(70, sink="fcm"),
            *receipts(5),
        ],
    )
    by_sink = found(root, rule(by="sink"))
    assert by_sink[("fcm",)].value == pytest.approx(0.3)
    assert by_sink[("webhook",)].value == 0
    assert found(root, rule())[()].n == 105


def test_an_attribute_is_measured_like_any_dimension(tmp_path):
    bad = {"attributes": [("version", "5.1")], "outcome": "dead"}
    root = store_of(tmp_path, [*receipts(9, **bad), *receipts(1, attributes=bad["attributes"])])
    assert found(root, rule(by="attribute:version"))[("5.1",)].value == pytest.approx(0.9)


def test_the_window_before_is_measured_too(tmp_path):
    earlier = NOW_MS - 7 * MINUTE_MS
    root = store_of(tmp_path, [*receipts(3, outcome="dead"), *receipts(1, earlier, outcome="dead")])
    [measured] = found(root, rule(Metric.DEAD, "> 2x")).values()
    assert (measured.value, measured.before) == (3, 1)


def test_receipts_outside_of_both_windows_do_not_count(tmp_path):
    root = store_of(tmp_path, [*receipts(1), *receipts(50, NOW_MS - 11 * MINUTE_MS)])
    [measured] = found(root, rule(Metric.RATE, "> 1")).values()
    assert (measured.n, measured.n_before) == (1, 0)


def test_a_quantile_is_that_of_the_window(tmp_path):
    waited = {"eligible_at_ms": NOON_MS, "dispatched_at_ms": NOON_MS + 2_000}
    root = store_of(tmp_path, receipts(10, **waited))
    [measured] = found(root, rule(Metric.P99_WAIT_MS, "> 1000")).values()
    assert measured.value == pytest.approx(2_000, rel=0.05)


def test_a_level_that_waits_below_its_share_is_found(tmp_path):
    waited = {"eligible_at_ms": NOON_MS, "dispatched_at_ms": NOON_MS + 5_000}
    root = store_of(
        tmp_path,
        [
            *receipts(10, level="high", weight=6, **waited),
            *receipts(90, level="low", weight=1, task_id="b"),
        ],
    )
    by_level = found(root, rule(Metric.SHARE_ERROR, "> 10%", by="level"))
    assert by_level.keys() == {("high",)}  # low does not wait
    assert by_level[("high",)].value == pytest.approx(6 / 7 - 0.1)


def test_lag_is_none_when_the_log_is_read(tmp_path):
    root = store_of(tmp_path, receipts(1))
    published_ms = open_store(root).state.last_batch_at_ms
    lag_s = rule(Metric.LAG_S, "> 60")
    assert found(root, lag_s, published_ms + 90_000, lag=0)[()].value == 0
    assert found(root, lag_s, published_ms + 90_000, lag=7)[()].value == 90
    assert found(root, lag_s, published_ms + 90_000, lag=None)[()].value == 90


def test_without_a_store_it_says_how_to_make_one(tmp_path):
    with pytest.raises(BadInput, match="pushlane pipeline run"):
        found(tmp_path, rule())


async def test_it_is_told_once_over_restarts(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    async with Server(OK, keep=True).running() as server:
        async with documents(tmp_path) as alerts:
            await alerts.add(rule(url=server.url, by="sink"))
        for _ in range(3):
            async with documents(tmp_path) as alerts:
                await check_all(alerts, root, WEBHOOK.send, 0, NOW_MS)
        [message] = map(json.loads, server.bodies)
        assert (message["status"], message["group"]) == ("firing", {"sink": "webhook"})


async def test_the_last_look_is_kept_with_what_went_wrong(tmp_path):
    looks = []
    async with connect(Settings(data_dir=tmp_path / "data")) as backend:
        alerts = AlertStore(backend.documents)
        await alerts.add(rule())
        before = await alerts.last_look()
        stop, guard = asyncio.Event(), UrlGuard(())
        await serve(backend, tmp_path / "none", guard, None, stop, looks.append, looks.append)
        look = await alerts.last_look()

    assert before is None
    assert len(looks) == 1
    assert "pushlane pipeline run" in look.problems["a"]
    assert (look.every_s, look.is_overdue(look.at_ms + 10**9)) == (0, False)
    assert AlertLook(look.at_ms, 30).is_overdue(look.at_ms + 120_001)
    assert not AlertLook(look.at_ms, 30).is_overdue(look.at_ms + 120_000)


async def test_its_end_is_told_once_over_restarts(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    async with Server(OK, keep=True).running() as server:
        async with documents(tmp_path) as alerts:
            await alerts.add(rule(url=server.url))
        for now_ms in (NOW_MS, NOW_MS + 3_600_000, NOW_MS + 3_630_000):
            async with documents(tmp_path) as alerts:
                await check_all(alerts, root, WEBHOOK.send, 0, now_ms)
        assert [json.loads(body)["status"] for body in server.bodies] == ["firing", "recovered"]


async def test_a_webhook_that_is_away_is_told_later_under_the_same_key(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    async with Server(AWAY, keep=True).running() as server:
        async with documents(tmp_path) as alerts:
            await alerts.add(rule(url=server.url))
            [check] = await check_all(alerts, root, WEBHOOK.send, 0, NOW_MS)
            assert "did not take it: HTTP 503" in check.problem
            assert len(server.bodies) == 3
            server.answer = OK
            [check] = await check_all(alerts, root, WEBHOOK.send, 0, NOW_MS + 30_000)
            assert [message.status for message in check.told] == ["firing"]
        keys = {_key(head) for head in server.heads}
        assert len(server.heads) == 4
        assert len(keys) == 1


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1:{port}/?secret", "the URL of host 127.0.0.1 leads to an address that"),
        ("http://localhost:{port}/?secret", "the URL of host localhost is not https; if that is"),
        ("https://169.254.169.254/?secret", "the URL of host 169.254.169.254 leads to"),
        ("https://u:secret@hooks.example.com/", "its URL has a user or a password"),
    ],
)
async def test_a_rule_does_not_reach_what_only_this_process_can(tmp_path, url, why):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    guarded = Webhook(UrlGuard(ports=range(1, 65_536)), no_wait)
    async with Server(OK).running() as server, documents(tmp_path) as alerts:
        port = server.url.rpartition(":")[2].partition("/")[0]
        await alerts.add(rule(url=url.format(port=port)))
        [check] = await check_all(alerts, root, guarded.send, 0, NOW_MS)
        assert f"did not take it: {why}" in check.problem
        assert "secret" not in check.problem
        assert (check.told, server.connections) == ([], 0)


async def test_a_host_without_an_address_is_told_later(tmp_path):
    async def nowhere(host):
        return []

    webhook = Webhook(UrlGuard(resolve=nowhere), no_wait)
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    async with documents(tmp_path) as alerts:
        await alerts.add(rule(url="https://hooks.example.com/"))
        [check] = await check_all(alerts, root, webhook.send, 0, NOW_MS)
        assert check.problem.endswith("the host hooks.example.com is not found: check its name")
        state = (await alerts.load_state("a")).state
        assert [group.pending.status for group in state.values()] == ["firing"]


async def test_another_address_of_the_host_is_told_where_the_first_does_not_answer(tmp_path):
    async def two(host):
        return ["127.0.0.3", "127.0.0.1"]

    webhook = Webhook(UrlGuard(["127.0.0.0/8"], resolve=two), no_wait)
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    async with Server(OK).running() as server, documents(tmp_path) as alerts:
        port = server.url.rpartition(":")[2].partition("/")[0]
        await alerts.add(rule(url=f"http://hooks.example.com:{port}/"))
        [check] = await check_all(alerts, root, webhook.send, 0, NOW_MS)
        assert (check.problem, len(server.bodies)) == ("", 1)


async def test_any_value_may_stand_in_the_key_of_a_message(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead", sink="Zürich\x7f\n"))
    async with Server(OK, keep=True).running() as server:
        async with documents(tmp_path) as alerts:
            await alerts.add(rule(url=server.url, by="sink"))
            [check] = await check_all(alerts, root, WEBHOOK.send, 0, NOW_MS)
        assert (check.problem, len(server.bodies)) == ("", 1)


async def test_a_kill_between_telling_and_knowing_repeats_the_same_key(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    ids = []

    async def killed(_url, message):
        ids.append(message.id)
        raise KeyboardInterrupt

    async def taken(_url, message):
        ids.append(message.id)
        return ""

    async with documents(tmp_path) as alerts:
        await alerts.add(rule())
        with pytest.raises(KeyboardInterrupt):
            await check_all(alerts, root, killed, 0, NOW_MS)
        await check_all(alerts, root, taken, 0, NOW_MS + 30_000)
        await check_all(alerts, root, taken, 0, NOW_MS + 60_000)
    assert len(ids) == 2
    assert len(set(ids)) == 1


async def test_one_alert_that_goes_wrong_does_not_stop_the_others(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    for path in open_store(root).files("latency"):
        os.truncate(path, 20)
    ids = []

    async def tell(_url, message):
        ids.append(message.alert)
        return ""

    async with documents(tmp_path) as alerts:
        await alerts.add(rule(Metric.P99_WAIT_MS, "> 1"))
        healthy = AlertRule(
            name="b", metric=Metric.DEAD, when=Threshold.parse("> 1"), url="http://127.0.0.1:9/"
        )
        await alerts.add(healthy)
        broken, fine = await check_all(alerts, root, tell, 0, NOW_MS)
    assert "pipeline replay" in broken.problem
    assert (fine.problem, ids) == ("", ["b"])
    with pytest.raises(CorruptStore):
        found(root, rule(Metric.P99_WAIT_MS, "> 1"))


async def test_a_damaged_store_is_told_of_each_alert(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    for path in open_store(root).generation.manifests.iterdir():
        path.write_text("{")
    async with documents(tmp_path) as alerts:
        await alerts.add(rule())
        lag = await lag_of(None, root)
        [check] = await check_all(alerts, root, WEBHOOK.send, lag, NOW_MS)
    assert "pipeline replay" in check.problem


async def test_an_answer_is_not_read_to_its_end(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    left = list(range(1_000))

    async def long_answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 65536000\r\n\r\n")
        while left and not writer.is_closing():
            writer.write(b"x" * 65_536)
            await writer.drain()
            left.pop()

    async with Server(react=long_answer).running() as server, documents(tmp_path) as alerts:
        await alerts.add(rule(url=server.url))
        [check] = await check_all(alerts, root, WEBHOOK.send, 0, NOW_MS)
    assert (check.problem, len(check.told)) == ("", 1)
    assert left


async def test_an_alert_of_the_same_name_is_refused_unless_it_replaces(tmp_path):
    async with documents(tmp_path) as alerts:
        await alerts.add(rule())
        with pytest.raises(BadInput, match="--replace"):
            await alerts.add(rule(when="> 10%"))
        await alerts.add(rule(when="> 10%"), replace=True)
        assert (await alerts.rule("a")).when.limit == 0.1


async def test_a_removed_alert_forgets_what_it_told(tmp_path):
    root = store_of(tmp_path / "reports", receipts(10, outcome="dead"))
    told = []

    async def tell(_url, message):
        told.append(message.status)
        return ""

    async with documents(tmp_path) as alerts:
        for _ in range(2):
            await alerts.add(rule())
            await check_all(alerts, root, tell, 0, NOW_MS)
            await alerts.remove("a")
        with pytest.raises(NotFound, match="no alert"):
            await alerts.remove("a")
    assert told == ["firing", "firing"]


def _key(head):
    return head.split("idempotency-key: ")[1].split("\r\n")[0]


@asynccontextmanager
async def documents(folder):
    """The alert store of an embedded backend, opened anew."""
    async with connect(Settings(data_dir=folder / "data")) as backend:
        yield AlertStore(backend.documents)
