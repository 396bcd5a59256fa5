"""Settings of secure transport that contradict each other are refused, and say which and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import BadInput
from pushlane.settings import NAMES, load
from tests.certificates import Authority

PULSAR = {"broker": "pulsar+ssl://b:6651", "admin_url": "https://b:8443"}
OAUTH2 = {"pulsar_oauth2_issuer_url": "https://issuer.test", "pulsar_oauth2_key_file": "{secret}"}
TOKEN = "hush-hush"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files by the names that cases have for them."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(f"PUSHLANE_{name.upper()}", raising=False)
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("ours")
    (tmp_path / "secret").write_text(f" {TOKEN}\n")
    (tmp_path / "empty").write_text("\n")
    found = {"ca": authority.ca, "cert": pair.cert, "key": pair.key}
    found |= {name: tmp_path / name for name in ("secret", "empty", "none")}
    return {name: str(path) for name, path in found.items()}


def given(case: dict[str, str], files: dict[str, str]) -> dict[str, Any]:
    return {name: value.format(**files) for name, value in case.items()}


@pytest.mark.parametrize(
    "case",
    [
        {**PULSAR, "pulsar_token": TOKEN, "pulsar_ca_file": "{ca}"},
        {**PULSAR, "pulsar_token_file": "{secret}"},
        {**PULSAR, "pulsar_cert_file": "{cert}", "pulsar_key_file": "{key}"},
        {**PULSAR, **OAUTH2, "pulsar_oauth2_scope": "lanes"},
        {"broker": "pulsar://b", "admin_url": "https://b", "pulsar_ca_file": "{ca}"},
        {"redis_url": "rediss://h/0", "redis_user": "w", "redis_password_file": "{secret}"},
        {"redis_url": "rediss+cluster://h,i", "redis_ca_file": "{ca}", **PULSAR},
        {"redis_url": "redis+sentinel://:pw@h/m/0", "redis_password": "other"},
        {"pulsar_ca_file": "{ca}"},
    ],
)
def test_settings_that_go_together_are_taken(case: dict[str, str], files: dict[str, str]) -> None:
    load(given(case, files))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"pulsar_token": TOKEN, "pulsar_token_file": "{secret}"}, "in pulsar_token already"),
        ({"pulsar_token": TOKEN, **OAUTH2}, "come from pulsar_oauth2_issuer_url already"),
        ({"pulsar_token_file": "{secret}", **OAUTH2}, "setting pulsar_token_file"),
        ({"pulsar_oauth2_issuer_url": "https://i"}, "needs pulsar_oauth2_key_file"),
        ({**OAUTH2, "pulsar_oauth2_issuer_url": "issuer"}, "give a URL like https://"),
        ({"pulsar_oauth2_audience": "x"}, "does nothing without pulsar_oauth2_issuer_url"),
        ({"pulsar_cert_file": "{cert}"}, "needs pulsar_key_file"),
        ({"redis_key_file": "{key}"}, "needs redis_cert_file"),
        ({"pulsar_cert_file": "{cert}", "pulsar_key_file": "{ca}"}, "a certificate and its key"),
        ({"pulsar_ca_file": "{none}"}, "cannot be used"),
        ({"pulsar_ca_file": "{secret}"}, "cannot be used"),
        ({"redis_ca_file": "{key}"}, "cannot be used"),
        ({"broker": "pulsar://b", "pulsar_ca_file": "{ca}"}, r"give them as pulsar\+ssl://"),
        ({"broker": "pulsar://b", "redis_ca_file": "{ca}"}, "give it as rediss://"),
        ({"redis_user": "w"}, "needs redis_password or redis_password_file"),
        ({"redis_password": TOKEN, "redis_password_file": "{secret}"}, "in redis_password already"),
        ({"redis_url": "redis://:pw@h/0", "redis_password": TOKEN}, "redis_url names a user or"),
        ({"redis_url": "redis://u:pw@h/0", "redis_user": "u"}, "redis_url names a user or"),
        ({"pulsar_token_file": "{none}"}, "cannot be read"),
        ({"redis_password_file": "{empty}"}, "is empty"),
    ],
)
def test_settings_that_contradict_each_other_are_named(
    case: dict[str, str], said: str, files: dict[str, str]
) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        load(given(case, files))

    assert "(from flag)" in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert "pw" not in str(refused.value)
