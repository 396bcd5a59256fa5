"""Rules and alerts that a newer version has put: what it added is kept, what is new is skipped."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.model.documents import DocumentStore
from pushlane.pipeline.alerts.alert_store import AlertStore
from pushlane.pipeline.rules import history as run_transitions
from pushlane.pipeline.rules.rule import make_rule
from pushlane.pipeline.rules.rule_store import RuleStore
from tests.core.support import settings_in
from tests.upgrade.stored_documents import ALERT, AT, RULE


async def put(documents: DocumentStore, kind: str, document: bytes, **fields: Any) -> str:
    """A document as a newer version would put it."""
    changed = {**msgspec.json.decode(document), **fields}
    name = changed.pop("_name", None) or changed["name"]
    found = await documents.get(kind, name)
    await documents.put(kind, name, msgspec.json.encode(changed), found.version if found else None)
    return name


async def kept(documents: DocumentStore, kind: str, name: str) -> dict[str, Any]:
    found = await documents.get(kind, name)
    assert found is not None
    return msgspec.json.decode(found.body)


async def test_what_was_added_to_a_rule_and_its_history_survives_a_change(tmp_path) -> None:
    async with connect(settings_in(tmp_path)) as backend:
        name = await put(backend.documents, "rule", RULE.encode(), later={"a": [1]})
        await backend.documents.put(
            "rule-history", name, b'{"later": 7, "runs": [{"at_ms": 5, "later": [2]}]}', None
        )
        book = RuleStore(backend.documents)

        changed = (await book.change(name, lambda rule: rule.changed(paused=True))).after
        await book.change_history(name, run_transitions.request_run(AT))

        assert (await kept(backend.documents, "rule", name))["later"] == {"a": [1]}
        assert "later" not in changed.shown()
        history = await kept(backend.documents, "rule-history", name)
        assert (history["later"], history["runs"][0]["later"]) == (7, [2])
        assert history["runs"][1]["at_ms"] == AT


def test_a_field_that_there_is_not_is_refused_in_a_rule_of_ones_own() -> None:
    with pytest.raises(BadInput, match="there is no field 'later'"):
        make_rule("weekly", {"later": 1, "cron": "0 9 * * 1"}, AT)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("rule", {"catch_up": "some"}),
        ("rule-history", {"_name": "newer", "runs": [{"at_ms": 5, "state": "resting"}]}),
    ],
)
async def test_a_rule_that_only_a_newer_version_understands_is_skipped_and_named(
    tmp_path, caplog, kind: str, fields: dict[str, Any]
) -> None:
    async with connect(settings_in(tmp_path)) as backend:
        await put(backend.documents, "rule", RULE.encode())
        await put(backend.documents, "rule", RULE.encode(), name="newer")
        before = b"{}" if kind == "rule-history" else RULE.encode()
        await put(backend.documents, kind, before, **{"name": "newer", **fields})
        book = RuleStore(backend.documents)

        for _ in range(2):
            assert [page.rule.name for page in await book.records()] == ["weekly"]
        with pytest.raises(UnknownFormat, match=r"rule 'newer'.*upgrade"):
            await book.record("newer")

        [told] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert "newer" in told


async def test_an_alert_that_only_a_newer_version_understands_is_skipped_and_named(
    tmp_path, caplog
) -> None:
    async with connect(settings_in(tmp_path)) as backend:
        await put(backend.documents, "alert", ALERT.encode(), later=1)
        await put(backend.documents, "alert", ALERT.encode(), name="newer", metric="mood")
        book = AlertStore(backend.documents)

        for _ in range(2):
            assert await book.rules() == [ALERT]
        with pytest.raises(UnknownFormat, match=r"alert 'newer'.*upgrade"):
            await book.rule("newer")

        assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
