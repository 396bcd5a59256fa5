"""Sessions: every process that has the key takes them, and nothing else does."""

from __future__ import annotations

import secrets
from base64 import b64encode
from pathlib import Path

import pytest

from pushlane.console import sessions as module
from pushlane.console.sessions import Kept, Sessions, new_login, sessions
from pushlane.core.errors import BadInput

TOKEN = "pl_0123456789_a-secret"


def key_file(folder: Path, *keys: bytes) -> Path:
    path = folder / "key"
    path.write_text("".join(b64encode(key).decode() + "\n" for key in keys))
    return path


def test_processes_with_the_same_key_take_a_session_and_no_other_does(tmp_path: Path) -> None:
    path = key_file(tmp_path, secrets.token_bytes(32))
    login = new_login(TOKEN)
    cookie = sessions(path).cookie(login)

    assert sessions(path).login(cookie) == login
    assert sessions(None).login(cookie) is None


def test_an_older_key_still_opens_what_it_sealed(tmp_path: Path) -> None:
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    login = new_login(TOKEN)
    cookie = Sessions([old]).cookie(login)
    form_token = Sessions([old]).form_token(login)
    turned = sessions(key_file(tmp_path, new, old))

    assert turned.login(cookie) == login
    assert turned.fits(login, form_token)
    assert Sessions([new]).login(turned.cookie(login)) == login


def test_what_is_sealed_for_one_thing_is_nothing_else() -> None:
    ours = sessions(None)
    form = ours.sealed(Kept("do/pause-task", [("task", "sale")]))

    assert ours.kept(form) == Kept("do/pause-task", [("task", "sale")])
    assert ours.login(form) is None
    assert ours.kept(ours.cookie(new_login(TOKEN))) is None


def test_the_token_cannot_be_read_from_the_cookie() -> None:
    cookie = sessions(None).cookie(new_login(TOKEN))
    assert TOKEN not in cookie
    assert b64encode(TOKEN.encode()).decode()[4:12] not in cookie


def test_a_session_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sessions(None)
    cookie = ours.cookie(new_login(TOKEN))
    monkeypatch.setattr(module, "SESSION_S", -1)
    assert ours.login(cookie) is None


def test_a_form_token_is_of_one_session() -> None:
    ours = sessions(None)
    mine, theirs = new_login(TOKEN), new_login(TOKEN)
    assert ours.fits(mine, ours.form_token(mine))
    assert not ours.fits(mine, ours.form_token(theirs))
    assert not ours.fits(mine, "")
    assert not ours.fits(mine, "ünlike")


@pytest.mark.parametrize("text", ["", "c2hvcnQ=", "not base64!", "\udcff"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match="session_key_file"):
        sessions(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        sessions(tmp_path / "none")


def test_a_token_that_fits_into_no_cookie_is_refused() -> None:
    with pytest.raises(BadInput, match="too long for a cookie"):
        sessions(None).cookie(new_login("x" * 4_000))
